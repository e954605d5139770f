"""torch.package: a program's objects, the source of the modules that they need, and files, in one archive.

    with PackageExporter("model.pt") as exporter:
        exporter.intern("models.**")        # these modules' sources go into the package,
        exporter.extern("numpy.**")         # these are imported where it is loaded
        exporter.save_pickle("model", "model.pkl", model)
    model = PackageImporter("model.pt").load_pickle("model", "model.pkl")

Loading a package runs its code and its pickles: load only what you trust. PyTorch's packages are read, and PyTorch reads
these where their sources say torch. Tests: tests/python/test_package.py.
"""

from .file_structure_representation import Directory
from .glob_group import GlobGroup
from .importer import Importer, ObjMismatchError, ObjNotFoundError, OrderedImporter, is_from_package, sys_importer
from .package_exporter import EmptyMatchError, PackageExporter, PackagingError
from .package_importer import PackageImporter

__all__ = [
    "Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter",
    "PackageExporter", "PackageImporter", "PackagingError", "is_from_package", "sys_importer",
]  # fmt: skip

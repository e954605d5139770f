"""torch.package: objects with the sources of their modules, what patterns say, files, mocks, packages from packages."""

import io
import sys
import textwrap

import pytest

import wick
from wick.package import (
    EmptyMatchError,
    GlobGroup,
    ObjMismatchError,
    OrderedImporter,
    PackageExporter,
    PackageImporter,
    PackagingError,
    is_from_package,
    sys_importer,
)

SOURCES = {
    "__init__.py": "from .layers import scaled\n",
    "layers.py": """
        import math

        import wick as torch
        from torch_package_models import tools as helpers

        def scaled(x):
            return x * math.pi

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 2)

            def forward(self, x):
                return scaled(self.layer(x)) + helpers.one()
    """,
    "tools.py": "def one():\n    return 1\n",
}


@pytest.fixture
def layers(tmp_path, monkeypatch):
    folder = tmp_path / "torch_package_models"
    folder.mkdir()
    for name, text in SOURCES.items():
        (folder / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    import torch_package_models.layers

    yield torch_package_models.layers
    for name in [n for n in sys.modules if n.startswith("torch_package_models")]:
        del sys.modules[name]


def packed(fill, **options):
    file = io.BytesIO()
    with PackageExporter(file, **options) as exporter:
        fill(exporter)
    file.seek(0)
    return PackageImporter(file)


def test_a_model_with_its_modules(layers):
    net = layers.Net()

    def fill(exporter):
        exporter.intern("torch_package_models.**")
        exporter.save_pickle("model", "net.pkl", net)
        exporter.save_pickle("model", "again.pkl", {"weight": net.layer.weight})
        exporter.save_text("files", "labels.txt", "cat dog")
        exporter.save_binary("files.more", "bytes", b"\0\1")
        assert exporter.interned_modules() == ["torch_package_models.layers", "torch_package_models.tools"] or (
            "torch_package_models" in exporter.interned_modules()
        )
        assert {"math", "torch.nn.modules.linear"} <= set(exporter.externed_modules())
        assert exporter.get_unique_id() != exporter.get_unique_id()
        assert '"<model.net.pkl>" -> "torch_package_models.layers"' in exporter.dependency_graph_string()
        assert exporter.get_rdeps("torch_package_models.tools") == ["torch_package_models.layers"]
        assert "layers" in exporter.all_paths("<model.net.pkl>", "torch_package_models.tools")

    package = packed(fill)
    for name in [n for n in sys.modules if n.startswith("torch_package_models")]:
        del sys.modules[name]
    loaded = package.load_pickle("model", "net.pkl")
    x = wick.ones(1, 2)
    assert wick.equal(loaded(x), net(x)) and type(loaded) is not type(net)
    assert is_from_package(loaded) and not is_from_package(net)
    assert type(loaded).__module__ == f"{package.id()}.torch_package_models.layers"
    again = package.load_pickle("model", "again.pkl")["weight"]
    assert again.data_ptr() == loaded.layer.weight.data_ptr()
    assert (
        package.load_text("files", "labels.txt") == "cat dog" and package.load_binary("files.more", "bytes") == b"\0\1"
    )
    tree = package.file_structure(include="**/*.py")
    assert (
        tree.has_file("torch_package_models/layers.py")
        and not tree.has_file("model/net.pkl")
        and "─── <binary>" in str(tree)
    )
    assert package.python_version().startswith("3.") and list(package.get_resource_reader("files").contents())
    assert "torch_package_models" not in sys.modules
    other = packed(lambda e: (e.intern("**"), e.save_pickle("m", "n.pkl", loaded)), importer=[package, sys_importer])
    assert wick.equal(other.load_pickle("m", "n.pkl")(x), net(x))
    with pytest.raises(Exception, match="is not the same object|was not found"):
        packed(lambda e: (e.intern("**"), e.save_pickle("m", "n.pkl", loaded)))


def test_patterns(layers):
    net = layers.Net()
    for fill, error, text in [
        (
            lambda e: e.save_pickle("m", "n", net),
            PackagingError,
            "did not match against any action pattern.*\n    torch_package_models",
        ),
        (
            lambda e: (e.deny("torch_package_models.**"), e.save_pickle("m", "n", net)),
            PackagingError,
            "denied by a pattern",
        ),
        (lambda e: (e.mock("**"), e.save_pickle("m", "n", net)), PackagingError, "still being used in the package"),
        (lambda e: (e.intern("sys"), e.save_source_string("q", "import sys\n")), PackagingError, "no __file__"),
        (lambda e: e.save_source_string("q", "import io\n"), PackagingError, "Extern, mock, or intern it.\n    io"),
        (lambda e: e.intern("nothing.**", allow_empty=False), EmptyMatchError, "include=nothing.*allow_empty=False"),
        (lambda e: e.save_module(3), TypeError, "expects a string input"),
        (lambda e: e.save_module("not.there"), ModuleNotFoundError, "not"),
        (lambda e: (e.save_text("a", "b", "c"), e.save_text("a", "b", "c")), AssertionError, "already"),
    ]:
        with pytest.raises(error, match=f"(?s){text}"):
            packed(fill)
    names = []

    def fill(exporter):
        handle = exporter.register_extern_hook(lambda e, name: names.append(name))
        exporter.extern("torch_package_models.tools")
        exporter.intern("torch_package_models.**")
        exporter.save_pickle("m", "n", net)
        handle.remove()

    package = packed(fill)
    assert "torch_package_models.tools" in names and package.load_pickle("m", "n").layer.weight.shape == (2, 2)
    with pytest.raises(ImportError, match="has been disallowed"):
        package._archive._source._file.seek(0)
        PackageImporter(package._archive._source._file, module_allowed=lambda name: name == "torch")


def test_globs():
    group = GlobGroup(["a.*", "b.**"], exclude="b.c.**")
    assert [n for n in ("a", "a.x", "a.x.y", "b", "b.x.y", "b.c", "b.c.d") if group.matches(n)] == ["a.x", "b", "b.x.y"]
    with pytest.raises(ValueError, match="entire path segment"):
        GlobGroup("a**")


def test_sources_and_mocks(tmp_path):
    (tmp_path / "part.py").write_text("VALUE = 5\n")

    def fill(exporter):
        exporter.mock("missing.**")
        exporter.save_source_string("pack", "from .inner import X\n", is_package=True)
        exporter.save_source_string(
            "pack.inner", "import missing.thing as t\nfrom . import late\nX = late.Y\nf = lambda: t.g()\n"
        )
        exporter.save_source_string("pack.late", "Y = 3\ndef where():\n    raise ValueError('here')\n")
        exporter.save_source_file("files", str(tmp_path))
        exporter.save_source_file("one", str(tmp_path / "part.py"))
        assert exporter.mocked_modules() == ["missing.thing"]

    package = packed(fill)
    pack = package.import_module("pack")
    assert pack.X == 3 and package.import_module(".inner", "pack") is pack.inner
    assert package.import_module("files.part").VALUE == package.import_module("one").VALUE == 5
    with pytest.raises(
        NotImplementedError, match=r"missing.thing.g' was mocked out during packaging but it is being used in __call__"
    ):
        pack.inner.f()
    with pytest.raises(ValueError, match="here"):
        pack.late.where()
    for call in (lambda: package.import_module("os"), lambda: package.load_text("nowhere", "x")):
        with pytest.raises(ModuleNotFoundError, match='in self-contained archive "<binary>"'):
            call()


def test_importers_and_files(layers, tmp_path):
    with pytest.raises(RuntimeError, match="No such file or directory"):
        PackageImporter(tmp_path / "nothing.pt")
    with pytest.raises(AttributeError):
        PackageImporter(3)
    package = packed(lambda e: (e.intern("**"), e.save_module("torch_package_models.layers")))
    own = package.import_module("torch_package_models.layers").Net
    assert OrderedImporter(package, sys_importer).get_name(own) == ("torch_package_models.layers", "Net")
    with pytest.raises(ObjMismatchError):
        sys_importer.get_name(own)
    path = tmp_path / "model.pt"
    with PackageExporter(path) as exporter:
        exporter.save_text("a", "b", "c")
    assert PackageImporter(path).load_text("a", "b") == "c"
    with pytest.raises(RuntimeError, match="zip archive"):
        PackageImporter(io.BytesIO(path.read_bytes()[:-40]))

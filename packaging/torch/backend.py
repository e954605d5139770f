"""The build backend of the stand-in: writes its wheel, which is one Python file, and needs nothing to do so.

Two distributions of one name cannot live in an environment: pip would remove an installed PyTorch without a word. So
nothing is built for an environment that has PyTorch.
"""

import base64
import hashlib
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = ["torch/__init__.py"]

# Run by the environment's own Python without pip's paths for builds: which torch is installed, and where.
_PROBE = """
from importlib.metadata import PackageNotFoundError, distribution
try:
    found = distribution("torch")
    print(found.version, found.locate_file(""), sep="\\n")
except PackageNotFoundError:
    pass
"""

REFUSAL = """
PyTorch {version} is installed in this environment ({folder}), and the stand-in has its name, torch: it would take its place.
Either use a virtual environment of its own for wick:
    python -m venv .venv-wick
    .venv-wick/bin/pip install . ./packaging/torch
or remove PyTorch first: pip uninstall torch
or do without the stand-in: `python -m wick train.py` runs a program with wick beside an installed PyTorch.
"""


def _project():
    with open(os.path.join(HERE, "pyproject.toml"), "rb") as file:
        return tomllib.load(file)["project"]


def _refuse_beside_pytorch():
    done = subprocess.run([sys.executable, "-I", "-c", _PROBE], capture_output=True, text=True, check=True)
    version, _, folder = done.stdout.strip().partition("\n")
    if version and not version.endswith("+wick"):
        sys.exit(REFUSAL.format(version=version, folder=folder))


def _metadata(project):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {name}" for name in project["dependencies"]),
    ]
    return "\n".join(lines) + "\n"


def _record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def _contents(project):
    """{path in the wheel: its bytes}, without the record of them."""
    info = f"{project['name']}-{project['version']}.dist-info"
    contents = {}
    for name in FILES:
        with open(os.path.join(HERE, name), "rb") as file:
            contents[name] = file.read()
    contents[f"{info}/METADATA"] = _metadata(project).encode()
    contents[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: wick\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    contents[f"{info}/top_level.txt"] = b"torch\n"
    return info, contents


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Writes the wheel and gives its name."""
    _refuse_beside_pytorch()
    project = _project()
    info, contents = _contents(project)
    record = "".join(_record_line(name, data) for name, data in contents.items()) + f"{info}/RECORD,,\n"
    name = f"{project['name']}-{project['version']}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in {**contents, f"{info}/RECORD": record.encode()}.items():
            wheel.writestr(path, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """Writes the archive of the sources and gives its name."""
    project = _project()
    base = f"{project['name']}-{project['version']}"
    with tarfile.open(os.path.join(sdist_directory, f"{base}.tar.gz"), "w:gz") as archive:
        for name in ["pyproject.toml", "backend.py", *FILES]:
            archive.add(os.path.join(HERE, name), f"{base}/{name}")
    return f"{base}.tar.gz"

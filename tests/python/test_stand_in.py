"""packaging/: the distribution `torch` that is wick, in a fresh virtual environment, and libraries installed beside it."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile

import pytest

import wick

ROOT = pathlib.Path(__file__).parents[2]
STAND_IN = ROOT / "packaging" / "torch"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Environment:
    """A virtual environment whose pip finds wheels in the folder `wheels` alone."""

    def __init__(self, folder):
        self.python, self.wheels, self.folder = folder / "venv/bin/python", folder / "wheels", folder
        venv.create(folder / "venv", with_pip=False)
        self.wheels.mkdir()
        self.site = pathlib.Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))

    def run(self, *arguments, status=0):
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        how = {"cwd": self.folder, "env": variables, "capture_output": True, "text": True, "timeout": 120}
        done = subprocess.run([self.python, *arguments], **how)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stdout + done.stderr

    def pip(self, *arguments, status=0):
        command = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def install(self, *what, status=0):
        return self.pip("install", "--no-index", "--find-links", self.wheels, *what, status=status)

    def have(self, name, version, *requires):
        """Metadata of a distribution without files."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(metadata(name, version, requires))

    def have_wick(self):
        """wick as it is built here, and as pip would list it."""
        built = pathlib.Path(importlib.util.find_spec("wick").origin).parent.parent
        (self.site / "wick.pth").write_text(f"{built}\n")
        self.have("wick-ml", wick.version.wick)

    def offer(self, name, version, *requires, code=""):
        """Puts a wheel into the folder that pip looks into."""
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(self.wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", code)
            wheel.writestr(f"{info}/METADATA", metadata(name, version, requires))
            wheel.writestr(f"{info}/WHEEL", WHEEL)
            wheel.writestr(
                f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
            )


def metadata(name, version, requires):
    return "\n".join(
        [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    )


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment with the stand-in."""
    made = Environment(tmp_path_factory.mktemp("stand_in"))
    made.have_wick()
    made.install(STAND_IN)
    return made


@pytest.fixture
def bare(tmp_path):
    return Environment(tmp_path)


PRESENCE = """
import importlib.metadata as m, importlib.util as u, sys
assert u.find_spec("torch") is not None and u.find_spec("torch").origin
before = m.version("torch")
assert "torch" in m.packages_distributions()
import torch
from torch import nn
import torch.nn.functional as F
from torch.version import __version__ as version
assert m.version("torch").split("+")[0] == before.split("+")[0] == "2.13.0" == str(torch.__version__) == version
assert torch.__version__ >= (2, 6) and torch.__version__ < "3"
assert u.find_spec("torch").origin and u.find_spec("torch.nn") and u.find_spec("torch.nothing") is None
assert torch.__name__ == "torch" and sys.modules["torch"] is torch and torch.__spec__.name == "torch"
assert torch.nn is sys.modules["wick"].nn and m.metadata("torch")["Name"] == "torch"
print(tuple(nn.Linear(2, 3)(torch.ones(1, 2)).shape))
"""


def test_a_script_with_plain_python(environment, tmp_path):
    (tmp_path / "script.py").write_text(PRESENCE)
    assert environment.run(tmp_path / "script.py") == "(1, 3)\n"
    assert environment.run("-c", PRESENCE) == "(1, 3)\n"


def test_python_m_wick_is_as_present(tmp_path, bare):
    bare.have_wick()
    (bare.folder / "script.py").write_text(PRESENCE)
    assert bare.run("-m", "wick", "script.py") == "(1, 3)\n"
    assert bare.run("-m", "wick", "-c", "import importlib.metadata as m; print(m.version('torch'))") == "2.13.0\n"
    assert (
        bare.run("-c", "import importlib.util as u, wick; print(u.find_spec('torch'), wick.__version__)")
        == "None 2.13.0\n"
    )


def test_a_submodule_first(environment):
    assert environment.run("-c", "import torch.nn.functional as F; print(F.relu.__name__)") == "relu\n"
    assert environment.run("-c", "from torch import nn; import torch; print(torch.nn is nn)") == "True\n"
    assert environment.run("-c", "import wick, torch; print(torch.nn is wick.nn)") == "True\n"
    assert environment.run("-m", "wick", "-c", "import torch; print(torch.__name__)") == "torch\n"


def test_a_module_of_it_as_a_program(environment):
    assert "PyTorch version: 2.13.0 (wick" in environment.run("-m", "torch.utils.collect_env")


def test_spawned_processes(environment, tmp_path):
    (tmp_path / "spawn.py").write_text(
        "import torch, torch.multiprocessing as mp\n"
        "def work(rank): print(rank, torch.__version__, flush=True)\n"
        "if __name__ == '__main__': mp.spawn(work, nprocs=1)\n"
    )
    assert environment.run(tmp_path / "spawn.py") == "0 2.13.0\n"


def test_dependencies_of_libraries_are_met(environment):
    environment.offer("needy", "1.0", "torch==2.13.0", code="import torch\nones = torch.ones(2)\n")
    said = environment.install("needy")
    assert "Requirement already satisfied: torch==2.13.0" in said
    assert environment.run("-c", "import needy; print(needy.ones)") == "tensor([1., 1.])\n"
    assert environment.pip("check").strip().endswith("No broken requirements found.")


def test_it_is_installed_again(environment):
    assert "Successfully installed torch-2.13.0+wick" in environment.install("--force-reinstall", "--no-deps", STAND_IN)


def test_it_is_refused_beside_pytorch(bare):
    bare.have_wick()
    bare.have("torch", "2.13.0+cpu")
    said = bare.install(STAND_IN, status=1)
    assert "PyTorch 2.13.0+cpu is installed in this environment" in said
    assert "python -m wick train.py" in said and "venv" in said and "pip uninstall torch" in said
    assert [d.name for d in bare.site.glob("torch*")] == ["torch-2.13.0+cpu.dist-info"]


def test_without_wick_it_says_what_to_do(bare):
    bare.install("--no-deps", STAND_IN)
    assert "wick is not installed: pip install it" in bare.run("-c", "import torch", status=1)


def test_the_names_and_versions():
    stand_in = tomllib.loads((STAND_IN / "pyproject.toml").read_text())["project"]
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert stand_in["version"] == f"{wick.__version__}+wick" and stand_in["requires-python"] == own["requires-python"]
    assert (own["name"], own["version"]) == ("wick-ml", wick.version.wick) and stand_in["dependencies"] == ["wick-ml"]


def test_the_archive_of_its_sources_builds(environment, bare):
    backend = "import sys; sys.path.insert(0, sys.argv[1]); import backend; print(backend.build_sdist(sys.argv[2]))"
    name = environment.run("-c", backend, STAND_IN, environment.folder).strip()
    bare.install("--no-deps", environment.folder / name)
    assert bare.run("-c", "import importlib.metadata as m; print(m.version('torch'))") == "2.13.0+wick\n"


@pytest.mark.parametrize("stand_in", [False, True])
def test_libraries_come_without_pytorch(bare, stand_in, monkeypatch):
    """packaging/install_libraries.py with libraries that ask for another PyTorch than is matched."""
    bare.have_wick()
    if stand_in:
        bare.install(STAND_IN)
    bare.offer("torchvision", "0.28.0", "torch==9.9.0", "drawing>=2", code="import torch\nones = torch.ones(2)\n")
    bare.offer(
        "timm", "1.0", "torch", "torchvision", "hub[fast]; python_version > '3'", code="import torch, torchvision\n"
    )
    bare.offer("drawing", "2.1", "never; python_version < '3'")
    bare.offer("hub", "0.5", "drawing", "speed; extra == 'fast'", "never; extra == 'slow'")
    bare.offer("speed", "1")
    bare.offer("torch", "9.9.0", code="raise RuntimeError('PyTorch')")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(bare.wheels)}.items():
        monkeypatch.setenv(name, value)
    subprocess.run([bare.python, "-m", "ensurepip"], check=True, capture_output=True)
    bare.run(ROOT / "packaging" / "install_libraries.py", "torchvision==0.28.*", "timm")
    listed = {d["name"] for d in json.loads(bare.pip("list", "--format=json").splitlines()[0])}
    ours = {"wick-ml", "torch"} if stand_in else {"wick-ml"}
    assert listed - {"pip", "setuptools"} == ours | {"torchvision", "timm", "drawing", "hub", "speed"}
    start = [] if stand_in else ["-m", "wick"]
    assert bare.run(*start, "-c", "import timm, torchvision; print(torchvision.ones)") == "tensor([1., 1.])\n"
    bare.run(ROOT / "packaging" / "install_libraries.py", "timm")  # nothing left to do

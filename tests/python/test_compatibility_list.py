"""docs/compatibility.md lists the names that the package has, and the package names nothing that its core has not."""

import ast
import importlib.util
import pathlib
import subprocess
import sys

TOOLS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools"
TOOL = TOOLS / "list_compatibility.py"


def test_the_list_is_current():
    run = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


ASK = """
import importlib, pkgutil, runpy, sys
import wick
tool, order = sys.argv[1:]
if order == "loaded":
    for module in pkgutil.walk_packages(wick.__path__, "wick."):
        if module.name != "wick.libwick":  # the library of C, which is no module
            importlib.import_module(module.name)
names = runpy.run_path(tool)
for module, listed in names["torch_names"]():
    found = names["ours"](module)
    files = {file.name for file in pkgutil.iter_modules(getattr(found, "__path__", ()))}
    for name in sorted(set(listed), key=lambda name: order == "files first" and name not in files):
        if hasattr(found, name):
            print(module, name)
"""


def test_names_are_there_whatever_was_asked_for_before():
    def there(order):
        run = subprocess.run([sys.executable, "-c", ASK, TOOL, order], capture_output=True, text=True, check=True)
        return sorted(run.stdout.splitlines())

    names = there("loaded")
    assert len(names) > 3000 and there("files first") == names and there("sorted") == names


def test_python_names_what_the_core_has():
    built = pathlib.Path(importlib.util.find_spec("wick").origin).parent.parent
    run = subprocess.run([sys.executable, TOOLS / "check_core_names.py", built], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_a_name_that_is_not_there_is_found(tmp_path):
    spec = importlib.util.spec_from_file_location("check_core_names", TOOLS / "check_core_names.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = "from . import _C\nfrom ._C import Tensor, nope\n_C.no()\n"
    assert sorted(tool.named(ast.parse(text))) == [("Tensor", 2), ("no", 3), ("nope", 2)]
    (tmp_path / "file.py").write_text(text)
    tool.ROOT = tool.PACKAGE = tmp_path
    assert [line.split(": ")[1] for line in tool.missing()] == [
        "_C.nope is not there",
        "_C.no is not there",
    ]

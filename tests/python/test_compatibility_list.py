"""docs/compatibility.md lists the names that the package has."""

import pathlib
import subprocess
import sys

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "list_compatibility.py"


def test_the_list_is_current():
    run = subprocess.run([sys.executable, TOOL, "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

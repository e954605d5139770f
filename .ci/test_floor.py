"""The figures of ../shared/checks, beside the checkout, are not below those in .ci/floor. `make floor`, with the release build.

The checks replay what PyTorch was recorded to do; they say what passes, not what must. What passes today passes
tomorrow: a figure that fell is a failure, one that rose is a warning to raise the floor. Where the folder is not there,
nothing is checked.
"""

import csv
import os
import pathlib
import shlex
import subprocess
import sys
import warnings

import pytest

ROOT = pathlib.Path(__file__).absolute().parents[1]
CHECKS = ROOT.parent / "shared" / "checks"
ENGINE = f"{shlex.quote(sys.executable)} -m wick"

pytestmark = pytest.mark.skipif(not CHECKS.is_dir(), reason="there is no ../shared/checks")


def floor():
    """{name: figure} of .ci/floor."""
    lines = (line.split("#")[0].split() for line in (ROOT / ".ci" / "floor").read_text().splitlines())
    return {name: float(figure) for name, figure in filter(None, lines)}


def results_of(check, folder, *options):
    """The rows of what a check's run.py writes."""
    out = folder / f"{check}.csv"
    command = [sys.executable, str(CHECKS / check / "run.py"), "--engine", ENGINE, "--out", str(out), *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["WICK_CACHE_DIR"] = str(folder / "cache")
    done = subprocess.run(
        [*command, "--jobs", str(os.cpu_count() or 1)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with open(out, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check(name, figure):
    least = floor()[name]
    assert figure >= least, f"{name}: {figure:g}, and .ci/floor has {least:g}"
    if figure >= least + 0.1:
        warnings.warn(f"{name}: {figure:g}, and .ci/floor has {least:g}: raise it", stacklevel=2)


def test_operators(tmp_path):
    rows = results_of("operators", tmp_path)
    passed, failed = (sum(int(row[key]) for row in rows) for key in ("passed", "failed"))
    check("operators", 100 * passed / (passed + failed))


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    return results_of("modules", tmp_path_factory.mktemp("modules"), "--sample", str(CHECKS / "modules" / "sample.csv"))


def test_modules_run(modules):
    check("modules_run", sum(row["eager"].startswith("ok") for row in modules))


def test_modules_compile(modules):
    check("modules_compiled", sum(row["compile"].startswith("ok") for row in modules))

"""A few random calls of every operator, with PyTorch and with wick: see random_calls.py. `make parity-full` makes more."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
SCRIPT = pathlib.Path(__file__).with_name("random_calls.py")


@pytest.mark.parametrize("seed", [7, 20261123])
def test_random_calls_are_equal(seed, tmp_path):
    report = tmp_path / "found.txt"
    command = [sys.executable, SCRIPT, "--count", "8", "--jobs", "2", "--seed", str(seed), "--report", str(report)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{report.read_text() if report.exists() else ''}"
    assert " 0 differences" in done.stdout

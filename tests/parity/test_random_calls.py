"""A few random calls of every operator give what PyTorch gives; `make parity-full` tries many. See random_calls.py."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")


def test_random_calls():
    script = pathlib.Path(__file__).with_name("random_calls.py")
    command = [sys.executable, str(script), "--count", "8", "--seed", "20261123", "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

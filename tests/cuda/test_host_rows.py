"""Which rows of the operator table are computed on the host: those that docs/cuda.md lists, and no others. All rows'
samples run, with their gradients, in a process that logs; none may fail that does not on the CPU, and results are on the
device."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent

SWEEP = """
import sys
sys.path[:0] = sys.argv[1:]
import wick
from sampling import ROWS, SAMPLES
from test_device_rows import gradients, has_gradient, on, places

def outcome(function, device):
    try:
        return places([function(device)])
    except Exception as error:
        return error

for name, sample in SAMPLES:
    runs = [lambda device, d=d: on(device, name, sample, d)[0] for d in (wick.float32, wick.int64, wick.bfloat16)]
    if has_gradient(name):
        runs.append(lambda device: gradients(device, name, sample))
    for run in runs:
        wanted = outcome(run, "cpu")
        if isinstance(wanted, Exception):
            continue
        found = outcome(run, "cuda")
        if isinstance(found, Exception) or ("device" not in sample and not found <= {"cuda"}):
            print(name, sample, repr(found))
"""


def listed():
    """The names of docs/cuda.md, section "Computed on the host"."""
    text = (ROOT / "docs" / "cuda.md").read_text()
    section = text.split("## Computed on the host")[1].split("\n## ")[0]
    return set(re.findall(r"`([\w.]+)`", section.split("\n\n", 2)[2]))


def test_rows_of_the_host():
    environment = os.environ | {"WICK_LOGS": "ops", "WICK_CUBLASLT": "", "WICK_CUDA_TIER": "0"}
    paths = [str(ROOT / "tests" / "ops"), str(ROOT / "tests" / "device")]
    done = subprocess.run(
        [sys.executable, "-c", SWEEP, *paths], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == ""
    found = set(re.findall(r"\[wick:ops\] (\S+) is computed on the host for cuda", done.stderr))
    assert sorted(found) == sorted(listed())

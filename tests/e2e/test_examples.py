"""The examples that train nothing, run by `python -m wick`: what they print, beside what PyTorch 2.13 prints for the same
seed. Angles near zero are arc cosines of numbers near one, so that only their size is known."""

import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples"
PRINTED = {  # numbers, and how far they may be off
    "kmeans": ([0.5000, 0.0511], [1e-4, 1e-4]),
    "pca": ([0.9692, 0.960, 0.0], [1e-4, 0.01, 0.1]),
    "fft_filter": ([-3.00, 8.31, 440.0], [0.01, 0.01, 0.1]),
    "per_sample_gradients": ([23.6363, 30.8701, 0.0], [2e-4, 2e-4, 1e-5]),
}


@pytest.mark.parametrize("name", PRINTED)
def test_prints_what_pytorch_prints(name):
    command = [sys.executable, "-m", "wick", str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    line = done.stdout.splitlines()[0]
    found = [float(number) for number in re.findall(r"(?<![a-z_])-?\d+\.\d+(?:e-?\d+)?", line)]
    wanted, limits = PRINTED[name]
    assert len(found) == len(wanted), line
    for a, b, limit in zip(found, wanted, limits, strict=True):
        assert abs(a - b) <= limit * 1.01, line

"""Other shapes of kernels than the usual one, which max-autotune times: each gives the same bits; the fastest is found once."""

import os
import subprocess
import sys

import pytest
from test_ptx import PROGRAM

ELEMENTS = """
for dtype in (torch.float32, torch.float16, torch.float64):
    x = torch.randn(9, 64).to(dtype)
    check(f"pointwise {dtype}", lambda x, y: (x + y, x.exp(), x * 3), x, x.flip(1).contiguous())
    check(f"pieces {dtype}", lambda x: x + 1, torch.randn(9, 63).to(dtype))
    check(f"two dtypes {dtype}", lambda x, y: (x + y, y.bool()), x, x.float().roll(3))
    check(f"tiles {dtype}", lambda x, y: x + y.t(), x, torch.randn(64, 9).to(dtype))
    check(f"larger tiles {dtype}", lambda x, y: x * y.t(), torch.randn(65, 40).to(dtype), torch.randn(40, 65).to(dtype))
    check(f"gather {dtype}", lambda x, i: (x.gather(1, i), x[i[:, 0]]), x, torch.randint(0, 9, (9, 64)))
"""

ROWS = """
for n in (3, 16, 17, 32, 40, 64, 100, 256, 1000, 1024, 4096):
    rows(f"{n}", torch.randn(5, n))
rows("16 bits", torch.randn(3, 2048).bfloat16())
for n in (1, 2, 4, 8, 40, 1000, 4096):
    check(f"cumsum {n}", lambda x: x.cumsum(1), torch.randn(40, n))
    check(f"cumprod {n}", lambda x: x.cumprod(1), torch.rand(40, n) + 0.5)
"""

# More rows than the emulated device has multiprocessors, so that they are not taken in parts.
LONG = """
for n in (4100, 8192, 20_000):
    x = torch.randn(6, n)
    check(f"softmax {n}", lambda x: x.softmax(-1), x)
    check(f"sum {n}", lambda x: (x.sum(-1), x.argmax(-1)), x)
check("layer_norm 8192", lambda x: F.layer_norm(x, (8192,)), torch.randn(6, 8192).bfloat16())
"""

# Few rows of many chunks; rows that lie side by side, whole and in parts.
CHUNKS = """
x = torch.randn(2, 70_000)
check("softmax in parts", lambda x: x.softmax(-1), x)
check("sums in parts", lambda x: (x.sum(-1), x.argmax(-1)), x)
for n, rows in ((40, 200), (4100, 40), (9000, 3)):
    x = torch.randn(n, rows)
    check(f"columns {n}", lambda x: (x.sum(0), x.argmax(0), x.std(0)), x)
    check(f"columns of softmax {n}", lambda x: x.softmax(0), x)
    check(f"columns of two loops {n}", lambda x: x.sum((0, 1)), x.reshape(n // 4, 4, rows))
check("columns of 16 bits", lambda x: x.sum(0), torch.randn(3000, 64).bfloat16())
"""


def run(program, **variables):
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("shape", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("calls", [ELEMENTS, ROWS, LONG, CHUNKS], ids=["elements", "rows", "long", "chunks"])
def test_each_shape_gives_the_same_bits(calls, shape):
    done = run(PROGRAM % calls, WICK_CUDA_TIER="1", WICK_CUDA_SHAPE=str(shape))
    assert done.stdout.strip() == "wrong: []", done.stdout[-2000:] + done.stderr[-2000:]


def kernels_of(calls, shape):
    done = run(PROGRAM % calls, WICK_CUDA_TIER="1", WICK_CUDA_SHAPE=shape, WICK_LOGS="kernel")
    return {text.split(".reqntid")[0] for text in done.stderr.split(".version")}


@pytest.mark.parametrize("calls", [ELEMENTS, CHUNKS], ids=["elements", "chunks"])
def test_other_shapes_are_other_kernels(calls):
    usual = kernels_of(calls, "0")
    assert len(usual) > 10 and len(kernels_of(calls, "1") - usual) > 5


TUNED = """
import sys
import wick as torch
def f(x, y):
    return (x + y).softmax(1), x.neg_()
def tensors():
    torch.manual_seed(0)
    return torch.randn(512, 512).cuda(), torch.randn(512, 512).cuda()
wanted = f(*tensors())
g = torch.compile(f, mode="max-autotune")
for i in range(3):
    print(f"call {i}", file=sys.stderr)
    x, y = tensors()
    found = g(x, y)
    assert torch.equal(found[0], wanted[0]) and torch.equal(found[1], wanted[1]) and torch.equal(x, wanted[1])
print("right")
"""


def calls_of(cache):
    """What was compiled, by call."""
    done = run(TUNED, WICK_LOGS="kernel", WICK_CACHE_DIR=str(cache), WICK_CUDA_TIER="1")
    assert done.stdout.strip() == "right", done.stderr[-2000:]
    return [part.count(".entry") for part in done.stderr.split("call ")[1:]]


def test_max_autotune_finds_a_shape_once_and_remembers_it(tmp_path):
    counts = calls_of(tmp_path)
    assert max(counts) >= 5 and counts[-1] == 0
    assert sum(calls_of(tmp_path)) <= sum(counts) - 3

"""Products whose kernel does the nest behind them as well: the bits of two kernels, whatever the nest reads and stores."""

import os
import subprocess
import sys

import pytest

import wick as torch

F = torch.nn.functional


def random(*sizes, dtype=torch.bfloat16):
    return torch.randn(*sizes).to(dtype).cuda()


def gives_the_same(f, *args):
    expected = f(*args)
    expected = expected if isinstance(expected, tuple) else (expected,)
    compiled = torch.compile(f)
    for _ in range(3):
        found = compiled(*args)
        found = found if isinstance(found, tuple) else (found,)
        for x, y in zip(expected, found, strict=True):
            assert torch.equal(x, y) and x.stride() == y.stride() and x.dtype == y.dtype


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", "wgmma")
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


# A build that is no debug build takes results of 16 MiB and more.
ROWS = 136 if os.environ.get("WICK_LIBCUDA") else 40960
SIZES = [(ROWS, 264, 72), (8, 16, 8), (200, 128, 200), (128, 136, 64)]


@pytest.mark.parametrize("how", ["mma", "wgmma"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_a_layer_and_its_activation(how, dtype, m, n, k, monkeypatch):
    monkeypatch.setenv("WICK_CUDA_PRODUCTS", how)
    x, w, b = random(m, k, dtype=dtype), random(n, k, dtype=dtype), random(n, dtype=dtype)
    gives_the_same(lambda x, w, b: F.gelu(F.linear(x, w, b)), x, w, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_the_products_own_result_is_wanted_too(m, n, k, dtype):
    def f(x, w, b):
        y = F.linear(x, w, b)
        return F.gelu(y, approximate="tanh"), y

    gives_the_same(f, *(random(*size, dtype=dtype) for size in ((m, k), (n, k), (n,))))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("m, n, k", SIZES)
def test_what_else_is_read_and_stored(m, n, k, dtype):
    x, w, mask = random(m, k, dtype=dtype), random(n, k, dtype=dtype).t(), random(m, n) > 0
    if dtype != torch.float32:  # of which sm_90's products take what lies along k alone
        w = w.contiguous()
    other, wide, column = random(m, n, dtype=dtype), random(m, n).float(), random(m, 1)
    gives_the_same(lambda x, w, other: (x @ w + other).relu(), x, w, other)
    gives_the_same(lambda x, w, mask: torch.where(mask, x @ w, 0.5), x, w, mask)
    gives_the_same(lambda x, w, column: (x @ w) * column + 1, x, w, column)

    def several(x, w, wide, other):
        y = x @ w
        return y + 1, y.float() * wide, (y > 0) & (other > 0)

    gives_the_same(several, x, w, wide, other)
    gives_the_same(lambda x, w, other: x @ w + other, x, w, random(n, m).t())
    gives_the_same(lambda x, w, other: x @ w + other, x, w, random(m, n + 3)[:, 3:])


def test_gradients_of_a_block():
    block = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
    block = block.to(torch.bfloat16).cuda()
    x = random(16, 8, 64).requires_grad_()

    def step():
        for p in [x, *block.parameters()]:
            p.grad = None
        return run(x).square().sum()

    run = block
    step().backward()
    expected = [p.grad for p in [x, *block.parameters()]]
    run = torch.compile(block)
    for _ in range(3):
        step().backward()
        for p, grad in zip([x, *block.parameters()], expected, strict=True):
            assert torch.equal(p.grad, grad)


PROGRAM = f"""
import sys
import wick as torch

torch.backends.cuda.matmul.allow_tf32 = True
x, w, b = (torch.ones(*size).to(getattr(torch, sys.argv[1])).cuda() for size in (({ROWS}, 64), (256, 64), (256,)))
f = torch.compile(lambda x, w, b: torch.nn.functional.linear(x, w, b).relu())
for _ in range(4):  # the first call is captured as it runs, and so are steps of a CUDA graph
    assert (f(x, w, b) == 65).all()
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("how, is_one", [("wgmma", True), ("mma", True), ("apart", False), ("exact", False)])
def test_it_is_one_kernel_and_can_be_two(how, is_one, dtype):
    env = {**os.environ, "WICK_CUDA_TIER": "1", "WICK_LOGS": "kernel_times", "WICK_CUDA_PRODUCTS": how}
    done = subprocess.run([sys.executable, "-c", PROGRAM, dtype], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert ("behind a product" in done.stderr) == is_one

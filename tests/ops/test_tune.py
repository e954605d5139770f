"""mode="max-autotune": a graph is compiled in several ways and the fastest stays. The program notices only the time."""

import os
import subprocess
import sys

import pytest

import wick
import wick.nn.functional as F  # noqa: N812


def cell(h, weight, bias):
    for _ in range(5):
        h = F.linear(h, weight, bias).tanh()
    return h, (h @ weight + bias).relu().sum()


def tuned(function, *make):
    """What it gives plainly and tuned, from the same random state, and the states afterwards. The first call of a graph is
    run as it is captured, the second by what was tuned."""
    results = []
    compiled = wick.compile(function, mode="max-autotune")
    compiled(*[m() for m in make])
    for f in (function, compiled):
        wick.manual_seed(3)
        args = [m() for m in make]
        results.append((f(*args), args, wick.get_rng_state()))
    return results


def test_all_ways_give_the_same_bits():
    (plain, _, _), (compiled, _, _) = tuned(
        cell, lambda: wick.randn(4, 20), lambda: wick.randn(20, 20), lambda: wick.randn(20)
    )
    for a, b in zip(plain, compiled, strict=True):
        assert wick.equal(a, b)


def test_training_is_tuned_half_by_half():
    def loss(x, w):
        return F.cross_entropy(F.linear(x, w).tanh(), wick.arange(4))

    x = wick.randn(4, 6)
    plain, compiled = wick.randn(5, 6, requires_grad=True), None
    compiled = plain.detach().clone().requires_grad_()
    loss(x, plain).backward()
    tuned_loss = wick.compile(loss, mode="max-autotune")
    tuned_loss(x, compiled).backward()
    compiled.grad = None
    tuned_loss(x, compiled).backward()
    assert wick.equal(plain.grad, compiled.grad)


def test_neither_random_numbers_nor_inputs_are_used_up():
    def function(x, y):
        x.add_(1)
        return F.dropout(x * y, 0.5)

    (plain, before, state), (compiled, after, tuned_state) = tuned(
        function, lambda: wick.rand(300), lambda: wick.rand(300)
    )
    assert wick.equal(plain, compiled) and wick.equal(state, tuned_state)
    for a, b in zip(before, after, strict=True):
        assert wick.equal(a, b)


def test_what_cannot_be_run_on_made_up_inputs_is_compiled_as_usual():
    def function(x, y):
        return x // y + 1

    x, y = wick.tensor([7, -7]), wick.tensor([2, 2])
    compiled = wick.compile(function, options={"max_autotune": True})
    assert compiled(x, y).tolist() == [4, -3]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, y * 0)


def test_products_of_a_library_are_as_good():
    """Where oneDNN is installed and faster its products are taken, by the compiled function alone."""
    wick.manual_seed(0)
    h, weight, bias = wick.randn(200, 220), wick.randn(220, 220) / 15, wick.randn(220)
    tuned_cell = wick.compile(cell, mode="max-autotune")
    tuned_cell(h, weight, bias)
    plain, compiled = cell(h, weight, bias), tuned_cell(h, weight, bias)
    exact = cell(h.double(), weight.double(), bias.double())
    for a, b, c in zip(plain, compiled, exact, strict=True):
        assert (b - c).square().mean() <= 2 * (a - c).square().mean()
        assert (b - c).abs().max() <= 1e-5 * c.abs().max()
    assert all(wick.equal(a, b) for a, b in zip(plain, cell(h, weight, bias), strict=True))


@pytest.mark.parametrize("backends", ["CPP", "aten", "ATEN, CPP"])
def test_whose_products_are_timed(backends):
    options = {"max_autotune": True, "max_autotune_gemm_backends": backends}
    x = wick.ones(3, 3)
    compiled = wick.compile(lambda a: a @ a, options=options)
    compiled(x)
    assert wick.equal(compiled(x), x * 3)


@pytest.mark.parametrize("name,value,text", [("max_autotune", 1, "got int should be bool"),
                                             ("max_autotune_gemm_backends", 3, "got int should be str")])  # fmt: skip
def test_options_of_another_type(name, value, text):
    with pytest.raises(RuntimeError, match=f"^Unexpected type of attr {name}, {text}$"):
        wick.compile(lambda x: x, options={name: value})


PROGRAM = """
import wick
from test_tune import cell
wick.manual_seed(0)
h, weight, bias = wick.randn(100, 120), wick.randn(120, 120), wick.randn(120)  # products that are worth timing
plain = cell(h, weight, bias)
own = {"max_autotune": True, "max_autotune_gemm_backends": "CPP"}
compiled = wick.compile(cell, options=own)
compiled(h, weight, bias)
tuned = compiled(h, weight, bias)
assert all(wick.equal(a, b) for a, b in zip(plain, tuned, strict=True))
"""


def test_the_next_process_compiles_once(tmp_path):
    counts = []
    for name in ("first", "second", "without a cache"):
        stages = tmp_path / name
        cache = tmp_path / "cache" if name != "without a cache" else ""
        env = {**os.environ, "WICK_DEBUG_DIR": str(stages), "WICK_CACHE_DIR": str(cache)}
        folder = os.path.dirname(__file__)
        run = subprocess.run([sys.executable, "-c", PROGRAM], env=env, cwd=folder, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        counts.append(len(list(stages.glob("graph_*.0.captured.txt"))))
    assert counts[0] > 4 and counts[1] == 1 and counts[2] == counts[0]

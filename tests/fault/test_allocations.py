"""Every allocation of a training step fails once: an error comes out, nothing crashes, nothing leaks, and the next step works.
Needs a debug build, which `make test` makes."""

import gc
import time

import pytest

import wick
from wick import _C

pytestmark = pytest.mark.skipif(not hasattr(_C, "_fault_arm"), reason="faults are there in debug builds only")


def program():
    """A model with its optimizer, and one step of it."""
    wick.manual_seed(0)
    model = wick.nn.Sequential(wick.nn.Linear(4, 8), wick.nn.LayerNorm(8), wick.nn.GELU(), wick.nn.Linear(8, 3))
    optimizer = wick.optim.AdamW(model.parameters(), lr=0.01)
    x, y = wick.randn(5, 4), wick.randint(3, (5,))

    def step():
        loss = wick.nn.functional.cross_entropy(model(x[1:]), y[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def fails_at(step, n):
    """Runs the step with its n-th allocation failing; False when it had fewer."""
    _C._fault_arm(n)
    try:
        step()
    except (RuntimeError, MemoryError):
        return True
    finally:
        _C._fault_arm(0)
    return False


def test_every_allocation_of_a_step_may_fail():
    step = program()
    step()  # plans and optimizer state are made
    gc.collect()
    n, failures = 1, 0
    while n < 5000:
        if fails_at(step, n):
            failures += 1
        elif n > 50 and not any(fails_at(step, m) for m in range(n + 1, n + 20)):
            break
        n += 1
    assert failures > 20
    first, second = step(), step()
    assert second < first  # it still trains


def test_every_allocation_of_a_score_body_may_fail():
    from wick.nn.attention.flex_attention import flex_attention

    q = wick.randn(1, 2, 70, 4, requires_grad=True)
    bias = wick.randn(2, 140, requires_grad=True)

    def step():
        result = flex_attention(q, q, q, lambda s, b, h, i, j: wick.tanh(s) + bias[h, j - i + 70])
        return wick.autograd.grad(result.sum(), (q, bias))

    expected, n = step(), 1
    gc.collect()
    while any(fails_at(step, m) for m in range(n, n + 20)):
        n += 20
    assert n > 100 and all(wick.equal(a, b) for a, b in zip(step(), expected, strict=True))


def settle():
    """Waits until what earlier tests left to background compilers is done with."""
    wick.compiler.reset()
    gc.collect()
    seen, last = _C._live_allocations(), None
    while seen != last:
        time.sleep(0.1)
        seen, last = _C._live_allocations(), seen


def test_nothing_stays_behind():
    settle()
    step = program()
    step()
    for n in (3, 10, 30, 60):
        fails_at(step, n)
    step()
    gc.collect()
    before = _C._live_allocations()
    for n in (3, 10, 30, 60):
        fails_at(step, n)
    step()
    gc.collect()
    assert _C._live_allocations() == before


def test_no_memory_for_a_coordinate_is_no_internal_error():
    """A body is recorded once a kind of call: each of these is another kind."""
    kinds = [(k, dims) for k in range(2, 6) for dims in ((0, 1), (1,), (0,))]
    n, messages = 1, set()
    for dtype in (wick.float32, wick.float64, wick.int64, wick.uint8):
        for rank, dims in kinds:
            x, n = wick.ones([2] * rank, dtype=dtype), n + 1
            _C._fault_arm(n)
            try:
                wick.flip(x, dims)
            except (RuntimeError, MemoryError) as error:
                messages.add(str(error).split(":")[0])
            finally:
                _C._fault_arm(0)
    assert messages == {"out of memory"}

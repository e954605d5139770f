"""Functions under torch.utils.checkpoint run twice plainly: what they do beside computing is done twice in captured code."""

import contextlib
import io
import itertools
import random

import pytest

import wick as torch
import wick.nn as nn
import wick.nn.functional as F
from wick.utils.checkpoint import checkpoint

log = []


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.count, self.numbers = 0, iter(range(1000))

    def compute(self, x):
        return self.second(self.first(x).sin()).cos()


class Counts(Block):
    def forward(self, x):
        self.count += 1
        return self.compute(x)


class CountsBehindDropout(Block):
    def forward(self, x):
        x = F.dropout(x, 0.3)
        self.count += 1
        return self.compute(x)


class CountsAtItsEnd(Block):
    """Where the second run has stopped already."""

    def forward(self, x):
        x = self.compute(x)
        self.count += 1
        return x


class WritesStatistics(Block):
    def forward(self, x):
        return self.compute(self.norm(x))


class Prints(Block):
    def forward(self, x):
        print("here")
        return self.compute(x)


class LooksAtValues(Block):
    def forward(self, x):
        return self.compute(x * x.sum().item())


class Draws(Block):
    def forward(self, x):
        return self.compute(x * random.random())


class Takes(Block):
    def forward(self, x):
        return self.compute(x * next(self.numbers))


class HandlesErrors(Block):
    def forward(self, x):
        try:
            log.append("try")
        except RuntimeError:
            log.append("error")
        finally:
            log.append("finally")
        return self.compute(x)


class Raises(Block):
    def forward(self, x):
        self.compute(x)
        log.append("raises")
        raise ValueError("from inside")


class Hooked(Block):
    def __init__(self):
        super().__init__()
        self.first.register_forward_hook(lambda *_: log.append("hook"))

    def forward(self, x):
        return self.compute(x)


class Nested(Counts):
    def forward(self, x):
        return checkpoint(super().forward, self.first(x), use_reentrant=False) * self.compute(x)


EFFECTS = (
    Counts, CountsBehindDropout, CountsAtItsEnd, WritesStatistics, Prints, LooksAtValues, Draws, Takes, HandlesErrors,
    Raises, Hooked, Nested,
)  # fmt: skip


def trained(block, inside, compiled, fills_own_list=False):
    torch.manual_seed(3)
    random.seed(4)
    log.clear()
    block = block()

    def step(x):
        own = []
        function = (lambda x: (own.append(1), block(x))[1]) if fills_own_list else block
        try:
            y = checkpoint(function, x, use_reentrant=False) * 2
        except ValueError as error:
            return str(error), own
        if inside:
            y.sum().backward()
        return y, own

    step, out, printed = torch.compile(step) if compiled else step, [], io.StringIO()
    with contextlib.redirect_stdout(printed):
        for _ in range(4):
            y, own = step(torch.randn(3, 4))
            if not inside and not isinstance(y, str):
                y.sum().backward()
            grads = [None if p.grad is None else p.grad.tolist() for p in block.parameters()]
            result = y if isinstance(y, str) else y.tolist()
            out.append((result, len(own), block.count, len(log), grads, [b.tolist() for b in block.buffers()]))
    return out, printed.getvalue(), random.random(), torch.rand(3).tolist(), log[:]


@pytest.mark.parametrize("block", EFFECTS)
@pytest.mark.parametrize("inside", (True, False))
def test_effects_are_done_twice(block, inside):
    assert trained(block, inside, True) == trained(block, inside, False)


@pytest.mark.parametrize("inside", (True, False))
def test_an_object_of_the_region_is_changed_twice(inside):
    captured = trained(Counts, inside, True, fills_own_list=True)
    assert captured == trained(Counts, inside, False, fills_own_list=True)
    assert captured[0][-1][1] == 2


def test_random_numbers_of_what_is_undone_are_not_drawn():
    for inside in (True, False):
        plain, captured = (trained(CountsBehindDropout, inside, compiled) for compiled in (False, True))
        assert plain == captured


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


def test_what_only_computes_is_one_graph():
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)

    def block(x):
        return Doubled.apply(F.dropout(second(F.dropout(first(x), 0.3)).sin(), 0.2), 2.0)

    def step(x):
        return checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=False).sum()

    out = []
    for function in (step, torch.compile(step, fullgraph=True)):
        torch.manual_seed(1)
        for _, p in itertools.product(range(3), (first, second)):
            p.zero_grad()
        for _ in range(3):
            loss = function(torch.ones(3, 4))
            loss.backward()
            out.append((loss.item(), first.weight.grad.tolist(), second.bias.grad.tolist()))
    assert out[:3] == out[3:]
    report = torch._dynamo.explain(step)(torch.ones(3, 4))
    assert report.graph_count == 1 and report.graph_break_count == 0

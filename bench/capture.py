"""Capture alone, without the time of kernels: what a captured call costs, what capturing costs, what guards cost.

    make bench      or    .venv/bin/python -m wick.bench bench/capture.py:captured_call --engines wick torch --no-cold

Each function returns what `python -m wick.bench` times, or a Work that measures itself. `torch` is wick or PyTorch.
"""

import statistics
import time

import torch
from wick_bench.cases import Work, find


def captured_call():
    """a captured function of two operators whose backend gives a result at once"""
    x, y = torch.randn(8), torch.randn(8)
    answer = (torch.zeros(8),)

    def backend(graph_module, example_inputs):
        return lambda *inputs: answer

    function = torch.compile(lambda a, b: torch.relu(a) + b, backend=backend)
    return lambda: function(x, y)


def eager_call():
    """the same two operators, not captured: for scale"""
    x, y = torch.randn(8), torch.randn(8)
    return lambda: torch.relu(x) + y


def plain_between():
    """plain functions right after captured calls, over the same after calls of nothing"""
    function = torch.compile(lambda a: a + 1)
    x = torch.randn(8)
    function(x), function(x)

    def fibonacci(n):
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    def after(call):
        call()
        begin = time.perf_counter()
        fibonacci(15)
        return time.perf_counter() - begin

    def ratio():
        pairs = [(after(lambda: function(x)), after(lambda: None)) for _ in range(500)]
        return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)

    return Work(None, measure=ratio)


def capture_chargpt(tiny=0):
    """capturing the char-GPT's training step: the first captured call less an eager one; at least what eager calls differ by"""
    step = find("chargpt_step", bool(tiny)).prepare(torch).call
    step()  # the optimizer has its state

    def seconds_of(call):
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin

    def capture_seconds():
        eager = sorted(seconds_of(step) for _ in range(5))
        return max(seconds_of(torch.compile(step, backend="aot_eager")) - eager[2], eager[3] - eager[1])

    return Work(None, measure=capture_seconds)


def guards_of_500_modules():
    """a captured call of a model of 500 modules that do nothing: its guards, and little else"""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Identity() for _ in range(500))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    model = torch.compile(Model(), backend="eager")
    x = torch.randn(4)

    def call():
        with torch.no_grad():
            model(x)

    return call

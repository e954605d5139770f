"""Capture against PyTorch's: what a captured call costs, what capturing costs, what guards cost.

    .venv/bin/python bench/capture.py [--json out.json]          (make bench runs it too)

Each measurement runs in a process of its own under each engine; ratios are wick's time over PyTorch's. Without PyTorch
wick's times are printed alone.
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).parent


def median_time(call, rounds=7, count=2000):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - begin) / count)
    return statistics.median(times)


# ---- measurements; `torch` is wick or PyTorch ----


def captured_call(torch):
    """A captured function of two operators whose backend gives a result at once."""
    x, y = torch.randn(8), torch.randn(8)
    answer = (torch.zeros(8),)

    def backend(graph_module, example_inputs):
        return lambda *inputs: answer

    function = torch.compile(lambda a, b: torch.relu(a) + b, backend=backend)
    for _ in range(3):
        function(x, y)
    return median_time(lambda: function(x, y))


def eager_call(torch):
    """The same two operators, not captured: for scale."""
    x, y = torch.randn(8), torch.randn(8)
    return median_time(lambda: torch.relu(x) + y)


def plain_between(torch):
    """Plain functions right after captured calls, over the same after calls of nothing: 1 when capture is not in the way."""
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

    pairs = [(after(lambda: function(x)), after(lambda: None)) for _ in range(500)]
    return statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)


def chargpt_step(torch):
    sys.path.insert(0, str(FOLDER.parent / "examples"))
    import train_chargpt

    model = train_chargpt.CharGPT(96, 128, 192, 6, 6, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step(x, y):
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    x, y = torch.randint(96, (8, 128)), torch.randint(96, (8, 128))
    return step, x, y


def capture_chargpt(torch):
    """Capturing the char-GPT's training step, cold: the first captured call less an eager one."""
    step, x, y = chargpt_step(torch)
    step(x, y)  # the optimizer has its state
    begin = time.perf_counter()
    step(x, y)
    eager = time.perf_counter() - begin
    compiled = torch.compile(step, backend="aot_eager")
    begin = time.perf_counter()
    compiled(x, y)
    return max(time.perf_counter() - begin - eager, 1e-6)


def guards_of_500_modules(torch):
    """A captured call of a model of 500 modules that do nothing: its guards, and little else."""
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
    with torch.no_grad():
        model(x), model(x)
        return median_time(lambda: model(x), count=200)


CASES = {
    "call of a captured two-op function, backend at once": (captured_call, 0.1),
    "the two operators, eager": (eager_call, None),
    "plain Python between captured calls, over plain alone": (plain_between, None),
    "capture of char-GPT's training step": (capture_chargpt, 0.05),
    "captured call of 500 idle modules": (guards_of_500_modules, None),
}


def measure(engine, name):
    prefix = ["-m", "wick"] if engine == "wick" else []
    command = [sys.executable, *prefix, __file__, "--measure", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return float(done.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", help="one case in this process, for the other form of the command")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.measure:
        import torch

        print(CASES[options.measure][0](torch))
        return
    engines = ["wick", "torch"] if importlib.util.find_spec("torch") else ["wick"]
    results = {}
    print(f"{'':54} {'wick':>10} {'PyTorch':>10} {'ratio':>7} {'bar':>5}   (us)")
    for name, (_, bar) in CASES.items():
        times = {engine: measure(engine, name) for engine in engines}
        wick, peer = times["wick"], times.get("torch")
        ratio = wick / peer if wick and peer else None
        results[name] = {"times": times, "ratio": ratio, "bar": bar}
        unit = 1 if "over" in name else 1e6
        shown = [f"{t * unit:10.2f}" if t else " " * 10 for t in (wick, peer)]
        verdict = "" if bar is None or ratio is None else "ok" if ratio <= bar else "missed"
        print(f"{name:54} {shown[0]} {shown[1]} {ratio or 0:7.4f} {bar or '':>5} {verdict}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

"""Gradients of each example by vmap(grad), against PyTorch's: python bench/transforms.py [--threads 1] [--rounds 15]

Each library runs in processes of its own, in turns; the best of all rounds is compared. Prints a line a model.
"""

import argparse
import importlib
import subprocess
import sys
import time

MODELS = ("mlp", "cnn")


def make(torch, name):
    nn = torch.nn
    if name == "mlp":
        model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        return model, torch.randn(128, 64)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 10),
    )  # fmt: skip
    return model, torch.randn(64, 1, 28, 28)


def measure(library, name, threads, rounds):
    torch = importlib.import_module(library)
    func = importlib.import_module(f"{library}.func")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, x = make(torch, name)
    y = torch.randint(10, (len(x),))
    parameters = {key: p.detach() for key, p in model.named_parameters()}

    def loss(parameters, x, y):
        logits = func.functional_call(model, parameters, (x.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(logits, y.unsqueeze(0))

    gradients = func.vmap(func.grad(loss), (None, 0, 0))
    best = float("inf")
    for _ in range(rounds + 2):
        start = time.perf_counter()
        gradients(parameters, x, y)
        best = min(best, time.perf_counter() - start)
    return best


def in_process(library, name, options):
    command = [sys.executable, __file__, "--run", library, name, str(options.threads), str(options.rounds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main():
    if sys.argv[1:2] == ["--run"]:
        library, name, threads, rounds = sys.argv[2:]
        print(measure(library, name, int(threads), int(rounds)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    for name in MODELS:
        best = {}
        for _ in range(3):
            for library in "wick", "torch":
                best[library] = min(best.get(library, 1e9), in_process(library, name, options))
        print(
            f"{name}: wick {best['wick'] * 1e3:.2f} ms, PyTorch {best['torch'] * 1e3:.2f} ms, ratio {best['wick'] / best['torch']:.2f}"
        )


main()

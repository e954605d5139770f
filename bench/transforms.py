"""Gradients of each example by vmap(grad), Fourier transforms and linear algebra, against PyTorch's:

    python bench/transforms.py [--threads 1] [--rounds 15] [--pairs 5] [--torch PYTHON_WITH_TORCH] [--only mlp fft_1m]

Each library runs in processes of its own, in turns. Of each process the median of its rounds counts; printed are the
medians of these and the median of the pairs' ratios, with the smallest and the largest.
"""

import argparse
import importlib
import statistics
import subprocess
import sys
import time

SIGNALS = {  # sizes of complex64 that are transformed along the last dim
    "fft_1m": (2**20,),
    "fft_1024x1024": (1024, 1024),
    "fft_prime_1009x64": (64, 1009),
    "fft_prime_10007": (10007,),
    "fft_prime_1000003": (1000003,),
}
MATRICES = {"512": (512, 512), "64x8": (64, 8, 8)}
FUNCTIONS = ("svd", "eigh", "qr", "solve", "cholesky", "inv", "det")
FACTORISATIONS = {
    f"{function}_{size}_{bits}": (function, size, bits)
    for size in MATRICES
    for bits in ("f32", "f64")
    for function in FUNCTIONS
}
CASES = ("mlp", "cnn", *SIGNALS, *FACTORISATIONS)


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


def make_factorisation(torch, function, size, bits):
    x = torch.randn(MATRICES[size], dtype=torch.float64 if bits == "f64" else torch.float32)
    n = x.shape[-1]
    if function in ("eigh", "cholesky"):
        x = x @ x.mT / n + torch.eye(n, dtype=x.dtype)
    run = getattr(torch.linalg, function)
    if function == "solve":
        right = torch.randn_like(x)
        return lambda: run(x, right)
    return lambda: run(x)


def make_call(torch, library, name):
    """What is timed, without arguments."""
    if name in FACTORISATIONS:
        return make_factorisation(torch, *FACTORISATIONS[name])
    if name in SIGNALS:
        signal = torch.complex(torch.randn(SIGNALS[name]), torch.randn(SIGNALS[name]))
        return lambda: torch.fft.fft(signal)
    func = importlib.import_module(f"{library}.func")
    model, x = make(torch, name)
    y = torch.randint(10, (len(x),))
    parameters = {key: p.detach() for key, p in model.named_parameters()}

    def loss(parameters, x, y):
        logits = func.functional_call(model, parameters, (x.unsqueeze(0),))
        return torch.nn.functional.cross_entropy(logits, y.unsqueeze(0))

    gradients = func.vmap(func.grad(loss), (None, 0, 0))
    return lambda: gradients(parameters, x, y)


def measure(library, name, threads, rounds):
    """The median time of a call, after two that are not counted."""
    torch = importlib.import_module(library)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    call, times = make_call(torch, library, name), []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def in_process(library, name, options):
    python = options.torch if library == "torch" else sys.executable
    command = [python, __file__, "--run", library, name, str(options.threads), str(options.rounds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main():
    if sys.argv[1:2] == ["--run"]:
        library, name, threads, rounds = sys.argv[2:]
        print(measure(library, name, int(threads), int(rounds)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--torch", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--only", nargs="+", choices=CASES, default=CASES)
    options = parser.parse_args()
    for name in options.only:
        pairs = [[in_process(library, name, options) for library in ("wick", "torch")] for _ in range(options.pairs)]
        wick, torch = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
        ratios = [a / b for a, b in pairs]
        print(
            f"{name}: wick {wick:.3f} ms, PyTorch {torch:.3f} ms, ratio {statistics.median(ratios):.2f}"
            f" ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()

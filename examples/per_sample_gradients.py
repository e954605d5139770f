"""Gradients of each example by vmap of grad, beside a loop over the examples.

A PyTorch program, run unchanged by either `python -m wick examples/per_sample_gradients.py` or, with PyTorch, plain `python`.
"""

import argparse
import time

import torch
from torch import nn
from torch.func import functional_call, grad, vmap


def timed(f, *args):
    start = time.perf_counter()
    return f(*args), time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 13 * 13, 10))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, y = torch.randn(options.batch, 1, 28, 28), torch.randint(10, (options.batch,))

    def loss(parameters, x, y):
        logits = functional_call(model, parameters, (x.unsqueeze(0),))
        return nn.functional.cross_entropy(logits, y.unsqueeze(0))

    def one_by_one(parameters, x, y):
        each = [grad(loss)(parameters, x[i], y[i]) for i in range(len(x))]
        return {name: torch.stack([gradients[name] for gradients in each]) for name in parameters}

    together = vmap(grad(loss), (None, 0, 0))
    together(parameters, x, y)
    found, batched = timed(together, parameters, x, y)
    wanted, looped = timed(one_by_one, parameters, x, y)
    error = max((found[name] - wanted[name]).abs().max().item() for name in found)
    norms = torch.stack([g.flatten(1).square().sum(dim=1) for g in found.values()]).sum(dim=0).sqrt()
    print(f"norms {norms.min().item():.4f} to {norms.max().item():.4f}, the loop differs by {error:.1e}")
    print(f"vmap {batched * 1e3:.1f} ms, loop {looped * 1e3:.1f} ms")


if __name__ == "__main__":
    main()

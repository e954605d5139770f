"""Trains a perceptron on two rings by gradients of each example: clipped to a length and with noise, as DP-SGD does
(M. Abadi and others, "Deep learning with differential privacy", 2016).

A PyTorch program, run unchanged by either `python -m wick examples/train_private.py` or, with PyTorch, plain `python`.
The gradients of a batch's examples come from one call: vmap of grad.
"""

import argparse
import math

import torch
import torch.nn as nn
from torch.func import functional_call, grad, vmap


def rings(count):
    """Points (count, 2) on two rings and the ring of each (count,)."""
    ring = torch.randint(2, (count,))
    turn = torch.rand(count) * 2 * math.pi
    points = torch.stack([torch.cos(turn), torch.sin(turn)], dim=1) * (1.0 + ring).unsqueeze(1)
    return points + 0.15 * torch.randn(count, 2), ring


def clipped_mean(gradients, length, noise):
    """Gradients (B, ...) by name -> their mean, each example's cut to a length, with noise."""
    squares = sum(gradients[name].flatten(1).square().sum(1) for name in gradients)
    factor = (length / squares.sqrt()).clamp(max=1)
    count = len(factor)
    means = {name: torch.einsum("b,b...->...", factor, g) / count for name, g in gradients.items()}
    return {name: m + noise * length / count * torch.randn_like(m) for name, m in means.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.5)
    parser.add_argument("--length", type=float, default=0.5, help="of an example's gradient, at most")
    parser.add_argument("--noise", type=float, default=0.5, help="in lengths")
    options = parser.parse_args()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, options.width), nn.Tanh(), nn.Linear(options.width, options.width), nn.Tanh(),
                          nn.Linear(options.width, 2))  # fmt: skip
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, x, y):
        return nn.functional.cross_entropy(functional_call(model, parameters, (x,)), y)

    of_each = vmap(grad(loss), in_dims=(None, 0, 0))
    for step in range(options.steps):
        x, y = rings(options.batch)
        mean = clipped_mean(of_each(parameters, x, y), options.length, options.noise)
        parameters = {name: p - options.lr * mean[name] for name, p in parameters.items()}
        if step % 100 == 0 or step == options.steps - 1:
            x, y = rings(1000)
            right = (functional_call(model, parameters, (x,)).argmax(1) == y).double().mean()
            print(f"step {step}: loss {float(loss(parameters, x, y)):.4f}, right {float(right):.3f}")


if __name__ == "__main__":
    main()

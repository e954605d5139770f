"""Trains a perceptron of six layers on data that it makes: points of two interleaved spirals, batch by batch.

A PyTorch program, run unchanged by either `python -m wick examples/train_mlp.py` or, with PyTorch, plain `python`.
With --compile the whole step (forward, loss, zero_grad, backward, optimizer) is one compiled function.
"""

import argparse
import json
import math
import time

import torch
import torch.nn as nn


def spirals(count):
    """Points (count, 2) on two arms and the arm of each (count,)."""
    arm = torch.randint(2, (count,))
    turn = torch.rand(count) * 3 * math.pi
    angle = turn + arm * math.pi
    points = torch.stack([turn * torch.cos(angle), turn * torch.sin(angle)], dim=1) / (3 * math.pi)
    return points + 0.02 * torch.randn(count, 2), arm


def make_step(model, criterion, optimizer):
    """A training step: points (B, 2) and the arm of each (B,) -> the loss."""

    def step(x, y):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="compile the training step")
    parser.add_argument("--json", help="write losses and times to this file")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    layers = [nn.Linear(2, options.width), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(options.width, options.width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(options.width, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    step = make_step(model, nn.CrossEntropyLoss(), optimizer)
    if options.compile:
        step = torch.compile(step)
    losses, times = [], []
    for _ in range(options.steps):
        x, y = spirals(options.batch)
        start = time.perf_counter()
        losses.append(step(x, y).item())
        times.append(time.perf_counter() - start)
    with torch.no_grad():
        x, y = spirals(1000)
        accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
    print(
        f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {accuracy:.3f}, {sorted(times)[len(times) // 2] * 1e6:.0f} us a step"
    )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "times": times, "accuracy": accuracy}, file)


if __name__ == "__main__":
    main()

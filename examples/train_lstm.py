"""Trains an LSTM cell written by hand, stepped 32 times in Python, to recall the first symbol of a sequence.

Every step is a handful of tiny operators, so overhead is everything. A PyTorch program, run unchanged by either
`python -m wick examples/train_lstm.py` or, with PyTorch, plain `python`. With --compile the whole step is compiled.
"""

import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Cell(nn.Module):
    """One step: input (B, I), state two of (B, H) -> new state. Gates i, f, g, o as in Hochreiter and Schmidhuber, 1997."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.x = nn.Linear(inputs, 4 * hidden)
        self.h = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x, h, c):
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class Recall(nn.Module):
    """Symbols (B, T) -> logits (B, symbols) of the first one."""

    def __init__(self, symbols, hidden):
        super().__init__()
        self.embedding = nn.Embedding(symbols, hidden)
        self.cell = Cell(hidden, hidden)
        self.head = nn.Linear(hidden, symbols)
        self.hidden = hidden

    def forward(self, symbols):
        h = c = torch.zeros(symbols.shape[0], self.hidden)
        for t in range(symbols.shape[1]):
            h, c = self.cell(self.embedding(symbols[:, t]), h, c)
        return self.head(h)


def make_step(model, optimizer):
    """A training step: symbols (B, T) -> the loss."""

    def step(x):
        loss = F.cross_entropy(model(x), x[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="compile the training step")
    parser.add_argument("--json", help="write losses and times to this file")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    model = Recall(8, options.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    step = make_step(model, optimizer)
    if options.compile:
        step = torch.compile(step)
    losses, times = [], []
    for _ in range(options.steps):
        x = torch.randint(8, (options.batch, options.length))
        start = time.perf_counter()
        losses.append(step(x).item())
        times.append(time.perf_counter() - start)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {sorted(times)[len(times) // 2] * 1e6:.0f} us a step")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "times": times}, file)


if __name__ == "__main__":
    main()

"""Trains a small GPT on the source text of Python's standard library, character by character, and lets it write.

A PyTorch program, run unchanged by either:

    python -m wick examples/train_chargpt.py
    python examples/train_chargpt.py          # with PyTorch installed

With --compile the whole step (forward, loss, zero_grad, backward, optimizer) is one compiled function.
"""

import argparse
import json
import math
import os
import re
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    """Causal self attention: (B, T, C) -> (B, T, C)."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))  # (B, H, T, D)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.out(y.transpose(1, 2).contiguous().view(B, T, C))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a layer norm and beside a residual path."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class CharGPT(nn.Module):
    """Characters (B, T) -> logits (B, T, vocabulary)."""

    def __init__(self, vocabulary, context, width, layers, heads, dropout):
        super().__init__()
        self.context = context
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, characters):
        positions = torch.arange(characters.shape[1], device=characters.device)
        x = self.dropout(self.token(characters) + self.position(positions))
        return self.head(self.norm(self.blocks(x)))


def with_tabs(text):
    """Indentation as tabs: one character for what four would say, and a block's depth can be counted within the context."""
    return re.sub("^(    )+", lambda spaces: "\t" * (len(spaces[0]) // 4), text, flags=re.MULTILINE)


def standard_library_text(limit):
    """The first `limit` ASCII characters of the standard library's modules, in alphabetical order, with tabs."""
    folder = os.path.dirname(os.__file__)
    parts, size = [], 0
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".py"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8", errors="ignore") as file:
            text = with_tabs("".join(c for c in file.read() if c.isascii()))
        parts.append(text)
        size += len(text)
        if size >= limit:
            break
    return "".join(parts)[:limit]


def batch_of(data, batch, context):
    starts = torch.randint(len(data) - context - 1, (batch,))
    x = torch.stack([data[i : i + context] for i in starts.tolist()])
    y = torch.stack([data[i + 1 : i + 1 + context] for i in starts.tolist()])
    return x, y


@torch.no_grad()
def write(model, start, length, characters, temperature):
    """Continues `start` (a list of character numbers) by sampling: near 0 what is likely, at 1 as the model says."""
    model.eval()
    device = next(model.parameters()).device
    for _ in range(length):
        logits = model(torch.tensor([start[-model.context :]], device=device))[0, -1] / temperature
        start = start + [int(torch.multinomial(F.softmax(logits, dim=-1), 1))]
    return "".join(characters[i] for i in start).replace("\t", "    ")


def make_step(model, optimizer):
    """A training step: characters (B, T) and those that follow them -> the loss."""

    def step(x, y):
        logits = model(x)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def make_rate(steps):
    """Step number -> part of the learning rate: rising over the first steps, then falling to nothing at the last."""
    rising = max(1, min(50, steps // 10))
    return lambda step: min((step + 1) / rising, max(steps - step, 0) / max(steps - rising, 1))


def progress(step, loss, rate, done):
    width = 24
    filled = int(width * min(done, 1.0))
    bar = "#" * filled + "-" * (width - filled)
    print(f"\r[{bar}] step {step:5d}  loss {loss:6.4f}  {rate:8.0f} tokens/s", end="", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--lr", type=float, default=3e-3, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop so long after the first step")
    parser.add_argument("--compile", action="store_true", help="compile the training step")
    parser.add_argument("--sample", type=int, default=400, help="characters to write at the end")
    parser.add_argument("--prompt", default="class Reader:\n    def __init__(self, ", help="the text's beginning")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--json", help="write losses and times to this file")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    text = standard_library_text(1_000_000)
    characters = sorted(set(text))
    number = {c: i for i, c in enumerate(characters)}
    data = torch.tensor([number[c] for c in text], dtype=torch.long)
    model = CharGPT(len(characters), options.context, options.width, options.layers, options.heads, options.dropout)
    model.to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, make_rate(options.steps))
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(text):,} characters of {len(characters)} kinds"
    )

    step = make_step(model, optimizer)
    if options.compile:
        step = torch.compile(step)
    losses, times, began = [], [], None
    while True:
        start = time.perf_counter()
        x, y = (t.to(options.device) for t in batch_of(data, options.batch, options.context))
        losses.append(step(x, y).item())
        schedule.step()
        times.append(time.perf_counter() - start)
        began = began or time.perf_counter()
        assert math.isfinite(losses[-1]), "the loss is not finite"
        done = max(len(losses) / options.steps, (time.perf_counter() - began) / options.seconds)
        if len(losses) % 10 == 0 or done >= 1:
            progress(
                len(losses),
                losses[-1],
                options.batch * options.context / sorted(times[-50:])[len(times[-50:]) // 2],
                done,
            )
        if done >= 1:
            break
    print(file=sys.stderr)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "times": times, "tokens": options.batch * options.context}, file)
    last = losses[-max(1, min(50, len(losses) // 10)) :]  # one batch says little
    print(f"loss {losses[0]:.4f} -> {sum(last) / len(last):.4f} in {len(losses)} steps")
    if options.sample:
        prompt = [number[c] for c in with_tabs(options.prompt)]
        print(write(model, prompt, options.sample, characters, options.temperature))


if __name__ == "__main__":
    main()

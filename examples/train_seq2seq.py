"""Trains a sequence-to-sequence Transformer to sort: numbers in any order are the source, in order they are the target.

Encoder and decoder are PyTorch's layers, with a causal mask, masks of padding and dropout. A PyTorch program, run unchanged
by either `python -m wick examples/train_seq2seq.py` or, with PyTorch, plain `python`. With --compile the whole step
(forward, loss, zero_grad, backward, clipping, optimizer, schedule) is compiled.
"""

import argparse
import json
import math
import time

import torch
import torch.nn as nn

PAD, START, FIRST = 0, 1, 2  # tokens; from FIRST on they are numbers


class Seq2Seq(nn.Module):
    """Source (B, S) and target (B, T) tokens -> logits (B, T, tokens) of the target's next ones."""

    def __init__(self, tokens, width, heads, layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width, padding_idx=PAD)
        sizes = {"d_model": width, "nhead": heads, "dim_feedforward": 4 * width}
        kind = {"dropout": dropout, "activation": "gelu", "batch_first": True, "norm_first": True}
        layer = nn.TransformerEncoderLayer(**sizes, **kind)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes, **kind), layers, nn.LayerNorm(width))
        self.head = nn.Linear(width, tokens)
        self.width = width

    def embed(self, tokens):
        """Embeddings with the sines and cosines of their positions (Vaswani et al., 2017, 3.5): (B, T) -> (B, T, width)."""
        position = torch.arange(tokens.shape[1])[:, None]
        rate = torch.exp(torch.arange(0, self.width, 2) * (-math.log(10000.0) / self.width))
        waves = torch.stack([torch.sin(position * rate), torch.cos(position * rate)], dim=2).flatten(1)
        return self.embedding(tokens) * math.sqrt(self.width) + waves

    def forward(self, source, target):
        padding = source == PAD
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        memory = self.encoder(self.embed(source), src_key_padding_mask=padding)
        y = self.decoder(
            self.embed(target),
            memory,
            tgt_mask=later,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=padding,
        )
        return self.head(y)


def unsorted(count, length, tokens):
    """Sources (count, length) of half to all `length` numbers, padded, and them sorted behind START: (count, length + 1)."""
    numbers = torch.randint(FIRST, tokens, (count, length))
    lengths = torch.randint(length // 2, length + 1, (count, 1))
    absent = torch.arange(length) >= lengths
    ordered, _ = numbers.masked_fill(absent, tokens).sort(dim=1)  # what is absent comes last
    target = torch.cat([torch.full((count, 1), START), ordered.masked_fill(absent, PAD)], dim=1)
    return numbers.masked_fill(absent, PAD), target


def make_step(model, optimizer, schedule):
    """A training step: sources (B, S) and targets (B, S + 1) -> the loss."""
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.05)

    def step(source, target):
        logits = model(source, target[:, :-1])
        loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        return loss

    return step


@torch.no_grad()
def decode(model, source):
    """Targets (B, S + 1), the likeliest token at each place: source (B, S)."""
    model.eval()
    target = torch.full((source.shape[0], 1), START)
    for _ in range(source.shape[1]):
        token = model(source, target)[:, -1].argmax(dim=1, keepdim=True)
        target = torch.cat([target, token], dim=1)
    return target


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=22)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compile", action="store_true", help="compile the training step")
    parser.add_argument("--json", help="write losses and times to this file")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    model = Seq2Seq(options.tokens, options.width, 4, options.layers, options.dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min((k + 1) / 40, (40 / (k + 1)) ** 0.5))
    step = make_step(model, optimizer, schedule)
    if options.compile:
        step = torch.compile(step)
    losses, times = [], []
    for _ in range(options.steps):
        source, target = unsorted(options.batch, options.length, options.tokens)
        start = time.perf_counter()
        losses.append(step(source, target).item())
        times.append(time.perf_counter() - start)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {sorted(times)[len(times) // 2] * 1e3:.1f} ms a step")
    source, target = unsorted(64, options.length, options.tokens)
    right = (decode(model, source) == target) | (target == PAD)
    print(f"{right.all(dim=1).float().mean().item():.0%} of 64 new sequences are sorted without a mistake")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "times": times}, file)


if __name__ == "__main__":
    main()

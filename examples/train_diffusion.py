"""Trains a small diffusion U-Net to draw rings: it learns to tell the noise in pictures of them, and then takes noise away.

Convolutions down and up with skips, group normalisation, attention in the middle, the time of a picture as an embedding
(Ho et al., 2020). A PyTorch program, run unchanged by either `python -m wick examples/train_diffusion.py` or, with PyTorch,
plain `python`. With --compile the whole step (noise, forward, loss, zero_grad, backward, optimizer, average) is one
compiled function.
"""

import argparse
import json
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TIMES = 100  # steps from a picture to noise


class Residual(nn.Module):
    """Two convolutions that know the time: (B, inputs, H, W) and (B, T) -> (B, outputs, H, W)."""

    def __init__(self, inputs, outputs, time_width):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.norm2, self.conv2 = nn.GroupNorm(8, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.around = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
        return self.around(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Each place of a picture looks at all others: (B, C, H, W) -> the same."""

    def __init__(self, channels, heads):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.attention = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, x):
        places = self.norm(x).flatten(2).transpose(1, 2)  # (B, H W, C)
        y, _ = self.attention(places, places, places, need_weights=False)
        return x + y.transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    """Noisy pictures (B, 1, H, W) and their times (B,) -> the noise in them (B, 1, H, W)."""

    def __init__(self, width):
        super().__init__()
        time_width = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.down1 = Residual(width, width, time_width)
        self.shrink1 = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.down2 = Residual(width, 2 * width, time_width)
        self.shrink2 = nn.AvgPool2d(2)
        self.middle1 = Residual(2 * width, 2 * width, time_width)
        self.attention = Attention(2 * width, 4)
        self.middle2 = Residual(2 * width, 2 * width, time_width)
        self.grow2 = nn.Upsample(scale_factor=2, mode="nearest")
        self.up2 = Residual(4 * width, width, time_width)
        self.grow1 = nn.ConvTranspose2d(width, width, 4, stride=2, padding=1)
        self.up1 = Residual(2 * width, width, time_width)
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))
        self.width = width

    def forward(self, x, t):
        half = self.width // 2
        angles = t[:, None] * torch.exp(torch.arange(half) * (-math.log(1000.0) / half))
        t = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        skip1 = self.down1(self.first(x), t)
        skip2 = self.down2(self.shrink1(skip1), t)
        y = self.middle1(self.shrink2(skip2), t)
        y = self.middle2(self.attention(y), t)
        y = self.up2(torch.cat([self.grow2(y), skip2], dim=1), t)
        y = self.up1(torch.cat([self.grow1(y), skip1], dim=1), t)
        return self.last(y)


def rings(count, size):
    """Pictures (count, 1, size, size) in [-1, 1], each a ring of its own centre and radius."""
    centre = size * (0.35 + 0.3 * torch.rand(count, 2, 1, 1))
    radius = size * (0.15 + 0.15 * torch.rand(count, 1, 1))
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    distance = torch.sqrt((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2)
    return (2 * torch.exp(-((distance - radius) ** 2)) - 1)[:, None]


def make_step(model, average, optimizer, kept):
    """A training step: pictures (B, 1, H, W) -> the loss. kept: of a picture's variance, at each time (TIMES,)."""

    def step(x):
        t = torch.randint(TIMES, (x.shape[0],))
        noise = torch.randn_like(x)
        share = kept[t][:, None, None, None]
        loss = F.mse_loss(model(share.sqrt() * x + (1 - share).sqrt() * noise, t), noise)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                ours.lerp_(theirs, 0.05)
        return loss

    return step


@torch.no_grad()
def draw(model, count, size, betas, kept):
    """Pictures (count, 1, size, size) from noise: algorithm 2 of Ho et al., 2020."""
    x = torch.randn(count, 1, size, size)
    for t in reversed(range(TIMES)):
        noise = model(x, torch.full((count,), t))
        x = (x - betas[t] / (1 - kept[t]).sqrt() * noise) / (1 - betas[t]).sqrt()
        if t:
            x = x + betas[t].sqrt() * torch.randn_like(x)
    return x


def as_text(picture):
    """A picture (H, W) in [-1, 1] as lines of characters."""
    levels = ((picture.clamp(-1, 1) + 1) * 2.49).long().tolist()
    return "\n".join("".join(" .+#@"[level] * 2 for level in line) for line in levels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=16, help="height and width of a picture, a multiple of 4")
    parser.add_argument("--width", type=int, default=32, help="channels, a multiple of 8")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sample", type=int, default=1, help="how many pictures to draw in the end")
    parser.add_argument("--compile", action="store_true", help="compile the training step")
    parser.add_argument("--json", help="write losses and times to this file")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    model, average = UNet(options.width), UNet(options.width)
    average.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    betas = torch.linspace(1e-3, 0.15, TIMES)
    kept = torch.cumprod(1 - betas, dim=0)
    step = make_step(model, average, optimizer, kept)
    if options.compile:
        step = torch.compile(step)
    losses, times = [], []
    for _ in range(options.steps):
        x = rings(options.batch, options.size)
        start = time.perf_counter()
        losses.append(step(x).item())
        times.append(time.perf_counter() - start)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, {sorted(times)[len(times) // 2] * 1e3:.1f} ms a step")
    if options.sample:
        for picture in draw(average, options.sample, options.size, betas, kept):
            print(as_text(picture[0]))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "times": times}, file)


if __name__ == "__main__":
    main()

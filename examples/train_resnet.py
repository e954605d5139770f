"""Trains ResNet-18 to tell eight textures apart: stripes of four directions and two widths, in noise, made batch by batch.

A PyTorch program, run unchanged by either `python -m wick examples/train_resnet.py` or, with PyTorch, plain `python`.
With --compile the whole step (forward, loss, zero_grad, backward, optimizer) is one compiled function.
"""

import argparse
import json
import math
import time

import torch
import torch.nn as nn


class Block(nn.Module):
    """Two convolutions and a way around them, as in He et al., 2015: (B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        around = x if self.downsample is None else self.downsample(x)
        return self.relu(y + around)


class ResNet18(nn.Module):
    """Images (B, 3, H, W) -> logits (B, classes)."""

    def __init__(self, classes, width=64):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        stages, channels = [], width
        for k in range(4):
            outputs = width << k
            stages.append(nn.Sequential(Block(channels, outputs, 1 if k == 0 else 2), Block(outputs, outputs, 1)))
            channels = outputs
        self.stages = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.stages(x))
        return self.fc(torch.flatten(x, 1))


def textures(count, size):
    """Images (count, 3, size, size) and the texture of each (count,)."""
    kind = torch.randint(8, (count,))
    angle, period = kind % 4 * (math.pi / 4), 4 + 4 * (kind // 4)
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    along = x * torch.cos(angle)[:, None, None] + y * torch.sin(angle)[:, None, None]  # (count, size, size)
    phase = 2 * math.pi * torch.rand(count, 1, 1)
    stripes = torch.sin(2 * math.pi * along / period[:, None, None] + phase)
    return stripes[:, None] + torch.randn(count, 3, size, size), kind


def make_step(model, criterion, optimizer):
    """A training step: images (B, 3, H, W) and the texture of each (B,) -> the loss."""

    def step(x, y):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=64, help="height and width of an image")
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--double", action="store_true", help="compute in float64")
    parser.add_argument("--compile", action="store_true", help="compile the training step")
    parser.add_argument("--json", help="write losses and times to this file")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    if options.double:
        torch.set_default_dtype(torch.float64)
    model = ResNet18(8, options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    step = make_step(model, nn.CrossEntropyLoss(), optimizer)
    if options.compile:
        step = torch.compile(step)
    losses, times = [], []
    for _ in range(options.steps):
        x, y = textures(options.batch, options.size)
        start = time.perf_counter()
        losses.append(step(x, y).item())
        times.append(time.perf_counter() - start)
    model.eval()
    with torch.no_grad():
        x, y = textures(128, options.size)
        accuracy = (model(x).argmax(dim=1) == y).float().mean().item()
    print(
        f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {accuracy:.3f}, {sorted(times)[len(times) // 2] * 1e3:.1f} ms a step"
    )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"losses": losses, "times": times, "accuracy": accuracy}, file)


if __name__ == "__main__":
    main()

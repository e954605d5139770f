"""k-means by Lloyd's iterations: centres of made-up clouds of points are found again.

A PyTorch program, run unchanged by either `python -m wick examples/kmeans.py` or, with PyTorch, plain `python`.
"""

import argparse

import torch


def seeds(x, k):
    """k-means++: k of the points x (N, D), each drawn with the squared distance to those before as its weight."""
    centres = x[torch.randint(len(x), (1,))]
    for _ in range(k - 1):
        distance = torch.cdist(x, centres).amin(dim=1).square()
        centres = torch.cat([centres, x[torch.multinomial(distance, 1)]])
    return centres


def kmeans(x, k, most=100):
    """(centres (k, D), the centre of each point (N)). Ends when no point changes its centre."""
    centres, label = seeds(x, k), None
    for _ in range(most):
        before, label = label, torch.cdist(x, centres).argmin(dim=1)
        if before is not None and torch.equal(before, label):
            break
        count = torch.bincount(label, minlength=k).unsqueeze(1)
        sums = torch.zeros_like(centres).index_add_(0, label, x)
        centres = torch.where(count > 0, sums / count, centres)
    return centres, label


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=20000)
    parser.add_argument("--clouds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    true = torch.randn(options.clouds, 8) * 4
    x = true[torch.randint(options.clouds, (options.points,))] + 0.5 * torch.randn(options.points, 8)
    runs = [kmeans(x, options.clouds) for _ in range(5)]
    centres, label = min(runs, key=lambda run: (x - run[0][run[1]]).square().sum().item())
    spread = (x - centres[label]).square().mean().sqrt().item()
    off = torch.cdist(true, centres).amin(dim=1).max().item()
    print(f"spread {spread:.4f}, the farthest centre is off by {off:.4f}")


if __name__ == "__main__":
    main()

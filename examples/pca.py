"""Principal components of points in many dims that lie near a plane of few, by svd and by svd_lowrank.

A PyTorch program, run unchanged by either `python -m wick examples/pca.py` or, with PyTorch, plain `python`.
"""

import argparse

import torch


def components(x, k):
    """(directions (D, k), the part of the variance that each has (k)) of points x (N, D), the largest first."""
    centred = x - x.mean(dim=0)
    _, s, vh = torch.linalg.svd(centred, full_matrices=False)
    return vh[:k].T, (s.square() / s.square().sum())[:k]


def angle(a, b):
    """The largest angle between the planes of two sets of orthonormal columns, in degrees."""
    cosines = torch.linalg.svdvals(a.T @ b).clamp(max=1)
    return torch.rad2deg(torch.acos(cosines.min())).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=4000)
    parser.add_argument("--dims", type=int, default=100)
    parser.add_argument("--plane", type=int, default=4, help="dims of the plane")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    plane, _ = torch.linalg.qr(torch.randn(options.dims, options.plane))
    along = torch.randn(options.points, options.plane) * torch.arange(options.plane, 0, -1)
    x = along @ plane.T + 0.1 * torch.randn(options.points, options.dims) + torch.randn(options.dims)
    directions, parts = components(x, options.plane)
    _, _, quick = torch.svd_lowrank(x - x.mean(dim=0), q=options.plane + 4)
    print(
        f"variance {parts.sum().item():.4f}, {angle(plane, directions):.3f} degrees from the plane, "
        f"svd_lowrank {angle(directions, quick[:, : options.plane]):.3f} from svd"
    )


if __name__ == "__main__":
    main()

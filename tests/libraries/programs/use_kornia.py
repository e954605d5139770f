"""kornia: filters, colours, geometry, losses, morphology and augmentations."""

import json

import kornia
import torch

torch.manual_seed(0)
x, y = torch.rand(2, 3, 32, 32, requires_grad=True), torch.rand(2, 3, 32, 32)
classes, figures = torch.randint(0, 3, (2, 32, 32)), {}
filters, color, geometry = kornia.filters, kornia.color, kornia.geometry
enhance, losses, augmentation = kornia.enhance, kornia.losses, kornia.augmentation


def note(name, value):
    figures[name] = [list(value.shape), value.double().mean().item(), value.double().square().mean().item()]


note("gaussian_blur2d", filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)))
note("median_blur", filters.median_blur(x, (3, 3)))
note("bilateral_blur", filters.bilateral_blur(x, (3, 3), 0.1, (1.0, 1.0)))
for name in ("sobel", "spatial_gradient"):
    note(name, getattr(filters, name)(x))
for name in ("grayscale", "hsv", "hls", "lab", "luv", "xyz", "yuv", "ycbcr", "linear_rgb"):
    note(f"rgb_to_{name}", getattr(color, f"rgb_to_{name}")(x))
note("resize", geometry.resize(x, (16, 20)))
note("rotate", geometry.rotate(x, torch.tensor([30.0, 45.0])))
note("warp_affine", geometry.warp_affine(x, torch.eye(2, 3)[None].repeat(2, 1, 1), (20, 20)))
note("center_crop", geometry.center_crop(x, (16, 16)))
for name, value in (("brightness", 0.2), ("contrast", 0.7), ("gamma", 0.8), ("hue", 0.3), ("saturation", 2.0)):
    note(f"adjust_{name}", getattr(enhance, f"adjust_{name}")(x, value))
note("equalize_clahe", enhance.equalize_clahe(x))
note("ssim_loss", losses.ssim_loss(x, y, 5))
note("total_variation", losses.total_variation(x))
note("dice_loss", losses.dice_loss(x, classes))
note("focal_loss", losses.focal_loss(x, classes, 0.5, 2.0, "mean"))
for name in ("dilation", "erosion", "opening", "gradient"):
    note(name, getattr(kornia.morphology, name)(x, torch.ones(3, 3)))
points, others = torch.randn(2, 8, 2), torch.randn(2, 8, 2)
note("find_fundamental", geometry.epipolar.find_fundamental(points, others, torch.ones(2, 8)).abs())
note("zca_whiten", enhance.zca_whiten(torch.randn(20, 4)).abs())
note("distance_transform", kornia.contrib.distance_transform((x.detach() > 0.9).float()))
torch.manual_seed(0)
for made in (
    augmentation.RandomHorizontalFlip(p=0.5), augmentation.RandomAffine(30.0, p=1.0),
    augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0), augmentation.RandomCrop((16, 16)),
    augmentation.RandomResizedCrop((16, 16)), augmentation.RandomPerspective(0.5, p=1.0),
):  # fmt: skip
    note(type(made).__name__, made(x))
(filters.gaussian_blur2d(color.rgb_to_hsv(x), (3, 3), (1.0, 1.0)).square().sum() + losses.ssim_loss(x, y, 5)).backward()
note("gradient", x.grad)
compiled = torch.compile(lambda a: filters.gaussian_blur2d(color.rgb_to_hsv(a), (3, 3), (1.0, 1.0)))
torch.testing.assert_close(compiled(y), filters.gaussian_blur2d(color.rgb_to_hsv(y), (3, 3), (1.0, 1.0)))
print(json.dumps(figures))

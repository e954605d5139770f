"""Normalisations: instance norm, local response. Tests: tests/python/test_norm_layers.py."""

import math

from ... import _C
from ..functional import _handle


def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Normalises each channel of each sample of (N, C, ...)."""
    tensors = (input, running_mean, running_var, weight, bias)
    if _C._overrides and _C._has_torch_function_variadic(*tensors):
        kept = {"use_input_stats": use_input_stats, "momentum": momentum, "eps": eps}
        names = ("running_mean", "running_var", "weight", "bias")
        return _handle(instance_norm, tensors, input, **dict(zip(names, tensors[1:], strict=True)), **kept)
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    return _C.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False)


def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """x / (k + alpha mean(x^2 of `size` neighbouring channels))^beta for (N, C, ...)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(local_response_norm, (input,), input, size, alpha=alpha, beta=beta, k=k)
    if input.dim() < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality                          input (got {input.dim()} dimensions)"
        )
    if input.numel() == 0:
        return input
    mean = _window_sum(input * input, size // 2, (size - 1) // 2)
    mean = mean / size if mean.is_floating_point() else mean.div(size, rounding_mode="trunc")
    return input / (mean.to(input.dtype) * alpha + k) ** beta


def cross_map_lrn2d(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """local_response_norm as PyTorch's older layer computes it: channel 0 is a neighbour of every channel."""
    square, reach = input * input, int((size - 1) / 2)
    first, rest = square.narrow(1, 0, 1), square.narrow(1, 1, input.size(1) - 1)
    total = first + _window_sum(_C.pad(rest, [0, 0] * (input.dim() - 2) + [1, 0]), reach, reach)
    return input * (total * (alpha / size) + k) ** -beta


def _window_sum(x, before, after):
    """For each channel the sum of it and its neighbours, zeros outside; small floats are added up in float32."""
    wide = x.float() if x.dtype in (_C.float16, _C.bfloat16) else x
    padded = _C.pad(wide, [0, 0] * (x.dim() - 2) + [before, after])
    total = padded.narrow(1, 0, x.size(1))
    for first in range(1, before + after + 1):
        total = total + padded.narrow(1, first, x.size(1))
    return total

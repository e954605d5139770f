"""Rounding to the values that a quantized tensor could hold, with the gradient of those inside of the range.
Tests: tests/parity/test_fake_quantize_parity.py."""

from .. import _C


def _check(quant_min, quant_max):
    if quant_min > quant_max:
        raise RuntimeError("`quant_min` should be less than or         equal to `quant_max`.")


def _rounded(input, scale, zero_point, quant_min, quant_max):
    """(the values, which of the inputs lie in the range)"""
    steps = zero_point + _C.round(input.detach() * (1 / scale))
    inside = (steps >= quant_min) & (steps <= quant_max)
    return (steps.clamp(quant_min, quant_max) - zero_point) * scale, inside


def _with_gradient(input, values, inside):
    if not (_C.is_grad_enabled() and input.requires_grad):
        return values
    return values + _C.where(inside, input - input.detach(), 0.0)


def fake_quantize_per_tensor_affine(input, scale, zero_point, quant_min, quant_max):
    """input as whole steps of `scale` around zero_point, between quant_min and quant_max, and back.

    fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
    """
    _check(quant_min, quant_max)
    if not isinstance(scale, _C.Tensor) and not quant_min <= zero_point <= quant_max:
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    scale, zero_point = (
        t.detach() if isinstance(t, _C.Tensor) else _C.tensor(float(t), device=input.device)
        for t in (scale, zero_point)
    )
    values, inside = _rounded(input, scale.float(), zero_point.float(), quant_min, quant_max)
    return _with_gradient(input, values.to(input.dtype), inside)


def _check_channels(input, scale, zero_point, axis):
    if scale.dim() != 1:
        raise RuntimeError("scale should be a 1-D tensor")
    if zero_point.dim() != 1:
        raise RuntimeError("zero point should be a 1-D tensor")
    if scale.numel() != zero_point.numel():
        raise RuntimeError("scale and zero-point need to have the same dimensions")
    if scale.numel() != input.size(axis):
        raise RuntimeError("dimensions of scale and zero-point are not consistent with input tensor")


def fake_quantize_per_channel_affine(input, scale, zero_point, axis, quant_min, quant_max):
    """The same with a scale and a zero point for each index of a dim: scale (input.size(axis))."""
    if scale.dtype not in (_C.float32, _C.bfloat16):
        raise RuntimeError(f"Scale must be Float or BFloat16, found {scale.type().rpartition('.')[2][:-6]}")
    _check_channels(input, scale, zero_point, axis)
    _check(quant_min, quant_max)
    if not zero_point.is_floating_point() and (
        bool((zero_point < quant_min).any()) or bool((zero_point > quant_max).any())
    ):
        raise RuntimeError("`zero_point` must be between `quant_min` and `quant_max`.")
    if not -input.dim() <= axis < input.dim() or axis < 0:
        raise RuntimeError("`axis` must be between 0 and number of dimensions of input")
    shape = [1] * input.dim()
    shape[axis] = -1
    scale, zero_point = scale.detach().float().reshape(shape), zero_point.detach().float().reshape(shape)
    values, inside = _rounded(input, scale, zero_point, quant_min, quant_max)
    return _with_gradient(input, values.to(input.dtype), inside)

"""Ranges, scales and zero points: what observers and torch.ops.quantized_decomposed have in common.

>>> determine_qparams(wick.tensor(-1.0), wick.tensor(1.0), -128, 127, wick.int8, wick.tensor([1e-7]), False)
(tensor([0.0078], dtype=torch.float64), tensor([0]))

Tests: tests/parity/test_quantization_parity.py.
"""

import warnings

from ... import _C, _qscheme

__all__ = ["calculate_qmin_qmax", "check_min_max_valid", "determine_qparams", "is_per_channel", "is_per_tensor",
           "validate_qmin_qmax"]  # fmt: skip


def is_per_tensor(qscheme):
    """Whether one scale stands for all elements."""
    return qscheme in _qscheme.PER_TENSOR


def is_per_channel(qscheme):
    """Whether each channel has a scale."""
    return qscheme in _qscheme.PER_CHANNEL


def validate_qmin_qmax(quant_min, quant_max):
    """An AssertionError for a range without zero, or without anything else."""
    if not quant_min <= 0 <= quant_max:
        raise AssertionError("Used-specified quantization range must include 0.")
    if quant_min >= quant_max:
        raise AssertionError("qmin must be strictly less than qmax for user-specified quantization range.")


def calculate_qmin_qmax(quant_min, quant_max, has_customized_qrange, dtype, reduce_range):
    """The range of a dtype, or the one that was given, halved with reduce_range."""
    if has_customized_qrange:
        if dtype != _C.int32 and not 0 < quant_max - quant_min + 1 <= 65536:
            raise AssertionError("quantization range should be positive and not exceed the maximum bit range (=256).")
        return (quant_min // 2, quant_max // 2) if reduce_range else (quant_min, quant_max)
    limits = _C.iinfo(dtype) if not dtype.is_floating_point else _C.finfo(dtype)
    low, high = int(limits.min), int(limits.max)
    halved = reduce_range and dtype in (_C.int8, _C.uint8)
    return (low // 2, high // 2) if halved else (low, high)


def check_min_max_valid(min_val, max_val):
    """False, with a warning, before anything was observed; an AssertionError where the least is the larger one."""
    if min_val.numel() == 0 or max_val.numel() == 0:
        warnings.warn("must run observer before calling calculate_qparams. Returning default values.", stacklevel=2)
        return False
    if min_val.dim() == 0 or max_val.dim() == 0:
        if min_val == float("inf") and max_val == float("-inf"):
            warnings.warn("must run observer before calling calculate_qparams. Returning default values.", stacklevel=2)
            return False
        if min_val > max_val:
            raise AssertionError(f"min {min_val} should be less than max {max_val}")
    elif (min_val > max_val).any():
        raise AssertionError(f"min {min_val} should be less than max {max_val}")
    return True


def _middle(dtype, quant_min, quant_max, has_customized_qrange):
    """The zero point of a symmetric range."""
    if dtype == _C.uint8:
        return (quant_min + quant_max) // 2 if has_customized_qrange else 128
    return 2**15 if dtype == _C.uint16 else 0


def scale_and_zero_point(low, high, quant_min, quant_max, dtype, eps, has_customized_qrange, qscheme):
    """In float32 and int64, of one element at least."""
    below, above = low.clamp(max=0), high.clamp(min=0)
    if qscheme in _qscheme.SYMMETRIC:
        scale = _C.maximum(_C.maximum(-below, above) / ((quant_max - quant_min) / 2), eps)
        middle = _middle(dtype, quant_min, quant_max, has_customized_qrange)
        zero_point = _C.full(below.shape, middle, dtype=_C.int64, device=below.device)
    elif qscheme is _qscheme.per_channel_affine_float_qparams:
        scale = (high - low) / float(quant_max - quant_min)
        scale = _C.where(scale > eps, scale, _C.ones_like(scale))
        zero_point = -1 * low / scale
    else:
        scale = _C.maximum((above - below) / float(quant_max - quant_min), eps)
        zero_point = quant_min - (below / scale).round().to(_C.int32)
        zero_point = zero_point.clamp(quant_min, quant_max)
    return scale.reshape(-1) if scale.dim() == 0 else scale, zero_point.reshape(
        -1
    ) if zero_point.dim() == 0 else zero_point


def determine_qparams(
    min_val, max_val, quant_min, quant_max, dtype, eps, has_customized_qrange, qscheme=_qscheme.per_tensor_affine
):
    """(scale, zero_point) as float64 and int64."""
    if not check_min_max_valid(min_val, max_val):
        return _C.tensor([1.0], device=min_val.device), _C.tensor([0], device=min_val.device)
    scale, zero_point = scale_and_zero_point(
        min_val, max_val, quant_min, quant_max, dtype, eps, has_customized_qrange, qscheme
    )
    return scale.to(_C.float64), zero_point.to(_C.int64)

"""torch.ops.quantized_decomposed: what there is beside the operators of the table, which look at values.

Importing this module defines them. Tests: tests/parity/test_quantization_parity.py.
"""

from .... import _C, _qscheme
from ...._ops import ops
from ....library import Library
from ..utils import determine_qparams, validate_qmin_qmax

quantized_decomposed_lib = Library("quantized_decomposed", "FRAGMENT")
_FLOATS = (_C.float32, _C.float16, _C.bfloat16)


def _choose(input, qmin, qmax, eps, dtype, qscheme):
    if input.dtype not in _FLOATS:
        raise AssertionError(f"Expecting input to have dtype torch.float32/16/b16, but got dtype: {input.dtype}")
    validate_qmin_qmax(qmin, qmax)
    low, high = _C.aminmax(input)
    return determine_qparams(low, high, qmin, qmax, dtype, _C.tensor([eps]), False, qscheme)


def choose_qparams_tensor(input, qmin, qmax, eps, dtype):
    """Scale and zero point of a tensor's range."""
    return _choose(input, qmin, qmax, eps, dtype, _qscheme.per_tensor_affine)


def choose_qparams_symmetric_tensor(input, qmin, qmax, eps, dtype):
    """The same with a range around zero."""
    return _choose(input, qmin, qmax, eps, dtype, _qscheme.per_tensor_symmetric)


def fake_quant_per_channel(input, scales, zero_points, axis, quant_min, quant_max):
    """fake_quantize_per_channel_affine with scales and zero points of any dtype."""
    scales, zero_points = scales.to(_C.float32), zero_points.to(_C.int32)
    return _C.fake_quantize_per_channel_affine(input, scales, zero_points, axis, quant_min, quant_max)


def convert_element_type(input, dtype):
    """A conversion."""
    return input.to(dtype)


_ARGUMENTS = "(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)"
for _name, _overload, _schema, _function in (
    ("choose_qparams", "tensor", _ARGUMENTS, choose_qparams_tensor),
    ("choose_qparams_symmetric", "tensor", _ARGUMENTS, choose_qparams_symmetric_tensor),
    (
        "fake_quant_per_channel",
        "default",
        "(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max) -> Tensor",
        fake_quant_per_channel,
    ),
    ("convert_element_type", "no_fuse", "(Tensor input, ScalarType dtype) -> Tensor", convert_element_type),
):
    quantized_decomposed_lib.define(_name + _schema)
    quantized_decomposed_lib.impl(_name, _function, "CompositeImplicitAutograd")
    _operator = getattr(ops.quantized_decomposed, _name)
    setattr(_operator, _overload, _operator)  # an operator of a program has one overload

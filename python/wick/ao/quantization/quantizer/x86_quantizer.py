"""X86Quantizer: activations in uint8, weights in int8 with a scale for each row, as products of bytes on x86 want them."""

from .... import _C
from .xnnpack_quantizer import QuantizationConfig, XNNPACKQuantizer, _activation, _weight

__all__ = ["X86Quantizer", "get_default_x86_quantization_config"]


def get_default_x86_quantization_config(is_qat=False, is_dynamic=False):
    """uint8 for what comes in; results stay floats until the next operator wants them."""
    activation = _activation(is_qat, is_dynamic, 0, 255, _C.uint8)
    return QuantizationConfig(activation, None, _weight(True, is_qat, -128, 127), None, is_qat)


class X86Quantizer(XNNPACKQuantizer):
    """The same operators; sums stay in floats."""

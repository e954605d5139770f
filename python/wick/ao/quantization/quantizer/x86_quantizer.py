"""X86Quantizer: activations in uint8, weights in int8 with a scale for each row, as products of bytes on x86 want them."""

from .... import _C, _qscheme
from ..fake_quantize import FusedMovingAvgObsFakeQuantize
from ..observer import HistogramObserver, PlaceholderObserver
from .quantizer import QuantizationSpec
from .xnnpack_quantizer import QuantizationConfig, XNNPACKQuantizer, _weight

__all__ = ["X86Quantizer", "get_default_x86_quantization_config"]


def get_default_x86_quantization_config(is_qat=False, is_dynamic=False):
    """uint8 for what comes in; results stay floats until the next operator wants them."""
    if is_dynamic:
        ctr = PlaceholderObserver.with_args(eps=2**-12)
    elif is_qat:
        ctr = FusedMovingAvgObsFakeQuantize.with_args(eps=2**-12)
    else:
        ctr = HistogramObserver.with_args(eps=2**-12)
    activation = QuantizationSpec(_C.uint8, ctr, 0, 255, _qscheme.per_tensor_affine, is_dynamic=is_dynamic)
    return QuantizationConfig(activation, None, _weight(True, is_qat, -128, 127), None, is_qat)


class X86Quantizer(XNNPACKQuantizer):
    """The same operators; sums stay in floats."""

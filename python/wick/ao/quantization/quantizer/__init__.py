"""Quantizers: they say of each edge of a graph how it is quantized.

A quantizer annotates nodes: node.meta["quantization_annotation"]. prepare_pt2e puts observers where the annotations say.
Tests: tests/python/test_quantize_pt2e.py.
"""

from ...._names import files_of
from ...._names import late as _late

_NAMES = files_of(
    {
        "quantizer": "FixedQParamsQuantizationSpec QuantizationAnnotation QuantizationSpec QuantizationSpecBase Quantizer "
        "SharedQuantizationSpec",
        "xnnpack_quantizer": "QuantizationConfig XNNPACKQuantizer get_symmetric_quantization_config",
        "x86_quantizer": "X86Quantizer get_default_x86_quantization_config",
    }
)
__all__ = sorted(_NAMES)  # noqa: PLE0605
__getattr__ = _late(__name__, ("quantizer", "x86_quantizer", "xnnpack_quantizer"), _NAMES)

"""torch.ao.nn: layers of quantized models."""

from ..._names import late as _late

__getattr__ = _late(__name__, ("intrinsic", "qat", "quantized"))

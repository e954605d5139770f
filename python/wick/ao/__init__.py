"""torch.ao: quantization, of which there are the parts that models contain before they are quantized."""

from .._names import late as _late

__getattr__ = _late(__name__, ("nn", "quantization"))

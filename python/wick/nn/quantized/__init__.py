"""torch.nn.quantized: the older name of torch.ao.nn.quantized, of which there is what floating models use."""

from ..._names import getter as _getter
from ...ao.nn.quantized import FloatFunctional, QFunctional

__all__ = ["FloatFunctional", "QFunctional"]

__getattr__ = _getter(__name__)

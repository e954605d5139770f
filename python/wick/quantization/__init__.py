"""torch.quantization: the older name of torch.ao.quantization."""

from .._names import missing as _missing
from ..ao import quantization as _quantization


def __getattr__(name):
    if name == "quantize_fx":
        from importlib import import_module

        return import_module(f"{__name__}.quantize_fx")
    if name.startswith("__") or not hasattr(_quantization, name):
        raise _missing(__name__, name)
    return getattr(_quantization, name)

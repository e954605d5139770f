"""torch._subclasses: the class that programs ask their tensors for. Shapes without memory are tensors on the device meta
here, so nothing is a FakeTensor."""

from .._names import cannot_be_made
from .._names import getter as _getter

_WHY = "tensors without memory are on the device meta"
FakeTensor = cannot_be_made("torch._subclasses.FakeTensor", _WHY)
FakeTensorMode = cannot_be_made("torch._subclasses.FakeTensorMode", _WHY)
UnsupportedFakeTensorException = type("UnsupportedFakeTensorException", (RuntimeError,), {})
DynamicOutputShapeException = type("DynamicOutputShapeException", (RuntimeError,), {})

__getattr__ = _getter(__name__)

"""torch.types: names for annotations."""

import builtins
from collections.abc import Sequence
from typing import Any, List, Tuple, Union  # noqa: F401, UP035

from ._C import Size, Tensor, device, dtype, layout
from ._names import getter as _getter

_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
_TensorOrTensorsOrGradEdge = _TensorOrTensors
_dtype, _device, _layout = dtype, device, layout
_int, _float, _bool, _symint = builtins.int, builtins.float, builtins.bool, builtins.int
_size = Union[Size, list[int], tuple[int, ...]]
_qscheme, _dispatchkey = Any, str
SymInt = SymFloat = SymBool = Any
IntLikeType, FloatLikeType, BoolLikeType = int, float, bool
Number = int | float | bool
_Number = (int, float, bool)
Device = device | str | int | None
FileLike = Any
Storage = Any
__all__ = ["Device", "FileLike", "Number", "Storage"]

__getattr__ = _getter(__name__)

"""torch.autograd.forward_ad: derivatives forward, as tensors that carry a tangent."""

import typing

from .. import _C
from .._functorch._levels import FORWARD
from .._names import getter as _getter

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_levels = []  # how many levels of the core there were when each was entered, itself among them


class UnpackedDualTensor(typing.NamedTuple):
    """A tensor and its tangent."""

    primal: object
    tangent: object


def enter_dual_level():
    """From here on tensors may have tangents; gives the number of the level."""
    if _levels:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _levels.append(_C._level_begin(FORWARD, 0, 0, True))
    return len(_levels) - 1


def exit_dual_level(*, level=None):
    """Ends the level: tensors are their values again."""
    if level is None:
        level = len(_levels) - 1
    if level != len(_levels) - 1 or not _levels or _levels[-1] != _C._level_depth():
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _levels.pop()
    _C._level_end()


def check_dual(tensor, tangent):
    """Refuses a tangent that does not fit."""
    for name, t in ("primal", tensor), ("tangent", tangent):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {t.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            f"Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )
    if tensor.dtype != tangent.dtype:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different dtype than that of the original Tensor, this is not "
            f"supported. Tensor is of type {_legacy(tensor)} while the given forward gradient is of type "
            f"{_legacy(tangent)}."
        )


def _legacy(tensor):
    return tensor.type().rpartition(".")[2].removesuffix("Tensor")


def make_dual(tensor, tangent, *, level=None):
    """The tensor with a tangent.

    with dual_level():
        y = make_dual(x, torch.ones_like(x)).sin()
        unpack_dual(y).tangent     # cos(x)
    """
    if not _levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    check_dual(tensor, tangent)
    found = _C._level_unwrap(tensor)
    if found is not None:
        tensor = found[0]
    return _C._level_wrap(tensor, -1, tangent)


def unpack_dual(tensor, *, level=None):
    """(tensor, tangent): None for a tensor that has none, as all outside of a dual level."""
    if not _levels:
        return UnpackedDualTensor(tensor, None)
    tangent, found = _C._level_tangent(tensor), _C._level_unwrap(tensor)
    return UnpackedDualTensor(tensor if found is None else found[0], tangent)


class dual_level:
    """A block in which tensors may have tangents."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *exception):
        exit_dual_level()


__getattr__ = _getter(__name__)

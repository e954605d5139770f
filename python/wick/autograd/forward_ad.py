"""torch.autograd.forward_ad: what libraries ask of it. wick has no forward mode, so no tensor has a tangent."""

import typing

from .._names import cannot as _cannot
from .._names import getter as _getter

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_WHY = "derivatives are computed backward"
dual_level = _cannot("torch.autograd.forward_ad.dual_level", _WHY)
enter_dual_level = _cannot("torch.autograd.forward_ad.enter_dual_level", _WHY)
exit_dual_level = _cannot("torch.autograd.forward_ad.exit_dual_level", _WHY)
make_dual = _cannot("torch.autograd.forward_ad.make_dual", _WHY)


class UnpackedDualTensor(typing.NamedTuple):
    """A tensor and its tangent."""

    primal: object
    tangent: object


def unpack_dual(tensor, *, level=None):
    """(tensor, None): outside of a dual level a tensor has no tangent."""
    return UnpackedDualTensor(tensor, None)


__getattr__ = _getter(__name__)

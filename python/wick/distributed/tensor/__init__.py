"""torch.distributed.tensor: the class of tensors that several processes hold. There are no process groups, so nothing is
one; the placements can be named."""

from ..._C import Tensor
from ..._names import cannot, cannot_be_made
from ..._names import late as _late
from ...distributed import _WHY, DeviceMesh, init_device_mesh  # noqa: F401
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "Partial", "Placement", "Replicate", "Shard", "distribute_module", "distribute_tensor"]


class DTensor(Tensor):
    """A tensor that several processes hold: cannot be made."""

    def __new__(cls, *args, **kwargs):
        raise NotImplementedError(f"torch.distributed.tensor.DTensor is not available: {_WHY}")

    from_local = staticmethod(cannot("torch.distributed.tensor.DTensor.from_local", _WHY))


DTensorSpec = cannot_be_made("torch.distributed.tensor.DTensorSpec", _WHY)
for _name in (
    "distribute_tensor", "distribute_module", "empty", "full", "ones", "rand", "randn", "zeros",
):  # fmt: skip
    globals()[_name] = cannot(f"torch.distributed.tensor.{_name}", _WHY)

__getattr__ = _late(__name__, ("_utils", "parallel", "placement_types"))

"""torch.distributed._functional_collectives: collectives that give new tensors; they need process groups."""

from .._names import getter as _getter
from . import _needs_group


class AsyncCollectiveTensor:
    """A result that is still to come: there are none."""


for _name in (
    "all_gather_tensor", "all_gather_tensor_autograd", "all_reduce", "all_to_all_single", "all_to_all_single_autograd",
    "broadcast", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd",
):  # fmt: skip
    globals()[_name] = _needs_group(_name)


def wait_tensor(tensor):
    """The tensor, which is there."""
    return tensor


__getattr__ = _getter(__name__)

"""torch.cuda.nccl: collective operations of CUDA devices, which there are none of."""

from . import _needs_device


def is_available(tensors):
    """Whether NCCL can work on these tensors: False."""
    return False


version, unique_id, all_reduce, reduce, broadcast, all_gather, reduce_scatter = map(
    _needs_device, ("version", "unique_id", "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")
)

"""torch.cuda.nccl: collective operations of CUDA devices, which there are none of."""

from . import _needing_a_device


def is_available(tensors):
    """Whether NCCL can work on these tensors: False."""
    return False


_NAMES = ("version", "unique_id", "all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")
globals().update(_needing_a_device(_NAMES))

"""torch.utils.dlpack: tensors from and to other libraries."""

from .. import _C

from_dlpack = _C.from_dlpack


def to_dlpack(tensor):
    """A capsule with the tensor's memory."""
    return tensor.__dlpack__()

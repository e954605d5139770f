"""How tensors and storages are sent to other processes: moved into shared memory, of which a descriptor is sent.

Sender and receiver then look at the same bytes. The sender has to live until the receiver has them.
Tests: tests/python/test_shared_memory.py.
"""

from multiprocessing import reduction as _reduction

from .. import _C
from .._names import getter as _getter
from ..nn.parameter import Parameter
from ..storage import TypedStorage

__all__ = [
    "init_reductions",
    "rebuild_storage",
    "rebuild_tensor",
    "rebuild_typed_storage",
    "reduce_storage",
    "reduce_tensor",
]


def rebuild_storage(descriptor, size):
    """A storage over what another process shares."""
    import os

    number = descriptor.detach()
    try:
        return _C.UntypedStorage._new_shared_fd_cpu(number, size)
    finally:
        os.close(number)  # the storage keeps one of its own


def rebuild_typed_storage(storage, dtype):
    """The same as elements of a dtype."""
    return TypedStorage(wrap_storage=storage, dtype=dtype)


def rebuild_tensor(cls, storage, metadata):
    """A tensor over a storage; metadata: dtype, offset, size, strides, requires_grad."""
    dtype, offset, size, stride, requires_grad = metadata
    tensor = _C._rebuild_tensor(storage, dtype, offset, size, stride)
    return Parameter(tensor, requires_grad) if cls is Parameter else tensor.requires_grad_(requires_grad)


def reduce_storage(storage):
    """How a storage is sent."""
    if storage.device.type != "cpu":
        return storage.__reduce__()
    descriptor, size = storage._share_fd_cpu_()
    return rebuild_storage, (_reduction.DupFd(descriptor), size)


def _reduce_typed_storage(storage):
    return rebuild_typed_storage, (storage.untyped(), storage.dtype)


def reduce_tensor(tensor):
    """How a tensor is sent."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
            "crossing process boundaries.  If you just want to transfer the data, call detach() on the tensor before "
            "serializing (e.g., putting it on the queue)."
        )
    if tensor.device.type != "cpu" or type(tensor) not in (_C.Tensor, Parameter):
        return tensor.__reduce_ex__(4)
    metadata = (tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.requires_grad)
    return rebuild_tensor, (type(tensor), tensor.detach().untyped_storage(), metadata)


def init_reductions():
    """Tells multiprocessing how tensors are sent. Importing torch.multiprocessing does it."""
    _reduction.ForkingPickler.register(_C.Tensor, reduce_tensor)
    _reduction.ForkingPickler.register(Parameter, reduce_tensor)
    _reduction.ForkingPickler.register(_C.UntypedStorage, reduce_storage)
    _reduction.ForkingPickler.register(TypedStorage, _reduce_typed_storage)


__getattr__ = _getter(__name__)

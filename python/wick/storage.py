"""torch.storage: UntypedStorage is C; TypedStorage, which PyTorch has deprecated, shows a storage as elements."""

from . import _C
from ._C import UntypedStorage
from ._names import getter as _getter

__all__ = ["TypedStorage", "UntypedStorage", "from_file"]


class TypedStorage:
    """A storage as elements of one dtype: tensor.storage()[0]"""

    def __init__(self, storage, dtype):
        self._untyped_storage, self.dtype = storage, dtype

    def _elements(self):
        return _C._rebuild_tensor(self._untyped_storage, self.dtype, 0, (len(self),), (1,))

    def __len__(self):
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    def __getitem__(self, index):
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._elements()[index].item()

    def __setitem__(self, index, value):
        self._elements()[index] = value

    def __iter__(self):
        return iter(self.tolist())

    def __repr__(self):
        values = "".join(f" {value}\n" for value in self.tolist())
        return f"{values}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"

    @property
    def device(self):
        return self._untyped_storage.device

    @property
    def _cdata(self):
        return self._untyped_storage._cdata

    def untyped(self):
        return self._untyped_storage

    def size(self):
        return len(self)

    def nbytes(self):
        return self._untyped_storage.nbytes()

    def element_size(self):
        return self.dtype.itemsize

    def data_ptr(self):
        return self._untyped_storage.data_ptr()

    def tolist(self):
        return self._elements().tolist()

    def clone(self):
        return TypedStorage(self._untyped_storage.clone(), self.dtype)

    def is_shared(self):
        return self._untyped_storage.is_shared()

    def share_memory_(self):
        self._untyped_storage.share_memory_()
        return self

    @property
    def filename(self):
        return self._untyped_storage.filename


def from_file(filename, shared=None, size=0, *, dtype=None, layout=None, device=None, pin_memory=False):
    """A tensor over the first `size` elements of a file, which is mapped: torch.from_file("x.bin", size=3).

    shared: writing to the tensor changes the file, which is made as long as that.
    """
    dtype = dtype or _C.get_default_dtype()
    if size < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {size}: [{size}]")
    if size == 0:
        return _C.empty(0, dtype=dtype)
    storage = UntypedStorage.from_file(filename, bool(shared), size * dtype.itemsize)
    return _C._rebuild_tensor(storage, dtype, 0, (size,), (1,))


__getattr__ = _getter(__name__)

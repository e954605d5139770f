"""torch.storage: UntypedStorage is C; TypedStorage, which PyTorch has deprecated, shows a storage as elements, and so do the
classes of old by dtype (FloatStorage, ...). Tests: tests/parity/test_schema_parity.py."""

from . import _C
from ._C import UntypedStorage
from ._names import getter as _getter

__all__ = ["TypedStorage", "UntypedStorage", "from_file"]


_CONVERSIONS = {
    "bfloat16": _C.bfloat16, "bool": _C.bool, "byte": _C.uint8, "char": _C.int8, "complex_double": _C.complex128,
    "complex_float": _C.complex64, "double": _C.float64, "float": _C.float32, "float8_e4m3fn": _C.float8_e4m3fn,
    "float8_e4m3fnuz": _C.float8_e4m3fnuz, "float8_e5m2": _C.float8_e5m2, "float8_e5m2fnuz": _C.float8_e5m2fnuz, "half": _C.float16, "int": _C.int32, "long": _C.int64, "short": _C.int16,
}  # fmt: skip
_LEGACY = {
    "Bool": _C.bool, "Byte": _C.uint8, "Char": _C.int8, "Short": _C.int16, "Int": _C.int32, "Long": _C.int64,
    "Half": _C.float16, "BFloat16": _C.bfloat16, "Float": _C.float32, "Double": _C.float64,
    "ComplexFloat": _C.complex64, "ComplexDouble": _C.complex128,
}  # fmt: skip
_LEGACY_NAMES = {dtype: f"{name}Storage" for name, dtype in _LEGACY.items()}


def _bytes_of(args, dtype, name):
    """The storage that (), (size), (sequence) make."""
    if len(args) > 1:
        raise RuntimeError(
            f"{name} received an invalid combination of arguments. Expected one of:\n * no arguments\n * (int size)\n"
            " * (Sequence data)\n * (*, UntypedStorage wrap_storage)\nToo many positional arguments"
        )
    if not args or isinstance(args[0], int):
        return UntypedStorage((args[0] if args else 0) * dtype.itemsize)
    if isinstance(args[0], TypedStorage):
        return args[0]._untyped_storage
    if not hasattr(args[0], "__len__") or isinstance(args[0], (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(args[0]).__name__}'")
    return _C.tensor(list(args[0]), dtype=dtype).untyped_storage()


class TypedStorage:
    """A storage as elements of one dtype: tensor.storage()[0]"""

    def __init__(self, *args, wrap_storage=None, dtype=None, device=None, _internal=False):
        dtype = type(self).__dict__.get("dtype") or dtype or _C.get_default_dtype()
        name = f"{type(self)}.__new__" if "dtype" in type(self).__dict__ else f"{type(self)}.__init__"
        if wrap_storage is not None and not isinstance(wrap_storage, UntypedStorage):
            raise TypeError(f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage)}")
        self._untyped_storage = _bytes_of(args, dtype, name) if wrap_storage is None else wrap_storage
        self.dtype = dtype

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

    def __eq__(self, other):
        return self is other if not isinstance(other, TypedStorage) else self._cdata == other._cdata

    __hash__ = object.__hash__

    def __repr__(self):
        values = "".join(f" {value}\n" for value in self.tolist())
        return f"{values}[torch.storage.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"

    def __copy__(self):
        return self.clone()

    def __deepcopy__(self, memo):
        memo = memo.setdefault("torch", {})
        if self._cdata not in memo:
            memo[self._cdata] = self.clone()
        return memo[self._cdata]

    is_cuda, is_hpu, is_sparse = property(lambda self: self.device.type == "cuda"), False, False
    device = property(lambda self: self._untyped_storage.device)
    filename = property(lambda self: self._untyped_storage.filename)
    _cdata = property(lambda self: self._untyped_storage._cdata)

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

    def get_device(self):
        return self._elements().get_device()

    def tolist(self):
        return self._elements().tolist()

    def clone(self):
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def cpu(self):
        return self if self.device.type == "cpu" else self._converted(self._elements().cpu())

    def cuda(self, device=None, non_blocking=False):
        return self._converted(self._elements().cuda(device, non_blocking))

    def to(self, *, device, non_blocking=False):
        return self._converted(self._elements().to(device, non_blocking=non_blocking))

    def _converted(self, elements):
        return TypedStorage(wrap_storage=elements.untyped_storage(), dtype=elements.dtype)

    def fill_(self, value):
        self._elements().fill_(value)
        return self

    def copy_(self, source, non_blocking=None):
        mine, theirs = self.nbytes(), source.nbytes()
        if mine != theirs:
            raise RuntimeError(f"size does not match, self was {mine} bytes but src was {theirs} bytes")
        elements = source._elements() if isinstance(source, TypedStorage) else self._converted_bytes(source)
        self._elements().copy_(elements)
        return self

    def _converted_bytes(self, source):
        return _C._rebuild_tensor(source, self.dtype, 0, (len(self),), (1,))

    def resize_(self, size):
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def resizable(self):
        return self._untyped_storage.resizable()

    def is_pinned(self, device="cuda"):
        return self._elements().is_pinned()

    def pin_memory(self, device="cuda"):
        return self._converted(self._elements().pin_memory())

    def pickle_storage_type(self):
        """The name of the class of old for this dtype."""
        if self.dtype not in _LEGACY_NAMES:
            raise KeyError(self.dtype)
        return _LEGACY_NAMES[self.dtype]

    def type(self, dtype=None, non_blocking=False):
        """Its class's name, or a storage of another one."""
        if dtype is None:
            return f"torch.{self.pickle_storage_type()}"
        wanted = dtype.dtype if isinstance(dtype, type) else dtype
        return self._converted(self._elements().to(wanted))

    def is_shared(self):
        return self._untyped_storage.is_shared()

    def share_memory_(self):
        self._untyped_storage.share_memory_()
        return self

    @classmethod
    def from_file(cls, filename, shared, size):
        """Over the first `size` elements of a file."""
        return cls(wrap_storage=UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize))


def _conversion(name, dtype):
    def convert(self):
        return self._converted(self._elements().to(dtype))

    convert.__name__, convert.__qualname__ = name, f"TypedStorage.{name}"
    convert.__doc__ = f"The elements as {dtype}."
    return convert


for _name, _dtype in _CONVERSIONS.items():
    setattr(TypedStorage, _name, _conversion(_name, _dtype))


def _of(storage, dtype):
    """What tensor.storage() gives."""
    return TypedStorage(wrap_storage=storage, dtype=dtype)


class _LegacyMeta(type):
    """FloatStorage is any storage of its dtype."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, TypedStorage) and instance.dtype == cls.dtype


def _legacy(name, dtype):
    members = {"dtype": dtype, "__module__": "torch", "__doc__": f"A storage of {dtype}, with a class of its own."}
    return _LegacyMeta(f"{name}Storage", (TypedStorage,), members)


BoolStorage, ByteStorage, CharStorage, ShortStorage, IntStorage, LongStorage = (
    _legacy(name, _LEGACY[name]) for name in ("Bool", "Byte", "Char", "Short", "Int", "Long")
)
HalfStorage, BFloat16Storage, FloatStorage, DoubleStorage, ComplexFloatStorage, ComplexDoubleStorage = (
    _legacy(name, _LEGACY[name]) for name in ("Half", "BFloat16", "Float", "Double", "ComplexFloat", "ComplexDouble")
)
Storage, StorageBase = FloatStorage, UntypedStorage


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

"""save and load: PyTorch's file formats, without running code from files unless the program trusts them.

A saved file is a zip archive (archive.py): data.pkl holds the object, with tensors as (storage, dtype, offset, size,
stride), and data/0, data/1, ... hold the storages' bytes. Tensors that share a storage share it again after loading.

Needed of the core: `Tensor.untyped_storage()`; `UntypedStorage(nbytes)`; `memoryview(storage)`, writable, and
`storage.nbytes()`, `storage.data_ptr()`; `UntypedStorage._from_bytes(buffer)`, which keeps a writable buffer alive
instead of copying it; and `_rebuild_tensor(storage, dtype, offset, size, stride)`. legacy.py has the format of older files,
unpickler.py reads pickles without running anything, trusted.py with weights_only=False.
"""

from .. import _C
from .._names import getter as _getter

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "safe_globals",
    "save",
]  # fmt: skip

FORMAT_VERSION = 3

# dtype -> the storage class that stands for it in a file. The others are saved as bytes with their dtype beside them.
_STORAGE_NAMES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
    "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}
_DTYPE_NAMES = (
    *_STORAGE_NAMES,
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "uint16",
    "uint32",
    "uint64",
)

_safe_globals = {}  # "module.name" -> what the user has allowed


# ---- what a program allows ----


def _full_name(value):
    return f"{value.__module__}.{value.__qualname__}"


def add_safe_globals(safe_globals):
    """Allows classes and functions, or (one, "its.name.in.files") pairs, to be used by files that are loaded.

    wick.serialization.add_safe_globals([MyConfig])
    """
    for item in safe_globals:
        value, name = item if isinstance(item, tuple) else (item, _full_name(item))
        _safe_globals[name] = value


def get_safe_globals():
    """What add_safe_globals has allowed."""
    return list(_safe_globals.values())


def clear_safe_globals():
    """Takes back all that add_safe_globals has allowed."""
    _safe_globals.clear()


class safe_globals:
    """add_safe_globals for the length of a `with` block.

    with wick.serialization.safe_globals([MyConfig]): state = wick.load("state.pt")
    """

    def __init__(self, safe_globals):
        self.safe_globals = safe_globals

    def __enter__(self):
        self._before = dict(_safe_globals)
        add_safe_globals(self.safe_globals)

    def __exit__(self, exc_type, exc, traceback):
        _safe_globals.clear()
        _safe_globals.update(self._before)


# ---- saving ----


def _view(storage):
    """A storage's bytes."""
    return memoryview(storage).cast("B")


def save(obj, f, pickle_module=None, pickle_protocol=2, _use_new_zipfile_serialization=True):
    """Saves an object of tensors, numbers, text, lists, dicts, ... to a path or a file object.

    wick.save(model.state_dict(), "model.pt")
    """
    import os

    from .legacy import write as write_legacy

    if not isinstance(f, (str, os.PathLike)):
        if _use_new_zipfile_serialization:
            _write(obj, f, "archive", pickle_protocol)
        else:
            write_legacy(obj, f, pickle_protocol)
        return
    path = os.fspath(f)
    prefix = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    with open(path, "wb") as file:
        if _use_new_zipfile_serialization:
            _write(obj, file, prefix or "archive", pickle_protocol)
        else:
            write_legacy(obj, file, pickle_protocol)


def save_with(obj, f, records):
    """save() to a path or a file object, with more records {name: bytes} in the same archive."""
    import os

    if not isinstance(f, (str, os.PathLike)):
        _write(obj, f, "archive", 2, records)
        return
    path = os.fspath(f)
    if os.path.dirname(path) and not os.path.isdir(os.path.dirname(path)):
        raise RuntimeError(f"Parent directory {os.path.dirname(path)} does not exist.")
    with open(path, "wb") as file:
        _write(obj, file, os.path.splitext(os.path.basename(path))[0] or "archive", 2, records)


def _write(obj, file, prefix, protocol, records=None):
    import zlib

    from .archive import ALIGNMENT, Writer
    from .pickler import dump

    data, storages = dump(obj, protocol)
    writer = Writer(file, prefix)
    writer.add("data.pkl", data)
    writer.add(".format_version", b"1")
    writer.add(".storage_alignment", str(ALIGNMENT).encode())
    writer.add("byteorder", b"little")
    mark = zlib.crc32(data)
    for i, (storage, _) in enumerate(storages):
        view = _view(storage)
        mark = zlib.crc32(view[:64], mark)
        writer.add(f"data/{i}", view)
    writer.add("version", b"%d\n" % FORMAT_VERSION)
    writer.add(".data/serialization_id", b"%020d%020d" % (mark, len(data)))
    for name, record in (records or {}).items():
        writer.add(name, record)
    writer.close()


# ---- loading ----

_CUDA_MISSING = (
    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a "
    "CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
)


def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Loads what save() saved, or PyTorch's torch.save, from a path or a file object.

    map_location: a device for all storages, a dict from device to device, or function(storage, location) -> storage or
    None. mmap: map the file instead of reading it. Code in the file is not run: a class that the file needs has to be
    allowed with add_safe_globals. weights_only=False trusts the file, and runs whatever it says.

        model.load_state_dict(wick.load("model.pt", map_location="cpu"))
    """
    import os

    is_path = isinstance(f, (str, os.PathLike))
    if mmap and not is_path:
        raise ValueError("f must be a file path in order to use the mmap argument")
    trust = (pickle_module, pickle_load_args) if weights_only is False else None
    if is_path:
        with open(f, "rb") as file:
            return _load(file, map_location, trust, bool(mmap))
    if not hasattr(f, "read"):
        raise AttributeError(
            f"{type(f).__name__!r} object has no attribute 'read'. You can only torch.load from a file that is "
            "seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
        )
    if not (hasattr(f, "readinto") and hasattr(f, "seek")):
        import io

        f = io.BytesIO(f.read())
    return _load(f, map_location, trust, False)


def _source(file, mapped):
    """Where the archive is read from; a mapped file is writable, and what is written stays in this process."""
    from .archive import FileSource, MemorySource

    source = FileSource(file)
    if mapped and source.size:
        import mmap

        source = MemorySource(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    return source


def _unpickle(data, persistent_load, trust):
    """(object, bytes read) of a pickle; trust: None, or (pickle module, arguments) of a file that is trusted."""
    import pickle

    if trust is None:
        from .unpickler import Unpickler

        reader = Unpickler(data, _find_global, persistent_load)
        try:
            return reader.load(), reader.end
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(_weights_only_text(error)) from None
    import io

    from .trusted import make

    source = io.BytesIO(data)
    return make(source, _find_trusted, persistent_load, trust[0], **trust[1]).load(), source.tell()


def _load(file, map_location, trust, mapped):
    import pickle

    from .archive import Reader

    if not (callable(map_location) or isinstance(map_location, (str, _C.device, dict, type(None)))):
        raise TypeError(f"{type(map_location).__name__!r} object is not callable")
    source = _source(file, mapped)
    head = bytes(source.read(0, min(2, source.size)))
    if head[:1] == b"\x80":
        return _load_legacy(bytes(source.read(0, source.size)), map_location, trust)
    if head != b"PK":
        raise pickle.UnpicklingError("this is not a zip archive of torch.save, and none of the older files of PyTorch")
    return _load_archive(Reader(source, check=not mapped), map_location, trust, mapped)


def load_with(file, map_location):
    """(archive, object) of a file object that save_with() wrote: the records are to be had from the archive."""
    import io

    from .archive import FileSource, Reader

    if not (hasattr(file, "readinto") and hasattr(file, "seek")):
        file = io.BytesIO(file.read())
    archive = Reader(FileSource(file))
    return archive, _load_archive(archive, map_location, None, False)


def _load_archive(archive, map_location, trust, mapped):
    from .archive import TORCHSCRIPT

    if "constants.pkl" in archive:
        raise RuntimeError(TORCHSCRIPT)
    if "byteorder" in archive and bytes(archive.get("byteorder")) != b"little":
        raise RuntimeError("the file was saved on a big-endian machine; wick reads little-endian files only")
    storages = _Storages(archive, map_location, mapped)
    return _unpickle(archive.get("data.pkl"), storages.load, trust)[0]


def _load_legacy(data, map_location, trust):
    from .legacy import read

    def unpickle(source, persistent_load):
        at = source.tell()
        value, size = _unpickle(memoryview(data)[at:], persistent_load or _no_storages, trust)
        source.seek(at + size)
        return value

    def place(size, location):
        target = map_location
        if callable(target) and not isinstance(target, _C.device):
            storage = _C.UntypedStorage(size)
            result = target(storage, location)
            return storage if result is None else result
        if isinstance(target, dict):
            target = target.get(location)
        device = _device(location if target is None else target)
        if device.type == "cuda" and not _cuda_available():
            raise RuntimeError(_CUDA_MISSING)
        return _C.UntypedStorage(size, device=device)

    return read(data, unpickle, place)


def _no_storages(key):
    from pickle import UnpicklingError

    raise UnpicklingError("a storage stands outside of the object")


def _weights_only_text(error):
    return (
        "Weights only load failed. This file can still be loaded, to do so you have two options, \033[1mdo those steps only "
        "if you trust the source of the checkpoint\033[0m. \n\t(1) In PyTorch 2.6, we changed the default value of the "
        "`weights_only` argument in `torch.load` from `False` to `True`. Re-running `torch.load` with `weights_only` set to "
        "`False` will likely succeed, but it can result in arbitrary code execution. Do it only if you got the file from a "
        "trusted source.\n\t(2) Alternatively, to load with `weights_only=True` please check the recommended steps in the "
        f"following error message.\n\tWeightsUnpickler error: {error}\n\nCheck the documentation of torch.load to learn more "
        "about types accepted by default with weights_only https://pytorch.org/docs/stable/generated/torch.load.html."
    )


class _Storages:
    """The storages of one file: each is read once, at its first use."""

    def __init__(self, archive, map_location, mapped):
        self._archive, self._map, self._mapped = archive, map_location, mapped
        self._loaded = {}

    def load(self, key):
        """The storage for the persistent id ("storage", storage class, key, location, number of elements)."""
        from pickle import UnpicklingError

        from ..storage import TypedStorage

        if len(key) != 5 or key[0] != "storage" or not isinstance(key[1], _StorageClass):
            what = repr(key[0]) if key and isinstance(key[0], str) else f"a {type(key[0] if key else key).__name__}"
            raise UnpicklingError(f"Unknown typename for persistent_load, expected 'storage' but got {what}")
        _, kind, name, location, count = key
        if not isinstance(name, str) or not isinstance(location, str) or not isinstance(count, int):
            raise UnpicklingError("a storage's description is damaged")
        if name not in self._loaded:
            size = count * (1 if kind.dtype is None else kind.dtype.itemsize)
            self._loaded[name] = self._placed(f"data/{name}", size, location)
        storage = self._loaded[name]
        return storage if kind.dtype is None else TypedStorage(wrap_storage=storage, dtype=kind.dtype)

    def _read(self, record, size):
        if self._mapped:
            mapped = _C.UntypedStorage._from_bytes(self._archive.get(record))
            if mapped.data_ptr() % 16 == 0:  # a file that save() has not made may have it elsewhere
                return mapped
        storage = _C.UntypedStorage(size)
        if size:
            self._archive.get_into(record, _view(storage))
        return storage

    def _placed(self, record, size, location):
        """The storage on the device that map_location says, or that it was saved from."""
        actual = self._archive.size(record)
        if size != actual:
            raise RuntimeError(f"the storage in {record} should have {size} bytes but the file has {actual}")
        target, storage = self._map, None
        if callable(target) and not isinstance(target, _C.device):
            storage = self._read(record, size)
            result = target(storage, location)
            if result is not None:
                return result
            target = None
        elif isinstance(target, dict):
            target = target.get(location)
        device = _device(location if target is None else target)
        if device.type == "meta":
            return _C.UntypedStorage(size, device="meta")  # the bytes are not read
        if device.type == "cuda" and not _cuda_available():
            raise RuntimeError(_CUDA_MISSING)
        storage = self._read(record, size) if storage is None else storage
        return storage if device.type == "cpu" else storage.to(device=device)


def _device(name):
    try:
        return _C.device(name)
    except RuntimeError:
        raise RuntimeError(
            f"don't know how to restore data location of torch.storage.UntypedStorage (tagged with {name})"
        ) from None


def _cuda_available():
    import wick

    cuda = getattr(wick, "cuda", None)
    return cuda is not None and cuda.is_available()


# ---- the globals of saved files ----


class _StorageClass:
    """torch.FloatStorage and its kin: only a dtype; None for bytes."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.item_size = 1 if dtype is None else dtype.itemsize


def _rebuild_tensor(storage, offset, size, stride, dtype=None):
    import math
    from pickle import UnpicklingError

    from ..storage import TypedStorage

    if isinstance(storage, TypedStorage):
        storage, dtype = storage.untyped(), storage.dtype
    if not isinstance(storage, _C.UntypedStorage):
        raise UnpicklingError("a tensor's storage is missing")
    numbers = (offset, *size, *stride)
    if (
        len(size) != len(stride)
        or any(type(n) is not int or not 0 <= n < 1 << 63 for n in numbers)
        or math.prod(size) >= 1 << 63
    ):
        raise UnpicklingError("a tensor's sizes or strides are damaged")
    dtype = _C.uint8 if dtype is None else dtype
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    has_bytes = storage.device.type != "meta"
    if has_bytes and 0 not in size and (last + 1) * dtype.itemsize > storage.nbytes():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize "
            f"{dtype.itemsize} requiring a storage size of {(last + 1) * dtype.itemsize} are out of bounds for storage "
            f"of size {storage.nbytes()}"
        )
    return _C._rebuild_tensor(storage, dtype, offset, tuple(size), tuple(stride))


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(bool(requires_grad))


def _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None):
    tensor = _rebuild_tensor(storage, storage_offset, size, stride, dtype)
    return tensor.requires_grad_() if requires_grad else tensor


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad):
    from .._tensor import _on_meta

    return _on_meta(dtype, size, stride).requires_grad_(bool(requires_grad))


def _rebuild_from_type_v2(function, new_type, arguments, state):
    """A tensor with attributes, or of a class derived from Tensor. The unpickler has allowed the class by then."""
    from pickle import UnpicklingError

    from ..nn.parameter import Parameter

    makers = (_rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_meta_tensor_no_storage)
    if function not in makers or not (isinstance(new_type, type) and issubclass(new_type, _C.Tensor)):
        raise UnpicklingError("only tensors and parameters can be rebuilt with attributes")
    tensor = function(*arguments)
    if new_type is Parameter:
        tensor = Parameter(tensor, tensor.requires_grad)
    elif new_type is not _C.Tensor:
        tensor = tensor.as_subclass(new_type)
    if hasattr(new_type, "__setstate__"):
        tensor.__setstate__(state)
    else:
        _set_tensor_state(tensor, state)
    return tensor


def _rebuild_sparse_tensor(layout, data):
    from ..sparse import _rebuild

    return _rebuild(layout, data)


def _get_layout(name):
    """ "torch.sparse_coo" as a layout."""
    from pickle import UnpicklingError

    layout = getattr(_C, name.removeprefix("torch."), None)
    if type(layout) is not type(_C.strided):
        raise UnpicklingError(f"{name} is no layout")
    return layout


def _set_tensor_state(tensor, state):
    if isinstance(state, dict):
        tensor.__dict__.update(state)


_table = None


def _globals():
    """(module, name) -> Allowed: the tensor functions and types, made at the first load."""
    global _table
    if _table is not None:
        return _table
    from ..nn.parameter import Parameter, _rebuild_parameter, _rebuild_parameter_with_state
    from .unpickler import Allowed, allow_building

    def function(f):
        return Allowed(f, call=f)

    table = {
        ("torch._utils", "_rebuild_tensor_v2"): function(_rebuild_tensor_v2),
        ("torch._utils", "_rebuild_tensor_v3"): function(_rebuild_tensor_v3),
        ("torch._utils", "_rebuild_meta_tensor_no_storage"): function(_rebuild_meta_tensor_no_storage),
        ("torch._utils", "_rebuild_sparse_tensor"): function(_rebuild_sparse_tensor),
        ("torch.serialization", "_get_layout"): function(_get_layout),
        ("torch._utils", "_rebuild_parameter"): function(_rebuild_parameter),
        ("torch._utils", "_rebuild_parameter_with_state"): function(_rebuild_parameter_with_state),
        ("torch._tensor", "_rebuild_from_type_v2"): function(_rebuild_from_type_v2),
        ("torch", "Size"): function(_C.Size),
        ("torch", "device"): function(_C.device),
        ("torch", "Tensor"): Allowed(_C.Tensor),
        ("torch.nn.parameter", "Parameter"): Allowed(Parameter),
        ("torch.storage", "UntypedStorage"): Allowed(_StorageClass(None)),
    }
    for name, storage in _STORAGE_NAMES.items():
        table["torch", storage] = Allowed(_StorageClass(getattr(_C, name)))
    for name in (*_DTYPE_NAMES, "strided", "contiguous_format", "preserve_format", "channels_last"):
        if hasattr(_C, name):
            table["torch", name] = Allowed(getattr(_C, name))
    allow_building(_C.Tensor, _set_tensor_state)
    _table = table
    return table


def _find_global(module, name):
    from pickle import UnpicklingError

    found = _globals().get((module, name))
    if found is not None:
        return found
    full = f"{module}.{name}"
    user = _safe_globals.get(full)
    if user is None and full.startswith("torch."):  # classes of wick are saved under PyTorch's names
        user = _safe_globals.get("wick" + full.removeprefix("torch"))
    if user is not None:
        return _allowed_by_user(user)
    raise UnpicklingError(
        f"Unsupported global: GLOBAL {full} was not an allowed global by default. Please use "
        f"`torch.serialization.add_safe_globals([{full}])` or the `torch.serialization.safe_globals([{full}])` context "
        "manager to allowlist this global if you trust this class/function."
    )


def _names_in(stream):
    """(module, name) of each global that a pickle names, in order."""
    import pickletools

    found, texts = [], []
    for opcode, argument, _at in pickletools.genops(stream):
        if opcode.name == "GLOBAL":
            found.append(tuple(argument.split(" ", 1)))
        elif opcode.name == "STACK_GLOBAL" and len(texts) > 1:
            found.append((texts[-2], texts[-1]))
        if isinstance(argument, str) and opcode.name != "GLOBAL":
            texts.append(argument)
    return found


def get_unsafe_globals_in_checkpoint(f):
    """What a file of torch.save names that load(weights_only=True) would refuse: ["module.name", ...].

    wick.serialization.get_unsafe_globals_in_checkpoint("state.pt")
    """
    import zipfile

    try:
        with zipfile.ZipFile(f) as archive:
            name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
            names = _names_in(archive.read(name))
    except zipfile.BadZipFile:
        raise ValueError(
            "Expected input to be a checkpoint returned by torch.save but got a torchscript checkpoint or a legacy file"
        ) from None
    from .unpickler import PLAIN_GLOBALS as known

    unsafe = []
    for module, name in names:
        if (module, name) in known:
            continue
        try:
            _find_global(module, name)
        except Exception:
            if f"{module}.{name}" not in unsafe:
                unsafe.append(f"{module}.{name}")
    return unsafe


def _find_trusted(module, name):
    """What a trusted file makes tensors by; None for all else, which is looked up as Python does."""
    from .trusted import rebuild_with_type

    if (module, name) == ("torch._tensor", "_rebuild_from_type_v2"):
        return rebuild_with_type
    found = _globals().get((module, name))
    return None if found is None else found.value


def _allowed_by_user(value):
    from .unpickler import Allowed, allow_building

    if not isinstance(value, type):
        return Allowed(value, call=value)

    def build(target, state):
        if hasattr(target, "__setstate__"):
            target.__setstate__(state)
        elif isinstance(state, tuple) and len(state) == 2:  # (of __dict__, of __slots__)
            target.__dict__.update(state[0] or {})
            for name, item in (state[1] or {}).items():
                setattr(target, name, item)
        else:
            target.__dict__.update(state)

    allow_building(value, build)
    return Allowed(value, call=value, new=lambda cls, *args: cls.__new__(cls, *args))


_no_such_name = _getter(__name__)


def __getattr__(name):
    if name == "MAP_LOCATION":  # the type of load's argument, for annotations
        from collections.abc import Callable

        return Callable[[_C.UntypedStorage, str], _C.UntypedStorage] | _C.device | str | dict[str, str] | None
    return _no_such_name(name)

"""Pickles an object for a saved file: wick's types under PyTorch's names, storages as references to records."""

import io
import pickle
from collections import OrderedDict

from .. import _C
from ..nn.parameter import Parameter
from . import _STORAGE_NAMES


class _Global:
    """A name in a pickle that stands for no object of this process."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self):
        raise TypeError("this only stands for a name")  # pickle wants functions to be callable


def _torch_name(module):
    return "torch" + module.removeprefix("wick") if module == "wick" or module.startswith("wick.") else module


class _Pickler(pickle._Pickler):
    """The pickler in Python: the one in C cannot write a global that it cannot import.

    `storages` collects the storages, each with its elements' size, in the order of their numbers.
    """

    dispatch = dict(pickle._Pickler.dispatch)

    def __init__(self, file, protocol, legacy=False):
        super().__init__(file, protocol)
        self._views = (None,) if legacy else ()  # what the older format says of a storage's part
        self.storages, self._keys, self._globals = [], {}, {}

    def _named(self, module, name):
        """One _Global a name, so that the pickle's memo finds it again."""
        return self._globals.setdefault((module, name), _Global(module, name))

    def persistent_id(self, obj):
        """Storages are saved beside the pickle."""
        return obj.key if isinstance(obj, _StorageReference) else None

    def _reference(self, tensor, kind, element_size):
        storage = tensor.untyped_storage()
        place = (storage.data_ptr(), storage.nbytes(), str(tensor.device))
        if place not in self._keys or place[0] == 0:
            self._keys[place] = str(len(self.storages))
            self.storages.append((storage.cpu() if tensor.device.type != "cpu" else storage, element_size))
        device = tensor.device
        location = device.type if device.type == "cpu" else f"{device.type}:{device.index or 0}"
        count = storage.nbytes() // element_size
        return _StorageReference(("storage", kind, self._keys[place], location, count, *self._views))

    def _reduce_data(self, tensor):
        dtype = str(tensor.dtype).rpartition(".")[2]
        if tensor.device.type == "meta":
            arguments = (tensor.dtype, tuple(tensor.size()), tensor.stride(), tensor.requires_grad)
            return self._named("torch._utils", "_rebuild_meta_tensor_no_storage"), arguments
        if tensor.layout is not _C.strided:
            from ..sparse import reduced

            return self._named("torch._utils", "_rebuild_sparse_tensor"), reduced(tensor)
        layout = (tensor.storage_offset(), tuple(tensor.size()), tensor.stride())
        rest = (tensor.requires_grad, OrderedDict())
        if dtype in _STORAGE_NAMES:
            storage = self._reference(tensor, self._named("torch", _STORAGE_NAMES[dtype]), tensor.element_size())
            return self._named("torch._utils", "_rebuild_tensor_v2"), (storage, *layout, *rest)
        storage = self._reference(tensor, self._named("torch.storage", "UntypedStorage"), 1)
        return self._named("torch._utils", "_rebuild_tensor_v3"), (storage, *layout, *rest, self._named("torch", dtype))

    def _reduce_tensor(self, tensor):
        """A tensor of a class derived from Tensor, or with attributes, is its data with the class and the attributes."""
        kind = type(tensor)
        state = tensor.__getstate__() if "__getstate__" in _names_of(kind) else tensor.__dict__
        if kind is _C.Tensor and not state:
            return self._reduce_data(tensor)
        data = tensor.detach().as_subclass(_C.Tensor).requires_grad_(tensor.requires_grad)
        return self._named("torch._tensor", "_rebuild_from_type_v2"), (*_pair(self._reduce_data(data), kind), state)

    def _reduce_parameter(self, parameter):
        arguments = (parameter.data, parameter.requires_grad, OrderedDict())
        if not parameter.__dict__:
            return self._named("torch._utils", "_rebuild_parameter"), arguments
        return self._named("torch._utils", "_rebuild_parameter_with_state"), (*arguments, dict(parameter.__dict__))

    def reducer_override(self, obj):
        """How wick's types are made again, in PyTorch's words."""
        if isinstance(obj, _C.Tensor):
            own = getattr(type(obj), "__reduce_ex__", None)
            if own not in (_C.Tensor.__reduce_ex__, Parameter.__reduce_ex__):
                return NotImplemented  # a class that says itself how
            return self._reduce_parameter(obj) if isinstance(obj, Parameter) else self._reduce_tensor(obj)
        if isinstance(obj, _C.Size):
            return self._named("torch", "Size"), (tuple(obj),)
        if isinstance(obj, _C.device):
            arguments = (obj.type,) if obj.index is None else (obj.type, obj.index)
            return self._named("torch", "device"), arguments
        return NotImplemented

    def save_name(self, named):
        """Writes a _Global."""
        self._write_global(named, named.module, named.name)

    dispatch[_Global] = save_name

    def save_dtype(self, dtype):
        """Writes a dtype: its name."""
        self._write_global(dtype, "torch", str(dtype).rpartition(".")[2])

    dispatch[_C.dtype] = save_dtype

    def save_layout(self, layout):
        """Writes a layout: PyTorch's function and the name."""
        name = str(layout).rpartition(".")[2]
        self.save_reduce(self._named("torch.serialization", "_get_layout"), (f"torch.{name}",), obj=layout)

    dispatch[type(_C.strided)] = save_layout

    def _write_global(self, obj, module, name):
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    def save_global(self, obj, name=None):
        """Classes and functions of wick go under PyTorch's module names."""
        module = getattr(obj, "__module__", None) or ""
        if _torch_name(module) != module:
            self._write_global(obj, _torch_name(module), name or obj.__qualname__)
        else:
            super().save_global(obj, name)

    def save_type(self, obj):
        """Like pickle's, with our save_global."""
        if obj in (type(None), type(NotImplemented), type(...)):
            super().save_type(obj)
        else:
            self.save_global(obj)

    dispatch[type] = save_type


def _names_of(kind):
    """The names that a class derived from Tensor adds."""
    return {name for base in kind.__mro__[: kind.__mro__.index(_C.Tensor)] for name in vars(base)}


def _pair(reduced, kind):
    """The first arguments of _rebuild_from_type_v2: the function, the class, the function's arguments."""
    function, arguments = reduced
    return function, kind, arguments


class _StorageReference:
    def __init__(self, key):
        self.key = key


def dump(obj, protocol, legacy=False):
    """(pickle, (storage, size of its elements) in the order of their records)."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer, protocol, legacy)
    pickler.dump(obj)
    return buffer.getvalue(), pickler.storages

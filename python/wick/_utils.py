"""torch._utils: what unpickled files and libraries name."""

import functools
import sys
import traceback

from . import _C
from ._names import getter as _getter


def _rebuild_tensor_v2(storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None):
    """A tensor over a storage, as files of state name it."""
    untyped = getattr(storage, "_untyped_storage", storage)
    dtype = getattr(storage, "dtype", _C.uint8)
    return _C._rebuild_tensor(untyped, dtype, storage_offset, size, stride).requires_grad_(requires_grad)


def _rebuild_tensor(storage, storage_offset, size, stride):
    """The same of long ago."""
    return _rebuild_tensor_v2(storage, storage_offset, size, stride, False, None)


def _rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad):
    """A tensor on device meta."""
    from ._tensor import _on_meta

    return _on_meta(dtype, size, stride).requires_grad_(requires_grad)


def _flatten_dense_tensors(tensors):
    """The tensors' elements behind each other."""
    return _C.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat, tensors):
    """Views of the flat tensor, shaped like the tensors."""
    sizes = [t.numel() for t in tensors]
    return tuple(part.view_as(t) for part, t in zip(flat.split(sizes), tensors, strict=True))


def _take_tensors(tensors, size_limit):
    """Groups of tensors of one dtype, each of about so many bytes."""
    groups = {}
    for t in tensors:
        group, size = groups.get(t.dtype, ([], 0))
        if group and size + t.nbytes > size_limit:
            yield group
            group, size = [], 0
        groups[t.dtype] = ([*group, t], size + t.nbytes)
    for group, _ in groups.values():
        if group:
            yield group


class KeyErrorMessage(str):
    """A key whose repr is its text."""

    __slots__ = ()

    def __repr__(self):
        return self


class ExceptionWrapper:
    """An exception of another thread or process, to be raised in this one."""

    def __init__(self, exc_info=None, where="in background"):
        kind, value, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type, self.where = kind, where
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))

    def reraise(self):
        """Raises it here."""
        message = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        try:
            error = self.exc_type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error


def _assert_async(input, assert_msg="Expected Tensor with single nonzero value, but got zero"):
    """Raises an error where a tensor of one element is 0. The CPU has the value at once."""
    if not input:
        raise RuntimeError(assert_msg)


def _get_available_device_type():
    """The accelerator's type: None."""
    return None


def _get_device_index(device, optional=False, allow_cpu=False):
    """A device's number; -1 for the CPU."""
    if isinstance(device, str):
        device = _C.device(device)
    if isinstance(device, _C.device):
        if device.type == "cpu" and not allow_cpu:
            raise ValueError(f"Expected a non cpu device, but got: {device}")
        return -1 if device.type == "cpu" else device.index
    if device is None and not optional:
        raise ValueError("Expected a torch.device with a specified index or an integer, but got:None")
    return device


def get_device_module(device=None):
    """The module of a device's type, torch.cpu for "cpu"; None: that of the accelerator, or else of the CPU."""
    from importlib import import_module

    if device is not None and not isinstance(device, (str, _C.device)):
        raise RuntimeError(f"Invalid value of device '{device}', expect torch.device, str, or None")
    kind = _C.device(device or _get_available_device_type() or "cpu").type
    try:
        return import_module(f"{__package__}.{kind}")
    except ModuleNotFoundError:
        raise RuntimeError(
            f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'."
        ) from None


def _element_size(dtype):
    """Bytes of an element."""
    return dtype.itemsize


class _ClassPropertyDescriptor:
    def __init__(self, fget):
        self.fget = fget

    def __get__(self, instance, owner=None):
        return self.fget.__get__(instance, owner or type(instance))()


def classproperty(func):
    """A property of a class."""
    return _ClassPropertyDescriptor(func if isinstance(func, (classmethod, staticmethod)) else classmethod(func))


def is_compiling():
    """Whether the code that asks is being captured."""
    return _C._is_compiling()


@functools.lru_cache(maxsize=1)
def cpu_count():
    """How many CPUs there are."""
    import os

    return os.cpu_count()


__getattr__ = _getter(__name__)

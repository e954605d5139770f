"""The classes of tensors by dtype that PyTorch keeps from its beginnings: FloatTensor, LongTensor, cuda.HalfTensor.

FloatTensor(2, 3) makes a tensor without values, FloatTensor([1, 2]) one of these; isinstance() asks for dtype and device.
"""

from . import _C

_DTYPES = {
    "Float": _C.float32, "Double": _C.float64, "Half": _C.float16, "BFloat16": _C.bfloat16, "Byte": _C.uint8,
    "Char": _C.int8, "Short": _C.int16, "Int": _C.int32, "Long": _C.int64, "Bool": _C.bool,
}  # fmt: skip


class tensortype(type):
    """The class of these classes."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _C.Tensor) and (instance.dtype, instance.is_cuda) == (cls.dtype, cls.is_cuda)


def _sizes(args):
    """The sizes of FloatTensor(2, 3) or FloatTensor(torch.Size(...)); None when the arguments are values."""
    if all(type(arg) is int for arg in args):
        return args
    if len(args) == 1 and isinstance(args[0], _C.Size):
        return tuple(args[0])
    return None


def _new(cls, *args, device=None, size=None, dtype=None):
    if cls.is_cuda:
        raise TypeError(f"type {cls.__module__}.{cls.__name__} not available. Torch not compiled with CUDA enabled.")
    sizes = _sizes(args) if size is None else tuple(size)
    if sizes is not None:
        return _C.empty(sizes, dtype=cls.dtype)
    if isinstance(args[0], _C.Tensor):
        if args[0].dtype != cls.dtype:
            raise TypeError(f"expected {cls.__name__} (got {args[0].type()})")
        return args[0].detach()
    return _C.tensor(args[0], dtype=cls.dtype)


def make(path):
    """The class "torch.FloatTensor", "torch.cuda.LongTensor", ..."""
    owner, _, name = path.rpartition(".")
    dtype, is_cuda = _DTYPES[name.removesuffix("Tensor")], owner == "torch.cuda"
    members = {"__new__": _new, "__module__": owner, "dtype": dtype, "is_cuda": is_cuda, "layout": _C.strided}
    members["__doc__"] = f"Tensors of dtype {dtype}."
    return tensortype(name, (), members)

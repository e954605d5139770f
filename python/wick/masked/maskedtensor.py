"""MaskedTensor: a tensor with a mask that says which of its elements count.

The object is the data, with a history as any tensor; calls come through __torch_function__, are made with the data as plain
tensors, and what they give gets a mask again. What is masked out stays out: it prints as --, reductions leave it out,
and gradients have the mask of what they belong to. Calls that are not listed here are a TypeError; so are layouts other
than strided. Tests: tests/python/test_masked_tensor.py.
"""

import warnings

from .. import _C
from .._tensor import equal
from . import _reductions

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]

# ---- what calls do with the mask ----

_UNARY = set(
    "abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan atanh arctanh bitwise_not ceil clamp "
    "clip clamp_min clamp_max conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac gelu lgamma "
    "log log10 log1p log2 logit logical_not i0 isnan isinf isfinite nan_to_num neg negative positive pow rad2deg reciprocal relu "
    "round rsqrt sigmoid sign sgn signbit silu sin sinc sinh sqrt square tan tanh trunc".split()
)
_BINARY = set(
    "add atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift div divide floor_divide fmod "
    "logaddexp logaddexp2 logical_and logical_or logical_xor mul multiply nextafter remainder sub subtract true_divide eq ne le "
    "ge greater greater_equal gt less_equal lt less maximum minimum fmax fmin not_equal rsub rdiv rpow pow".split()
)
_ON_BOTH = set(
    "t transpose swapaxes swapdims permute movedim view view_as reshape __getitem__ unsqueeze squeeze expand flatten unflatten ravel "
    "narrow select split chunk tensor_split unbind cat concat concatenate stack hstack vstack index_select diagonal repeat tile flip "
    "roll unfold contiguous clone detach broadcast_to atleast_1d atleast_2d T mT".split()
)
_ON_DATA = set(
    "to type double float half int long short char bool type_as ones_like zeros_like full_like rand_like randn_like empty_like "
    "dropout alpha_dropout copy_ fill_ zero_".split()
)
_SOFTMAX = {"softmax", "log_softmax", "softmin"}
_OF_TENSORS = set(
    "__len__ __hash__ __bool__ __float__ __int__ __index__ __contains__ item dim ndimension size numel nelement element_size stride "
    "storage_offset is_contiguous requires_grad_ is_floating_point is_complex is_signed register_hook retain_grad backward data_ptr "
    "get_device is_same_size sym_size untyped_storage is_nonzero is_tensor broadcast_tensors result_type".split()
)
_DUNDER = {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor", "__truediv__": "div",
           "__invert__": "bitwise_not", "__mod__": "remainder", "__floordiv__": "floor_divide",
           "__rtruediv__": "rdiv"}  # fmt: skip


def _name_of(func):
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        return getattr(func.__self__, "__name__", name)
    if name in _ON_BOTH or name in _OF_TENSORS:
        return name
    if name in _DUNDER:
        return _DUNDER[name]
    if name.startswith("__i") and name.endswith("__") and name[3:-2] in ("add", "sub", "mul", "truediv", "pow"):
        return {"truediv": "div"}.get(name[3:-2], name[3:-2]) + "_"
    if name.startswith("__") and name.endswith("__"):
        return name[3:-2] if name.startswith("__r") and name[3:-2] in ("add", "mul") else name[2:-2]
    return name


def is_masked_tensor(obj):
    """Whether it is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


def _plain(value):
    """The data as a plain tensor with its history; of lists and tuples, of each."""
    if isinstance(value, MaskedTensor):
        return value.as_subclass(_C.Tensor)
    if isinstance(value, (list, tuple)) and not isinstance(value, _C.Size):
        return type(value)(map(_plain, value))
    return value


def _mask(value):
    """The mask in the data's place; all of an ordinary tensor counts."""
    if isinstance(value, MaskedTensor):
        return value._masked_mask
    if isinstance(value, (list, tuple)) and not isinstance(value, _C.Size):
        return type(value)(map(_mask, value))
    return value


def _with_mask(data, mask):
    """A MaskedTensor of data with its history; of tuples, of each."""
    if isinstance(data, (tuple, list)):
        return type(data)(_with_mask(d, m) for d, m in zip(data, mask, strict=True))
    made = data.as_subclass(MaskedTensor)
    made._masked_mask = mask
    return made


def _no_keywords(kwargs, text):
    if kwargs:
        raise ValueError(text)


def _unary(func, args, kwargs):
    _no_keywords(
        {k: v for k, v in kwargs.items() if isinstance(v, _C.Tensor)},
        "MaskedTensor unary ops require that len(kwargs) == 0. If you need support for this, please open an issue on Github.",
    )
    if any(isinstance(a, _C.Tensor) for a in args[1:]):
        raise TypeError("MaskedTensor unary ops do not support additional Tensor arguments")
    return _with_mask(func(*_plain(args), **kwargs), args[0]._masked_mask)


def _binary(func, args, kwargs):
    _no_keywords(kwargs, "len(kwargs) must equal 0")
    if any(isinstance(a, _C.Tensor) for a in args[2:]):
        raise TypeError("MaskedTensor binary ops do not support Tensor arguments aside from the lhs and rhs")
    masks = [a._masked_mask for a in args[:2] if is_masked_tensor(a)]
    if len(masks) == 2 and not (masks[0].shape == masks[1].shape and equal(*masks)):
        raise ValueError("Input masks must match. If you need support for this, please open an issue on Github.")
    result = func(*_plain(args))
    return _with_mask(result, masks[0] if masks[0].shape == result.shape else masks[0].expand(result.shape))


def _on_both(func, args, kwargs):
    data, mask = func(*_plain(args), **kwargs), func(*_mask(args), **kwargs)
    return _with_mask(data, mask)


def _on_data(func, args, kwargs):
    if is_masked_tensor(args[0]):
        if len(args) > 1 and is_masked_tensor(args[1]) and not equal(args[0]._masked_mask, args[1]._masked_mask):
            raise ValueError("args[0] mask and args[1] mask must match but do not")
        return _with_mask(func(*_plain(args), **kwargs), args[0]._masked_mask)
    return NotImplemented


def _where(func, args, kwargs):
    condition, x, y = args
    masks = [_mask(v) if is_masked_tensor(v) else _C.ones(getattr(v, "shape", ()), dtype=_C.bool) for v in (x, y)]
    return _with_mask(func(_plain(condition), _plain(x), _plain(y)), func(_plain(condition), *masks))


def _softmax(name, args, kwargs):
    from .. import masked

    names = dict(zip(("dim", "_stacklevel", "dtype"), args[1:], strict=False)) | kwargs
    mask = args[0]._masked_mask
    result = getattr(masked, name)(_plain(args[0]), names["dim"], dtype=names.get("dtype"), mask=mask)
    return _with_mask(result, mask)


def _in_place(name, func, args, kwargs):
    """The memory is shared, so that what is written to the plain tensor is the object's."""
    outer = name[:-1]
    if outer in _BINARY and len(args) > 1:
        others = [a for a in args[1:] if is_masked_tensor(a)]
        if others and not equal(args[0]._masked_mask, others[0]._masked_mask):
            raise ValueError("Input masks must match. If you need support for this, please open an issue on Github.")
    func(*_plain(args), **kwargs)
    return args[0]


# ---- printing ----


def _element(value, counts, dtype):
    if not counts:
        return "      --"
    return f"{value:8.4f}" if dtype.is_floating_point else str(value)


def _lines(data, mask):
    """The elements of a row in one line; of more dims, rows in brackets of their own."""
    dtype = data.dtype
    if data.dim() == 0:
        return [_element(data.item(), True, dtype) if mask.item() else "--"]
    if data.dim() == 1:
        return ["[" + ", ".join(_element(v, m, dtype) for v, m in zip(data.tolist(), mask.tolist(), strict=True)) + "]"]
    lines, parts = ["["], list(zip(data.unbind(), mask.unbind(), strict=True))
    for i, (part, part_mask) in enumerate(parts):
        inner = ["  " + line for line in _lines(part, part_mask)]
        inner[-1] += "," if i < len(parts) - 1 else ""
        lines += inner
    return [*lines, "]"]


# ---- the class ----

_SUPPORTED = (_C.float16, _C.float32, _C.float64, _C.bool, _C.int8, _C.int16, _C.int32, _C.int64)


def _check(data, mask):
    for name, tensor in (("data", data), ("mask", mask)):
        if not isinstance(tensor, _C.Tensor) or is_masked_tensor(tensor):
            raise TypeError(f"{name} must be a Tensor")
    if data.layout is not mask.layout:
        raise TypeError("data and mask must have the same layout.")
    if data.layout is not _C.strided:
        raise TypeError(f"data layout of {data.layout} is not supported.")
    if mask.dtype is not _C.bool:
        raise TypeError("mask must have dtype bool.")
    if data.dtype not in _SUPPORTED:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.dim() != mask.dim():
        raise ValueError("data.dim() must equal mask.dim()")
    if data.size() != mask.size():
        raise ValueError("data.size() must equal mask.size()")


class MaskedTensor(_C.Tensor):
    """A tensor of which only the elements count where the mask, a bool tensor of its size, is True.

    >>> MaskedTensor(wick.arange(3.0), wick.tensor([True, False, True])).sum()
    MaskedTensor(  2.0000, True)
    """

    def __new__(cls, data, mask, requires_grad=False):
        _check(data, mask)
        if data.requires_grad:
            warnings.warn(
                "It is not recommended to create a MaskedTensor with a tensor that requires_grad. To avoid this, you can use "
                "data.detach().clone()",
                UserWarning,
                stacklevel=2,
            )
        made = data.detach().as_subclass(cls)
        made._masked_mask = mask.detach()
        if requires_grad:
            with _C.DisableTorchFunctionSubclass():
                made.requires_grad_(True)
        return made

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, _name_of(func)
        if any(not issubclass(t, (MaskedTensor, _C.Tensor)) for t in types):
            return NotImplemented
        with _C.DisableTorchFunctionSubclass():
            return _call(name, func, args, kwargs)

    def get_data(self):
        """The data, all of it, with its history."""
        with _C.DisableTorchFunctionSubclass():
            return _plain(self)

    def get_mask(self):
        """The mask."""
        return self._masked_mask

    def to_tensor(self, value):
        """A plain tensor with `value` where the mask is False."""
        return self.get_data().masked_fill(~self._masked_mask, value)

    def to_dense(self):
        """Itself: the layout is strided."""
        return self

    def is_sparse_coo(self):
        """No: the layout is strided."""
        return False

    def is_sparse_csr(self):
        """No: the layout is strided."""
        return False

    @property
    def grad(self):
        """The gradient, with the same mask."""
        with _C.DisableTorchFunctionSubclass():
            found = _C.Tensor.grad.__get__(self)
            return found if found is None or is_masked_tensor(found) else _with_mask(found, self._masked_mask)

    @grad.setter
    def grad(self, value):
        with _C.DisableTorchFunctionSubclass():
            _C.Tensor.grad.__set__(self, _plain(value))

    def __repr__(self, *, tensor_contents=None):
        with _C.DisableTorchFunctionSubclass():
            data, mask = _plain(self).detach(), self._masked_mask
            lines = _lines(data, mask)
            if data.dim() == 0:
                return f"MaskedTensor({lines[0]}, {bool(mask)})"
            return "MaskedTensor(\n" + "\n".join("  " + line for line in lines) + "\n)"

    __str__ = __repr__

    def __format__(self, spec):
        return repr(self)

    def __iter__(self):
        return iter(self.unbind(0))

    def tolist(self):
        """Refused: a list has no place for a mask."""
        raise RuntimeError(".tolist() is not supported for tensor subclasses, got MaskedTensor")

    def numpy(self, *, force=False):
        """Refused: an array has no place for a mask."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses.")

    def __deepcopy__(self, memo):
        return MaskedTensor(self.get_data().detach().clone(), self._masked_mask.clone(), self.requires_grad)

    def __reduce_ex__(self, protocol):
        return MaskedTensor, (self.get_data().detach(), self._masked_mask, self.requires_grad)


def _call(name, func, args, kwargs):
    if name in _reductions.NAMES and args and is_masked_tensor(args[0]):
        data, mask = _reductions.reduce(name, _plain(args[0]), args[0]._masked_mask, args[1:], kwargs)
        return _with_mask(data, mask)
    if name == "where":
        return _where(func, args, kwargs)
    if name in _SOFTMAX:
        return _softmax(name, args, kwargs)
    if name.endswith("_") and not name.startswith("_") and (name[:-1] in _UNARY or name[:-1] in _BINARY):
        return _in_place(name, func, args, kwargs)
    both = len(args) > 1 and any(isinstance(a, _C.Tensor) for a in args[1:2])
    if name in _UNARY and not (both and name in _BINARY) and is_masked_tensor(args[0]):
        return _unary(func, args, kwargs)
    if name in _BINARY:
        return _binary(func, args, kwargs)
    if name in _ON_BOTH:
        return _on_both(func, args, kwargs)
    if name in _ON_DATA:
        return _on_data(func, args, kwargs)
    if name in _OF_TENSORS or getattr(func, "__name__", "") in ("__get__", "__set__"):
        return func(*args, **kwargs)
    return NotImplemented


def masked_tensor(data, mask, requires_grad=False):
    """A MaskedTensor of its own, a leaf: masked_tensor(x, x > 0)."""
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data, mask):
    """A MaskedTensor with the history of data, which gets its gradient: 0 where the mask is False."""
    _check(data, mask)
    mask = mask.detach()
    if data.requires_grad:
        data = _C.where(mask, data, data.detach())  # what is masked out may have any gradient, NaN for one
    return _with_mask(data, mask)

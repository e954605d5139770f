"""Operators on lists of tensors: torch._foreach_add and its kind, with which optimizers of other libraries are written.

_foreach_NAME(lists...) gives a tuple with NAME of each tensor; _foreach_NAME_ writes into the tensors and gives the list
back. What has one operator in the core for the whole list is left to it. Tests: tests/python/test_lists.py.
"""

from .. import _C

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt "
    "sigmoid sign sin sinh sqrt tan tanh trunc"
).split()
# {name: what the second argument may be but a number or a list of them}
_BINARY = {
    "add": ("list", "tensor"), "sub": ("list",), "mul": ("list", "tensor"), "div": ("list", "tensor"),
    "clamp_max": ("list",), "clamp_min": ("list",), "maximum": ("list",), "minimum": ("list",), "pow": ("list",),
}  # fmt: skip
_WITH_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}  # the operators that these are then
_OVERLOADS = {"list": "List", "number": "Scalar", "tensor": "Tensor"}


# ---- arguments ----


def _kind(value):
    """What an argument is: a "tensor", a "list" of tensors, "numbers" or a "number"."""
    if isinstance(value, _C.Tensor):
        return "tensor"
    if isinstance(value, (list, tuple)):
        return "list" if all(isinstance(item, _C.Tensor) for item in value) else "numbers"
    return "number"


def _is_in_core(full, kind):
    """Whether one operator of the core does it for all tensors."""
    try:
        return kind in _OVERLOADS and _C._operator(f"{full}.{_OVERLOADS[kind]}") is not None
    except KeyError:
        return False


def _check_first(name, tensors):
    if _kind(tensors) != "list":
        shown = type(tensors).__name__
        raise TypeError(f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not {shown}")
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")


def _check_lengths(tensors, *others):
    for other in others:
        if _kind(other) == "list" and len(other) != len(tensors):
            raise RuntimeError(
                f"Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}"
            )
        if _kind(other) == "numbers" and len(other) != len(tensors):
            raise RuntimeError("Tensor list must have same number of elements as scalar list.")


def _each(value, count):
    """The value for each of so many tensors."""
    return value if isinstance(value, (list, tuple)) else [value] * count


def _check_scalar(tensor):
    if tensor.dim() or tensor.numel() != 1:
        raise RuntimeError(
            f"scalar tensor expected to be 0 dim but it has {tensor.dim()} dimensions and {tensor.numel()} elements."
        )


# ---- one tensor after the other ----


def _unary(name):
    def apply(self):
        _check_first(f"_foreach_{name}", self)
        results = [getattr(t, name)() for t in self]
        return self if name.endswith("_") else tuple(results)

    return apply


def _call(name, tensor, other, more):
    """tensor.name(other); maximum_ and minimum_ are no methods."""
    plain = name.rstrip("_")
    if plain in _WITH_NUMBERS and not isinstance(other, _C.Tensor):
        return _call(name.replace(plain, _WITH_NUMBERS[plain]), tensor, other, more)
    if plain in _WITH_NUMBERS and name.endswith("_"):
        return getattr(_C, plain)(tensor, other, out=tensor)
    return getattr(tensor, name)(other, **more)


def _binary(name):
    plain, full = name.rstrip("_"), f"_foreach_{name}"
    in_core = [kind for kind in _OVERLOADS if _is_in_core(full, kind)]

    def apply(self, other=None, *, alpha=None, scalar=None, scalars=None, exponent=None):
        other = next((v for v in (other, scalar, scalars, exponent) if v is not None), None)
        if name == "pow" and _kind(self) == "number":
            return tuple(_C.pow(self, t) for t in other)
        _check_first(full, self)
        if isinstance(other, _C.Tensor):
            _check_scalar(other)
            other = other if "tensor" in _BINARY[plain] else other.item()
        kind, more = _kind(other), {} if alpha is None else {"alpha": alpha}
        of_tensors = kind in _BINARY[plain]
        if not (of_tensors or kind in ("number", "numbers")) or more and not (of_tensors and plain in ("add", "sub")):
            raise TypeError(f"{full}() received an invalid combination of arguments")
        _check_lengths(self, other)
        if kind in in_core:
            getattr(_C, full)(self, other, **more)
            return self
        results = [_call(name, t, o, more) for t, o in zip(self, _each(other, len(self)), strict=True)]
        return self if name.endswith("_") else tuple(results)

    return apply


def _fused(name):
    """addcmul and addcdiv: `value` is a number, or one for each tensor as numbers or a tensor of them."""

    def apply(self, tensor1, tensor2, value=1, *, scalars=None):
        _check_first(f"_foreach_{name}", self)
        value = value if scalars is None else scalars
        value = value.tolist() if isinstance(value, _C.Tensor) else value
        _check_lengths(self, tensor1, tensor2, value)
        rows = zip(self, tensor1, tensor2, _each(value, len(self)), strict=True)
        results = [getattr(t, name)(a, b, value=v) for t, a, b, v in rows]
        return self if name.endswith("_") else tuple(results)

    return apply


def _lerp(name):
    in_core = _is_in_core(f"_foreach_{name}", "number")

    def apply(self, tensors1, weight=None, *, weights=None):
        _check_first(f"_foreach_{name}", self)
        weight = weight if weights is None else weights
        _check_lengths(self, tensors1, weight)
        if in_core and _kind(weight) == "number":
            getattr(_C, f"_foreach_{name}")(self, tensors1, weight)
            return self
        rows = zip(self, tensors1, _each(weight, len(self)), strict=True)
        results = [getattr(t, name)(a, w) for t, a, w in rows]
        return self if name.endswith("_") else tuple(results)

    return apply


# ---- the others ----


def _foreach_copy_(self, src, non_blocking=False):
    """Each tensor gets the other's elements."""
    _check_first("_foreach_copy_", self)
    _check_lengths(self, src)
    _C._foreach_copy_(self, src, non_blocking)
    return self


def _foreach_zero_(self):
    """Each tensor becomes 0."""
    _check_first("_foreach_zero_", self)
    for t in self:
        t.zero_()
    return self


def _foreach_clone(self, *, memory_format=None):
    """A copy of each."""
    _check_first("_foreach_clone", self)
    options = {} if memory_format is None else {"memory_format": memory_format}
    return tuple(t.clone(**options) for t in self)


def _foreach_max(self):
    """The largest element of each."""
    _check_first("_foreach_max", self)
    return tuple(t.max() for t in self)


def _foreach_mm(self, mat2):
    """The matrix product of each pair."""
    _check_first("_foreach_mm", self)
    _check_lengths(self, mat2)
    return tuple(_C.mm(a, b) for a, b in zip(self, mat2, strict=True))


def _made():
    """{name: function} of those that are alike."""
    makers = [(_unary, _UNARY), (_binary, _BINARY), (_fused, ("addcmul", "addcdiv")), (_lerp, ("lerp",))]
    made = {}
    for maker, names in makers:
        for name in (*names, *(f"{n}_" for n in names)):
            function = made[f"_foreach_{name}"] = maker(name)
            function.__name__ = function.__qualname__ = f"_foreach_{name}"
            function.__doc__ = f"{name} of each tensor of a list."
    return made


globals().update(_made())

"""What tile kernels are written with: `import triton.language as tl`, or `from wick.tiles import language as tl`.

Values are blocks of elements; a function of this module makes an operation of the kernel that is being built. Rules of
dtypes and shapes, and their errors, are the core's (src/tile/tile.h).
"""

import math as _math
import threading
from types import SimpleNamespace

from wick import _C

_building = threading.local()  # .builder: of the kernel that this thread builds


def _builder():
    try:
        return _building.builder
    except AttributeError:
        raise RuntimeError("functions of wick.tiles.language are called inside of kernels only") from None


# ---- what kernels are built for ----


class constexpr:  # noqa: N801  as the language has it
    """A value that is known when a kernel is built; as an annotation: a parameter that takes such values."""

    def __init__(self, value):
        self.value = value.value if isinstance(value, constexpr) else value

    def __repr__(self):
        return f"constexpr[{self.value}]"

    def __index__(self):
        return self.value

    def __bool__(self):
        return bool(self.value)

    def __eq__(self, other):
        return self.value == _plain(other)

    def __hash__(self):
        return hash(self.value)


def _plain(value):
    return value.value if isinstance(value, constexpr) else value


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    _method = getattr(int if hasattr(int, f"__{_name}__") else float, f"__{_name}__")

    def _forward(self, other, name=f"__{_name}__"):
        return getattr(self.value, name)(_plain(other))

    def _backward(self, other, name=f"__r{_name}__"):
        return getattr(self.value, name)(_plain(other))

    setattr(constexpr, f"__{_name}__", _forward)
    setattr(constexpr, f"__r{_name}__", _backward)
for _name in ("lt", "le", "gt", "ge"):

    def _forward(self, other, name=f"__{_name}__"):
        return getattr(self.value, name)(_plain(other))

    setattr(constexpr, f"__{_name}__", _forward)
constexpr.__neg__ = lambda self: -self.value
constexpr.__invert__ = lambda self: ~self.value


class dtype:  # noqa: N801
    """A dtype of elements; `name` is as the language has it, "fp32"."""

    def __init__(self, name, wick_name, bits, kind):
        self.name, self.wick_name, self.primitive_bitwidth, self.kind = name, wick_name, bits, kind

    @property
    def scalar(self):
        return self

    @property
    def element_ty(self):
        raise AttributeError(f"'{self.name}' is no pointer")

    @property
    def itemsize(self):
        return max(1, self.primitive_bitwidth // 8)

    def is_floating(self):
        return self.kind == "float"

    def is_int(self):
        return self.kind in ("int", "uint")

    def is_int_signed(self):
        return self.kind == "int"

    def is_int_unsigned(self):
        return self.kind == "uint"

    def is_ptr(self):
        return False

    def is_block(self):
        return False

    def __repr__(self):
        return self.name

    def __getattr__(self, name):
        if name.startswith("is_") and name[3:] in _LANGUAGE_NAMES:
            return lambda: self.name == name[3:]
        raise AttributeError(f"'dtype' object has no attribute {name!r}")


class pointer_type:  # noqa: N801
    """The type of pointers to elements of a dtype."""

    primitive_bitwidth = 64

    def __init__(self, element_ty, address_space=1):
        self.element_ty = element_ty

    @property
    def scalar(self):
        return self

    def is_ptr(self):
        return True

    def is_floating(self):
        return False

    def is_int(self):
        return False

    def __eq__(self, other):
        return isinstance(other, pointer_type) and self.element_ty is other.element_ty

    def __hash__(self):
        return hash(("pointer", self.element_ty.name))

    def __repr__(self):
        return f"pointer<{self.element_ty}>"


_DTYPES = [
    ("int1", "bool", 1, "int"), ("int8", "int8", 8, "int"), ("int16", "int16", 16, "int"), ("int32", "int32", 32, "int"),
    ("int64", "int64", 64, "int"), ("uint8", "uint8", 8, "uint"), ("uint16", "uint16", 16, "uint"),
    ("uint32", "uint32", 32, "uint"), ("uint64", "uint64", 64, "uint"), ("fp8e4nv", "float8_e4m3fn", 8, "float"),
    ("fp8e5", "float8_e5m2", 8, "float"), ("fp16", "float16", 16, "float"), ("bf16", "bfloat16", 16, "float"),
    ("fp32", "float32", 32, "float"), ("fp64", "float64", 64, "float"),
]  # fmt: skip
_LANGUAGE_NAMES = {row[0] for row in _DTYPES}
_BY_WICK_NAME = {row[1]: dtype(*row) for row in _DTYPES}
int1, int8, int16, int32, int64 = (_BY_WICK_NAME[n] for n in ("bool", "int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = (_BY_WICK_NAME[n] for n in ("uint8", "uint16", "uint32", "uint64"))
float8e4nv, float8e5 = _BY_WICK_NAME["float8_e4m3fn"], _BY_WICK_NAME["float8_e5m2"]
float16, bfloat16, float32, float64 = (_BY_WICK_NAME[n] for n in ("float16", "bfloat16", "float32", "float64"))
pi32_t = pointer_type(int32)


def _name_of(kind):
    """wick's name of a dtype of the language."""
    kind = _plain(kind)
    if isinstance(kind, dtype):
        return kind.wick_name
    name = str(kind).removeprefix("torch.").removeprefix("wick.")
    if name in _BY_WICK_NAME:
        return name
    raise TypeError(f"{kind!r} is no dtype")


def _list(values):
    return [_plain(v) for v in values]


# ---- values ----


class tensor(_C._TileValue):  # noqa: N801
    """A value of a kernel: a block of elements, or a scalar."""

    @property
    def dtype(self):
        kind = _BY_WICK_NAME[self._dtype]
        return pointer_type(kind) if self._is_pointer else kind

    @property
    def type(self):
        return SimpleNamespace(
            scalar=self.dtype, shape=self._shape, element_ty=getattr(self.dtype, "element_ty", self.dtype)
        )

    @property
    def shape(self):
        return self._shape

    @property
    def numel(self):
        return _math.prod(self._shape)

    @property
    def T(self):  # noqa: N802
        return trans(self)

    def to(self, dtype, fp_downcast_rounding=None, bitcast=False):
        return cast(self, dtype, fp_downcast_rounding, bitcast)

    def __getitem__(self, index):
        out, at = self, 0
        for part in index if isinstance(index, tuple) else (index,):
            part = _plain(part)
            if part is None:
                out = out._builder.expand_dims(out, at)
            elif part is not Ellipsis and part != slice(None):
                raise TypeError(f"unsupported tensor index: {part}")
            at += 1
        return out

    def __neg__(self):
        return self._builder.unary("neg", self)

    def __invert__(self):
        return self._builder.unary("bit_not", self)

    def logical_and(self, other):
        return cast(self, int1) & cast(other, int1)

    def logical_or(self, other):
        return cast(self, int1) | cast(other, int1)

    def __bool__(self):
        raise TypeError("the truth of a tensor is known when the kernel runs: use it in if, while, &, |, tl.where")

    __hash__ = object.__hash__


def _operator(name):
    def forward(self, other):
        return self._builder.binary(name, self, _plain(other))

    def backward(self, other):
        return self._builder.binary(name, _plain(other), self)

    return forward, backward


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift"):
    _forward, _backward = _operator(_name)
    setattr(tensor, f"__{_name}__", _forward)
    setattr(tensor, f"__r{_name}__", _backward)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(tensor, f"__{_name}__", _operator(_name)[0])


def _value(x):
    return x if isinstance(x, tensor) else _builder().constant(_plain(x), None, ())


# ---- programs, numbers, shapes ----


def program_id(axis):
    """Which program instance this is, along an axis of the grid."""
    return _builder().program_id(_plain(axis))


def num_programs(axis):
    return _builder().num_programs(_plain(axis))


def arange(start, end):
    """start, start + 1, ..., end - 1; a power of two of them."""
    start, end = _plain(start), _plain(end)
    if not isinstance(start, int) or not isinstance(end, int):
        raise ValueError("arange's arguments must be of type tl.constexpr")
    return _builder().arange(start, end)


def full(shape, value, dtype):
    """A block of one number."""
    value = _plain(value)
    if isinstance(value, tensor):
        return broadcast_to(cast(value, dtype), shape)
    return _builder().constant(value, _name_of(dtype), _shape(shape))


def zeros(shape, dtype):
    return full(shape, 0, dtype)


def zeros_like(input):
    return full(input.shape, 0, input.dtype)


def _shape(shape):
    return _list(shape) if isinstance(shape, (tuple, list)) else [_plain(shape)]


def _sizes(shape):
    return _shape(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)


def broadcast_to(input, *shape):
    return _builder().broadcast(_value(input), _sizes(shape))


def broadcast(input, other):
    return tuple(_builder().broadcast_pair(input, _plain(other)))


def reshape(input, *shape, can_reorder=False):
    return _builder().view(input, _sizes(shape))


def view(input, *shape):
    return reshape(input, *shape)


def ravel(x):
    return reshape(x, [x.numel])


def expand_dims(input, axis):
    for at in sorted(_list(axis)) if isinstance(axis, (tuple, list)) else [_plain(axis)]:
        input = _builder().expand_dims(input, at)
    return input


def permute(input, *dims):
    return _builder().permute(input, _sizes(dims))


def trans(input, *dims):
    """Another order of the dims; without one the last two change places."""
    order = _sizes(dims) if dims else None
    if order is None:
        n = len(input.shape)
        if n < 2:
            raise ValueError("tl.trans invoked with a 0- or 1-dimensional tensor")
        order = [*range_(n - 2), n - 1, n - 2]
    return _builder().permute(input, order)


range_ = range


def cast(input, dtype, fp_downcast_rounding=None, bitcast=False):
    dtype, input = _plain(dtype), _value(input)
    if isinstance(dtype, pointer_type):
        return _builder().cast(input, dtype.element_ty.wick_name, "pointer")
    return _builder().cast(input, _name_of(dtype), "bits" if _plain(bitcast) else "value")


# ---- elements ----


def _unary(name, words):
    def function(x):
        return _builder().unary(name, _value(x))

    function.__name__, function.__doc__ = name, words
    return function


exp, exp2, log, log2 = (_unary(n, f"{n} of each element.") for n in ("exp", "exp2", "log", "log2"))
sin, cos, sqrt, rsqrt = (_unary(n, f"{n} of each element.") for n in ("sin", "cos", "sqrt", "rsqrt"))
abs, floor, ceil, erf = (_unary(n, f"{n} of each element.") for n in ("abs", "floor", "ceil", "erf"))
sqrt_rn = _unary("sqrt", "The square root, rounded to nearest.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
_tanh, _trunc, _round = (_unary(n, n) for n in ("tanh", "trunc", "round"))
_expm1, _log1p, _isnan = (_unary(n, n) for n in ("expm1", "log1p", "isnan"))


def fdiv(x, y, ieee_rounding=False):
    return _builder().binary("truediv", _plain(x), _plain(y))


def div_rn(x, y):
    return _builder().binary("truediv", _plain(x), _plain(y))


def maximum(x, y, propagate_nan=None):
    """The larger; a NaN where one of them is."""
    return _builder().binary("maximum", _plain(x), _plain(y))


def minimum(x, y, propagate_nan=None):
    return _builder().binary("minimum", _plain(x), _plain(y))


def clamp(x, min, max, propagate_nan=None):
    return minimum(maximum(x, min), max)


def fma(x, y, z):
    return _builder().fma(_plain(x), _plain(y), _plain(z))


def where(condition, x, y):
    return _builder().where(_plain(condition), _plain(x), _plain(y))


def cdiv(x, div):
    """x / div, rounded up."""
    return (_plain(x) + (_plain(div) - 1)) // _plain(div)


def softmax(x, dim=None, keep_dims=False, ieee_rounding=False):
    at = _plain(dim) or 0
    e = exp(x - max(x, at, keep_dims=True))
    return e / sum(e, at, keep_dims=True)


# ---- memory ----


class block_type:  # noqa: N801
    """A block of a tensor in memory, told by offsets: what make_block_ptr() and make_tensor_descriptor() give.

    Its offsets are what a loop changes; `flatten` and `rebuild` are for the walk, which carries them.
    """

    def __init__(self, base, shape, strides, offsets, block_shape, checks_all):
        self.base, self.shape, self.strides = base, _list(shape), _list(strides)
        self.offsets, self.block_shape, self.checks_all = tuple(_list(offsets)), _list(block_shape), checks_all
        if not len(self.shape) == len(self.strides) == len(self.offsets) == len(self.block_shape):
            raise ValueError("shape, strides, offsets and block_shape of a block have to be of one length")

    @property
    def dtype(self):
        return self.base.dtype.element_ty

    @property
    def type(self):
        return SimpleNamespace(element_ty=self.dtype, scalar=self.base.dtype, shape=tuple(self.block_shape))

    def flatten(self):
        return list(self.offsets)

    def rebuild(self, leaves):
        return block_type(self.base, self.shape, self.strides, leaves, self.block_shape, self.checks_all)

    def places(self, checked):
        """Pointers, and a mask for the dims that are checked (or None)."""
        pointer, mask, ndim = self.base, None, len(self.shape)
        for d in range_(ndim):
            at = arange(0, self.block_shape[d]) + self.offsets[d]
            for e in range_(ndim):
                at = at if e == d else at._builder.expand_dims(at, e)
            pointer = pointer + (cast(at, int64) if _is_wide(self.strides[d]) else at) * self.strides[d]
            if d in checked:
                inside = (at >= 0) & (at < self.shape[d])
                mask = inside if mask is None else mask & inside
        return pointer, None if mask is None else broadcast_to(mask, self.block_shape)

    def load(self, offsets):
        """Of a descriptor: the block at the offsets, 0 where it is outside."""
        pointer, mask = self.rebuild(offsets).places(range_(len(self.shape)))
        return _builder().load(pointer, mask, 0)

    def store(self, offsets, value):
        pointer, mask = self.rebuild(offsets).places(range_(len(self.shape)))
        return _builder().store(pointer, value, mask)


tensor_descriptor = block_type


def _is_wide(stride):
    return isinstance(stride, tensor) and stride._dtype == "int64"


def make_block_ptr(base, shape, strides, offsets, block_shape, order):
    """A pointer to a block of a tensor, for load, store and advance. The order is found out."""
    return block_type(base, shape, strides, offsets, block_shape, False)


def advance(base, offsets):
    """The block pointer that is so much further."""
    return base.rebuild([a + b for a, b in zip(base.offsets, _list(offsets), strict=True)])


def make_tensor_descriptor(base, shape, strides, block_shape, padding_option="zero"):
    """A tensor whose blocks are loaded and stored by their offsets: d.load([i, j]), d.store([i, j], value)."""
    return block_type(base, shape, strides, [0] * len(shape), block_shape, True)


def load_tensor_descriptor(desc, offsets):
    return desc.load(offsets)


def store_tensor_descriptor(desc, offsets, value):
    return desc.store(offsets, value)


def _checked(boundary_check):
    checked = _plain(boundary_check)
    return _list(checked) if isinstance(checked, (tuple, list)) else [checked]


def load(pointer, mask=None, other=None, boundary_check=(), padding_option="", cache_modifier="", eviction_policy="",
         volatile=False):  # fmt: skip
    """Elements at pointers, where the mask is true; elsewhere `other`, or 0. Of a block pointer: of its block."""
    if isinstance(pointer, block_type):
        if _plain(mask) is not None or _plain(other) is not None:
            raise ValueError("`mask` and `other` arguments cannot be specified for loading block pointers")
        places, inside = pointer.places(_checked(boundary_check))
        padding = float("nan") if _plain(padding_option) == "nan" and inside is not None else None
        return _builder().load(places, inside, padding)
    return _builder().load(pointer, _plain(mask), _plain(other))


def store(pointer, value, mask=None, boundary_check=(), cache_modifier="", eviction_policy=""):
    if isinstance(pointer, block_type):
        if _plain(mask) is not None:
            raise ValueError("`mask` and `other` arguments cannot be specified for storing block pointers")
        places, inside = pointer.places(_checked(boundary_check))
        return _builder().store(places, _plain(value), inside)
    return _builder().store(pointer, _plain(value), _plain(mask))


def _atomic(name):
    def function(pointer, val, mask=None, sem=None, scope=None):
        return _builder().atomic(name, pointer, _plain(val), _plain(mask), None)

    function.__name__ = f"atomic_{name}"
    function.__doc__ = f"{name} at each pointer, as one step; gives what was there."
    return function


atomic_add, atomic_max, atomic_min = _atomic("add"), _atomic("max"), _atomic("min")
atomic_and, atomic_or, atomic_xor, atomic_xchg = _atomic("and"), _atomic("or"), _atomic("xor"), _atomic("xchg")


def atomic_cas(pointer, cmp, val, sem=None, scope=None):
    """Stores `val` where `cmp` was, as one step; gives what was there."""
    return _builder().atomic("cas", pointer, _plain(val), None, _plain(cmp))


def debug_barrier():
    return _builder().barrier()


# ---- across elements ----


def _reduction(name):
    def function(input, axis=None, keep_dims=False, **_):
        axis, keep = _plain(axis), bool(_plain(keep_dims))
        if axis is not None:
            return _builder().reduce(name, input, axis, keep)
        ndim = len(input.shape)
        out = _builder().reduce(name, ravel(input) if ndim > 1 else input, 0, False)
        return reshape(broadcast_to(out, [1]), [1] * ndim) if keep else out

    function.__name__ = name
    function.__doc__ = f"{name} along an axis, or of all elements."
    return function


sum, min, xor_sum = _reduction("sum"), _reduction("min"), _reduction("xor_sum")
argmax, argmin = _reduction("argmax"), _reduction("argmin")
_max, _min = _reduction("max"), min


def max(input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    """The largest along an axis, or of all elements; with its index."""
    out = _max(input, axis, keep_dims)
    return (out, argmax(input, axis, keep_dims=keep_dims)) if _plain(return_indices) else out


def min(input, axis=None, return_indices=False, return_indices_tie_break_left=True, keep_dims=False):
    out = _min(input, axis, keep_dims)
    return (out, argmin(input, axis, keep_dims=keep_dims)) if _plain(return_indices) else out


def cumsum(input, axis=0, reverse=False, dtype=None):
    """The sums up to each element, along an axis."""
    out = _builder().scan("sum", input, _plain(axis), bool(_plain(reverse)))
    return out if _plain(dtype) is None else cast(out, dtype)


def cumprod(input, axis=0, reverse=False):
    return _builder().scan("prod", input, _plain(axis), bool(_plain(reverse)))


def dot(input, other, acc=None, input_precision=None, allow_tf32=None, max_num_imprecise_acc=None, out_dtype=float32):
    """The product of two matrices, added to `acc`. fp32 operands are multiplied as fp32, whatever the precision asked for."""
    name = None if _plain(out_dtype) is float32 else _name_of(out_dtype)
    return _builder().dot(input, other, _plain(acc), name)


# ---- random numbers: Philox, as Triton numbers its draws ----


def randint4x(seed, offset, n_rounds=10):
    return tuple(_builder().philox(_plain(seed), _plain(offset), word) for word in range_(4))


def randint(seed, offset, n_rounds=10):
    return _builder().philox(_plain(seed), _plain(offset), 0)


def uint_to_uniform_float(x):
    """[0, 1) of 32 random bits."""
    x = cast(x, int32, bitcast=True)
    x = where(x < 0, -x - 1, x)
    return cast(x, float32) * 4.6566127342e-10


def rand(seed, offset, n_rounds=10):
    return uint_to_uniform_float(randint(seed, offset))


def rand4x(seed, offsets, n_rounds=10):
    return tuple(uint_to_uniform_float(word) for word in randint4x(seed, offsets))


def pair_uniform_to_normal(u1, u2):
    """Two normal numbers of two uniform ones (Box and Muller)."""
    u1 = maximum(u1, 1.0e-7)
    angle, radius = u2 * 6.283185307179586, sqrt(log(u1) * -2.0)
    return radius * cos(angle), radius * sin(angle)


def randn(seed, offset, n_rounds=10):
    words = randint4x(seed, offset)
    return pair_uniform_to_normal(uint_to_uniform_float(words[0]), uint_to_uniform_float(words[1]))[0]


# ---- hints, and what is known while building ----


def multiple_of(input, values):
    return input


def max_contiguous(input, values):
    return input


def max_constancy(input, values):
    return input


def assume(cond):
    return None


def static_assert(cond, msg=""):
    if not _plain(cond):
        raise AssertionError(_plain(msg))


def static_print(*values, **_):
    print(*map(_plain, values))


def device_assert(cond, msg="", mask=None):
    """Not checked."""


def device_print(prefix, *values, **_):
    """Prints nothing."""


class static_range:  # noqa: N801
    """range() whose body is written out once for each number."""

    def __init__(self, *bounds):
        self.bounds = bounds


class range(static_range):  # noqa: A001, N801
    """range() with hints for pipelining, which are not followed."""

    def __init__(self, arg1, arg2=None, step=None, num_stages=None, loop_unroll_factor=None, **_):
        self.bounds = (arg1,) if arg2 is None else (arg1, arg2) if step is None else (arg1, arg2, step)


for _name in ("sum", "max", "min", "argmax", "argmin", "xor_sum", "cumsum", "cumprod", "exp", "exp2", "log", "log2", "sin", "cos",
              "sqrt", "rsqrt", "abs", "floor", "ceil", "erf", "sigmoid", "softmax", "cdiv", "broadcast_to", "reshape", "view",
              "expand_dims", "permute", "trans", "ravel", "cast", "store", "atomic_add", "atomic_cas", "atomic_xchg"):  # fmt: skip
    if _name != "view":
        setattr(tensor, _name, globals()[_name])
tensor.view = view

math = SimpleNamespace(
    exp=exp, exp2=exp2, log=log, log2=log2, sin=sin, cos=cos, sqrt=sqrt, rsqrt=rsqrt, abs=abs, floor=floor, ceil=ceil,
    erf=erf, fma=fma, fdiv=fdiv, div_rn=div_rn, sqrt_rn=sqrt_rn, tanh=_tanh, max=maximum, min=minimum,
)  # fmt: skip
libdevice = SimpleNamespace(
    **vars(math), trunc=_trunc, rint=_round, expm1=_expm1, log1p=_log1p, isnan=_isnan,
    pow=lambda x, y: _builder().binary("pow", _plain(x), _plain(y)),
)  # fmt: skip
extra = SimpleNamespace(libdevice=libdevice, cuda=SimpleNamespace(libdevice=libdevice))

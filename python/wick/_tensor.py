"""Functions and Tensor methods that are more Python than arithmetic: comparisons that give a bool, pickling."""

from . import _C
from ._C import Tensor
from ._names import mark_missing_methods, without_missing


def numel(input):
    """The number of elements."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _C._dispatch_torch_function(numel, (input,), (input,), {})
    return input.numel()


def broadcast_shapes(*shapes):
    """The shape that tensors of these shapes have beside each other; an int stands for one dim.

    >>> broadcast_shapes((2, 1), (3,))
    torch.Size([2, 3])
    """
    shapes = [shape if isinstance(shape, (tuple, list)) else (shape,) for shape in shapes]
    result = [1] * max(map(len, shapes), default=0)
    for number, shape in enumerate(shapes):
        for at in range(-1, -1 - len(shape), -1):
            if shape[at] < 0:
                raise ValueError("Attempting to broadcast a dimension with negative length!")
            if shape[at] == 1 or shape[at] == result[at]:
                continue
            if result[at] != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {shape[at]} at {at}! Mismatching argument at index "
                    f"{number} had {shape}; but expected shape should be broadcastable to {result}"
                )
            result[at] = shape[at]
    return _C.Size(result)


def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """True when all elements are close: see isclose.

    >>> allclose(tensor([1.0]), tensor([1.1]))
    False
    """
    if _C._overrides and _C._has_torch_function_variadic(input, other):
        kwargs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
        return _C._dispatch_torch_function(allclose, (input, other), (input, other), kwargs)
    return bool(_C.isclose(input, other, rtol, atol, equal_nan).all())


def equal(input, other):
    """True for the same sizes and elements.

    >>> equal(tensor([1, 2]), tensor([1, 2]))
    True
    """
    if _C._overrides and _C._has_torch_function_variadic(input, other):
        return _C._dispatch_torch_function(equal, (input, other), (input, other), {})
    for position, value in enumerate((input, other)):
        if not isinstance(value, Tensor):
            name, kind = ("input", "other")[position], type(value).__name__
            raise TypeError(f"equal(): argument '{name}' (position {position + 1}) must be Tensor, not {kind}")
    return input.shape == other.shape and bool((input == other).all())


def nonzero(input, *, as_tuple=False, out=None):
    """Where the elements are that are not 0: a row for each, or a tuple with a tensor for each dim."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _C._dispatch_torch_function(nonzero, (input,), (input,), {"as_tuple": as_tuple})
    if as_tuple is not False and as_tuple is not True:
        raise TypeError(f"nonzero(): argument 'as_tuple' must be bool, not {type(as_tuple).__name__}")
    if not as_tuple:
        return _C.nonzero(input) if out is None else _C.nonzero(input, out=out)
    return _C.where(input)


def _check_matrix_norm(input, order, dims):
    """Why a norm by name is not that of a vector, or not there."""
    if order not in ("fro", "nuc"):
        raise RuntimeError(f"linalg.matrix_norm: Order {order} not supported.")
    if input.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dims))}")
    if dims[0] % input.ndim == dims[1] % input.ndim:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dims[0]}, {dims[1]})")


def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """(sum |x|^p)^(1/p) over all elements or over `dim`; "fro" and None stand for 2.

    >>> norm(tensor([3.0, 4.0]))
    tensor(5.)
    """
    if _C._overrides and _C._has_torch_function_variadic(input):
        kwargs = {"p": p, "dim": dim, "keepdim": keepdim, "out": out, "dtype": dtype}
        return _C._dispatch_torch_function(norm, (input,), (input,), kwargs)
    dims = [dim] if isinstance(dim, int) else dim
    if isinstance(p, str):
        if p != "fro" or (dims is not None and len(dims) > 2):
            _check_matrix_norm(input, p, range(input.ndim) if dims is None else dims)
            if p == "nuc":
                from .linalg import matrix_norm

                return matrix_norm(input, p, (0, 1) if dims is None else dims, keepdim, dtype=dtype, out=out)
        p = 2
    elif p is None:
        p = 2
    if out is None:
        return _C.linalg_vector_norm(input, p, dims, keepdim, dtype=dtype)
    return _C.linalg_vector_norm(input, p, dims, keepdim, dtype=dtype, out=out)


def _norm(self, p="fro", dim=None, keepdim=False, dtype=None):
    """See wick.norm."""
    if _C._overrides and _C._has_torch_function_variadic(self):
        kwargs = {"p": p, "dim": dim, "keepdim": keepdim, "dtype": dtype}
        return _C._dispatch_torch_function(Tensor.norm, (self,), (self,), kwargs)
    return norm(self, p, dim, keepdim, dtype=dtype)


_norm.__name__, _norm.__qualname__ = "norm", "Tensor.norm"


def _where(self, condition, other):
    return _C.where(condition, self, other)


_where.__name__, _where.__qualname__ = "where", "Tensor.where"


def _on_meta(dtype, size, stride):
    """A tensor without bytes."""
    reach = sum((n - 1) * step for n, step in zip(size, stride, strict=True)) + 1 if 0 not in size else 0
    storage = _C.UntypedStorage(reach * dtype.itemsize, device="meta")
    return _C._rebuild_tensor(storage, dtype, 0, tuple(size), tuple(stride))


def _rebuild(kind, storage, dtype, size, stride, requires_grad, attributes):
    """A tensor over the bytes that it reaches; without bytes on device meta."""
    if storage is None:
        t = _on_meta(dtype, size, stride)
    else:
        t = _C._rebuild_tensor(storage, dtype, 0, size, stride)
    t = Tensor._make_subclass(kind, t, requires_grad)
    t.__dict__.update(attributes)
    return t


def _reached(self):
    """A storage with the bytes from the tensor's first element to its last."""
    item, reach = (
        self.element_size(),
        sum((n - 1) * step for n, step in zip(self.shape, self.stride(), strict=True)) + 1,
    )
    start = self.storage_offset() * item
    return self.untyped_storage()[start : start + (reach * item if self.numel() else 0)]


def _reduce(self, protocol):
    if _C._overrides and _C._has_torch_function_variadic(self):
        return _C._dispatch_torch_function(Tensor.__reduce_ex__, (self,), (self, protocol), {})
    if self.layout is not _C.strided:
        from .sparse import _rebuild_with, reduced

        return _rebuild_with, (*reduced(self), self.requires_grad)
    storage = None if self.device.type == "meta" else _reached(self.detach().cpu())
    layout = (self.dtype, tuple(self.shape), self.stride())
    return _rebuild, (type(self), storage, *layout, self.requires_grad, self.__dict__)


def _array_wrap(self, array, context=None, return_scalar=False):
    """What NumPy's functions make of tensors is a tensor again; truth comes as uint8, as in PyTorch."""
    if _C._overrides and _C._has_torch_function_variadic(self):
        return _C._dispatch_torch_function(Tensor.__array_wrap__, (self,), (self,), {"array": array})
    if array.dtype == bool:
        array = array.astype("uint8")
    return _C.from_numpy(array)


_array_wrap.__name__, _array_wrap.__qualname__ = "__array_wrap__", "Tensor.__array_wrap__"


# ---- methods that are functions of functional.py, which is loaded when one is first called ----

_FUNCTION_METHODS = ("unique", "unique_consecutive")


def _function_method(name):
    def method(self, *args, **kwargs):
        if _C._overrides and _C._has_torch_function_variadic(self):
            return _C._dispatch_torch_function(method, (self,), (self, *args), kwargs)
        from . import functional

        return getattr(functional, name)(self, *args, **kwargs)

    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    return method


_STATISTICS = ("resize_", "resize_as_")


def _method_of(module, name):
    def method(self, *args, **kwargs):
        if _C._overrides and _C._has_torch_function_variadic(self):
            return _C._dispatch_torch_function(method, (self,), (self, *args), kwargs)
        from importlib import import_module

        where = f"wick.functions.{module}" if module else "wick.sparse"
        return getattr(import_module(where), name)(self, *args, **kwargs)

    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    return method


_LINEAR_ALGEBRA = (
    "cholesky cholesky_inverse cholesky_solve det inverse logdet lu lu_solve matrix_exp matrix_power orgqr ormqr pinverse qr "
    "slogdet svd triangular_solve"
).split()
for _name in _STATISTICS:
    setattr(Tensor, _name, _method_of("statistics", _name))
for _name in ("istft", "stft"):
    setattr(Tensor, _name, _method_of("spectra", _name))
for _name in _LINEAR_ALGEBRA:
    setattr(Tensor, _name, _method_of("linear_algebra", _name))
for _name in (
    "argwhere fill_diagonal_ get_device is_distributed is_nonzero is_same_size narrow_copy nonzero_static"
).split():
    setattr(Tensor, _name, _method_of("predicates", _name))
for _name in "eig lstsq solve symeig".split():
    setattr(Tensor, _name, _method_of("removed", _name))
Tensor.__div__, Tensor.__idiv__, Tensor.__rdiv__ = Tensor.__truediv__, Tensor.__itruediv__, Tensor.__rtruediv__
own_addbmm_ = Tensor.addbmm_  # the operator's, which takes a self of the result's size
for _name in (
    "addbmm_ apply_ dim_order is_pinned is_set_to map2_ map_ module_load new_empty_strided pin_memory reinforce resize resize_as "
    "set_ storage_type"
).split():
    setattr(Tensor, _name, _method_of("methods", _name))
for _name in _FUNCTION_METHODS:
    setattr(Tensor, _name, _function_method(_name))


def _polygamma(self, n):
    """See wick.polygamma."""
    return _C.polygamma(n, self)


_polygamma.__name__, _polygamma.__qualname__ = "polygamma", "Tensor.polygamma"
Tensor.polygamma = _polygamma


def _polygamma_(self, n):
    """See wick.polygamma; writes self."""
    return self.copy_(_C.polygamma(n, self))


_polygamma_.__name__, _polygamma_.__qualname__ = "polygamma_", "Tensor.polygamma_"
Tensor.polygamma_ = _polygamma_


def _new(self, *args, **kwargs):
    """A tensor of self's dtype: of these sizes or values."""
    if not args:
        return self.new_empty((0,))
    if all(type(arg) is int for arg in args) or type(args[0]) is _C.Size:
        return self.new_empty(*args)
    return self.new_tensor(args[0])


_new.__name__, _new.__qualname__ = "new", "Tensor.new"
Tensor.new = _new


def _share_memory(self):
    """Moves the tensor's storage into memory that processes share; gives the tensor."""
    if _C._overrides and _C._has_torch_function_variadic(self):
        return _C._dispatch_torch_function(Tensor.share_memory_, (self,), (self,), {})
    if self.device.type == "meta":
        raise RuntimeError("_share_fd_: only available on CPU")
    self.detach().untyped_storage().share_memory_()
    return self


_share_memory.__name__, _share_memory.__qualname__ = "share_memory_", "Tensor.share_memory_"


def _is_shared(self):
    """Whether the tensor's storage is in memory that processes share."""
    if _C._overrides and _C._has_torch_function_variadic(self):
        return _C._dispatch_torch_function(Tensor.is_shared, (self,), (self,), {})
    return self.device.type != "meta" and self.detach().untyped_storage().is_shared()


_is_shared.__name__, _is_shared.__qualname__ = "is_shared", "Tensor.is_shared"


def _record_stream(self, s):
    """Memory of this tensor is not given out again before the work that a stream has when the tensor goes."""
    s._note_use(self)


def _to_dense(self, dtype=None, *, masked_grad=None):
    """The tensor, all of whose elements lie in memory as they are; of another dtype, a copy."""
    if self.layout is not _C.strided:
        from .sparse import to_dense

        return to_dense(self, dtype)
    return self if dtype is None else self.to(dtype)


_SPARSE = (
    "_coalesced_ _indices _nnz _values ccol_indices coalesce col_indices crow_indices dense_dim indices is_coalesced "
    "resize_as_sparse_ row_indices smm sparse_dim sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm to_sparse "
    "to_sparse_coo to_sparse_csc to_sparse_csr values"
).split()
for _name in _SPARSE:
    setattr(Tensor, _name, _method_of("", _name))


def _dequantize(self):
    """As float32."""
    return self.to(_C.float32)


Tensor.dequantize, Tensor.hash_tensor = _dequantize, _method_of("hashes", "hash_tensor")
Tensor.to_dense, Tensor.record_stream = _to_dense, _record_stream
Tensor.__cuda_array_interface__ = property(_method_of("methods", "cuda_array_interface"))
Tensor.share_memory_, Tensor.is_shared = _share_memory, _is_shared
Tensor.__reduce_ex__ = _reduce
Tensor.__array_priority__ = 1000  # before arrays and scalars of NumPy: np.float64(2) * tensor is ours to compute
Tensor.__array_wrap__ = _array_wrap
Tensor.allclose, Tensor.equal, Tensor.where = allclose, equal, _where
Tensor.nonzero, Tensor.norm = nonzero, _norm


def _dir(self):
    """The names that are there, without those that only PyTorch has."""
    if _C._overrides and _C._has_torch_function_variadic(self):
        return _C._dispatch_torch_function(Tensor.__dir__, (self,), (self,), {})
    return without_missing(Tensor, object.__dir__(self))


_dir.__name__, _dir.__qualname__ = "__dir__", "Tensor.__dir__"
Tensor.__dir__ = _dir
mark_missing_methods(Tensor)

"""torch.sparse: tensors of which most elements are zero and not stored, in the layouts COO, CSR and CSC.

s = wick.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)); wick.sparse.mm(s, wick.ones(3, 2))
"""

from .. import _C
from .._names import getter as _getter
from . import _calls
from ._parts import (
    COO,
    CSC,
    CSR,
    LAYOUTS,
    NAMES,
    Parts,
    as_layout,
    coalesced,
    dense_of,
    indices_of,
    layout_of,
    made,
    of_dense,
    parts,
    plain,
    to_coo,
)  # fmt: skip

__all__ = [
    "addmm", "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "sum",
]  # fmt: skip

# ---- making ----


def _tensor(values, dtype=None, device=None):
    if isinstance(values, _C.Tensor):
        return values if dtype is None else values.to(dtype)
    return _C.tensor(values, dtype=dtype, device=device)


def _finished(p, requires_grad):
    t = made(p)
    return t.requires_grad_() if requires_grad else t


def sparse_coo_tensor(
    indices, values=None, size=None, *, dtype=None, layout=None, device=None, pin_memory=None, requires_grad=False,
    check_invariants=None, is_coalesced=None,
):  # fmt: skip
    """A tensor with values (n, ...) at indices (sparse dims, n), or, of a size alone, without any."""
    if values is None:
        size = tuple(indices)
        empty = _C.empty((0,), dtype=dtype, device=device)
        p = Parts(COO, _C.empty((len(size), 0), dtype=_C.int64, device=device), None, empty, False, size)
        return _finished(p, requires_grad)
    indices, values = _tensor(indices).to(_C.int64), _tensor(values, dtype, device)
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if values.dim() == 0:
        values = values.expand(1)
    if indices.size(1) != values.size(0):
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {indices.size(1)}, nnz from values: "
            f"{values.size(0)}"
        )
    if size is None:
        if not indices.size(1) and indices.size(0):
            lead = (0,) * indices.size(0)
        else:
            lead = tuple((indices.amax(1) + 1).tolist()) if indices.size(0) else ()
        size = (*lead, *values.shape[1:])
    sparse_dims, dense_dims = indices.size(0), values.dim() - 1
    if len(size) != sparse_dims + dense_dims:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse_dims}, "
            f"dense_dim = {dense_dims}"
        )
    p = Parts(COO, indices, None, values, bool(is_coalesced), tuple(size))
    if check_invariants or (check_invariants is None and check_sparse_tensor_invariants.is_enabled()):
        _check_places(p)
    return _finished(p if values.requires_grad else p._replace(values=values.detach()), requires_grad)


def _check_places(p):
    for d in range(p.sparse_dims if p.places.size(1) else 0):
        low, high = int(p.places[d].min()), int(p.places[d].max())
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {d}")
        if high >= p.size[d]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {d}, size is {p.size[d]} but found index {high}"
            )


def sparse_compressed_tensor(
    compressed_indices, plain_indices, values, size=None, *, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False, check_invariants=None,
):  # fmt: skip
    """A tensor of layout sparse_csr or sparse_csc: where each row, or column, begins, and the other index of each value."""
    kind = {_C.sparse_csr: CSR, _C.sparse_csc: CSC}.get(layout)
    if kind is None:
        raise RuntimeError(
            f"sparse_compressed_tensor: layout {layout} is not supported: tensors by blocks are left out"
        )
    starts, others = _tensor(compressed_indices), _tensor(plain_indices)
    values = _tensor(values, dtype, device)
    if starts.dtype not in (_C.int32, _C.int64):
        starts, others = starts.long(), others.long()
    if starts.dim() != 1 or others.dim() != 1:
        raise RuntimeError("sparse_compressed_tensor: batches of sparse matrices are not supported")
    if others.size(0) != values.size(0):
        raise RuntimeError(
            f"number of dimensions of indices and values must be the same, but got {others.size(0)} and {values.size(0)}"
        )
    if size is None:
        pair = (starts.size(0) - 1, int(others.max()) + 1 if others.numel() else 0)
        size = (*(pair if kind == CSR else pair[::-1]), *values.shape[1:])
    p = Parts(kind, starts, others, values, True, tuple(size))
    return _finished(p if values.requires_grad else p._replace(values=values.detach()), requires_grad)


def sparse_csr_tensor(crow_indices, col_indices, values, size=None, **options):
    """A matrix by rows: sparse_csr_tensor([0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 3))"""
    return sparse_compressed_tensor(crow_indices, col_indices, values, size, **{**options, "layout": _C.sparse_csr})


def sparse_csc_tensor(ccol_indices, row_indices, values, size=None, **options):
    """A matrix by columns."""
    return sparse_compressed_tensor(ccol_indices, row_indices, values, size, **{**options, "layout": _C.sparse_csc})


class check_sparse_tensor_invariants:  # noqa: N801
    """Whether places are checked when a tensor is made: a switch, a context and a decorator."""

    _on = False

    def __init__(self, enable=True):
        self._wanted, self._before = enable, None

    @staticmethod
    def is_enabled():
        return check_sparse_tensor_invariants._on

    @staticmethod
    def enable():
        check_sparse_tensor_invariants._on = True

    @staticmethod
    def disable():
        check_sparse_tensor_invariants._on = False

    def __enter__(self):
        self._before = self.is_enabled()
        check_sparse_tensor_invariants._on = self._wanted

    def __exit__(self, *error):
        check_sparse_tensor_invariants._on = self._before

    def __call__(self, function):
        from functools import wraps

        @wraps(function)
        def checked(*args, **kwargs):
            with type(self)(self._wanted):
                return function(*args, **kwargs)

        return checked


# ---- functions ----


def mm(mat1, mat2, reduce=None):
    """The product; of two sparse matrices a sparse one. reduce: "sum", "mean", "amax" or "amin" of the terms, of a CSR matrix and a
    strided one."""
    if reduce is None:
        return _C.mm(mat1, mat2)
    if layout_of(mat1) != CSR or layout_of(mat2) is not None:
        raise RuntimeError("sparse.mm: reduce is there for a matrix of layout sparse_csr times a strided one")
    if reduce not in ("sum", "prod", "mean", "amax", "amin"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if reduce == "prod":
        raise RuntimeError("sparse_mm_reduce: reduce type of prod has not been enabled.")
    p = parts(mat1)
    rows, columns = indices_of(p)
    terms = p.values.unsqueeze(1) * mat2.index_select(0, columns)
    whole = _C.zeros((p.size[0], mat2.size(1)), dtype=terms.dtype, device=terms.device)
    return whole.scatter_reduce(0, rows.unsqueeze(1).expand(terms.shape), terms, reduce, include_self=False)


def addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0):
    """beta input + alpha mat1 mat2"""
    return _C.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def sum(input, dim=None, dtype=None):  # noqa: A001
    """Sums along dims, or of all elements."""
    if dim is None:
        return _calls._sum(input, dtype)
    return _calls._sum_dims(input, dim, False, dtype)


def _by_rows(input, dim, dtype, function):
    """A function of the stored elements of each row along a sparse dim, or along a dense one."""
    p = coalesced(to_coo(parts(input)))
    values = p.values if dtype is None else p.values.to(dtype)
    dim = dim % len(p.size)
    if dim >= p.sparse_dims:
        return made(p._replace(values=function(values, dim - p.sparse_dims + 1)))
    others = _C.cat([p.places[:dim], p.places[dim + 1 :]])
    from ._parts import flat

    row = flat(others, (*p.size[:dim], *p.size[dim + 1 :]))
    count = 1
    for d in range(p.sparse_dims):
        count *= p.size[d] if d != dim else 1
    shape = (row.size(0), *([1] * (values.dim() - 1)))
    index = row.reshape(shape).expand(values.shape)
    low = _C.full((count, *values.shape[1:]), -float("inf"), dtype=values.dtype, device=values.device)
    most = low.scatter_reduce(0, index, values.detach(), "amax").index_select(0, row)
    shifted = values - most
    total = _C.zeros_like(low).index_add(0, row, shifted.exp()).index_select(0, row)
    return made(p._replace(values=function((shifted, total), None)))


def softmax(input, dim, *, dtype=None):
    """Of the stored elements: the others count as minus infinity."""
    return _by_rows(input, dim, dtype, lambda x, d: x[0].exp() / x[1] if d is None else x.softmax(d))


def log_softmax(input, dim, *, dtype=None):
    """The logarithm of softmax."""
    return _by_rows(input, dim, dtype, lambda x, d: x[0] - x[1].log() if d is None else x.log_softmax(d))


def sampled_addmm(input, mat1, mat2, *, beta=1.0, alpha=1.0, out=None):
    """beta input + alpha (mat1 mat2) at the places of input."""
    p = parts(input)
    rows, columns = indices_of(p)
    products = (mat1.index_select(-2, rows) * mat2.index_select(-1, columns).mT).sum(-1)
    result = made(p._replace(values=p.values * beta + products * alpha))
    if out is None:
        return result
    _C._sparse_become(out, result)
    return out


def spdiags(diagonals, offsets, shape, layout=None):
    """A matrix with rows of `diagonals` on its diagonals: element j of a row is in column j."""
    offsets = offsets.reshape(-1).tolist()
    diagonals = diagonals if diagonals.dim() == 2 else diagonals.unsqueeze(0)
    if diagonals.size(0) != len(offsets):
        raise RuntimeError(
            f"Number of diagonals ({diagonals.size(0)}) does not match the number of offsets ({len(offsets)})"
        )
    if len(set(offsets)) != len(offsets):
        raise RuntimeError("Offset tensor contains duplicate values")
    m, n = shape
    places, values = [], []
    for k, offset in enumerate(offsets):
        columns = _C.arange(max(offset, 0), min(n, diagonals.size(1), m + offset))
        places.append(_C.stack([columns - offset, columns]))
        values.append(diagonals[k].index_select(0, columns))
    p = Parts(COO, _C.cat(places, 1), None, _C.cat(values), False, (m, n))
    return made(p) if layout in (None, _C.sparse_coo) else made(as_layout(coalesced(p), _kind_of(layout)))


def _kind_of(layout):
    kind = {v: k for k, v in LAYOUTS.items()}.get(layout)
    if kind is None:
        raise RuntimeError(f"to_sparse: conversion to {layout} is not supported: tensors by blocks are left out")
    return kind


def sspaddmm(input, mat1, mat2, *, beta=1, alpha=1, out=None):
    """beta input + alpha mat1 mat2 as a sparse tensor, of which the first two are."""
    return _calls._addmm(input, mat1, mat2, beta, alpha)


saddmm = sspaddmm


def smm(input, mat):
    """The product of a sparse and a strided matrix as a sparse one."""
    return made(of_dense(_C.mm(input, mat)))


def hspmm(mat1, mat2, *, out=None):
    """The same with one sparse dim: its rows."""
    return made(of_dense(_C.mm(mat1, mat2), 1))


hsmm = hspmm


def spmm(input, mat2):
    """mm under another name."""
    return _C.mm(input, mat2)


dsmm = spmm


def resize_as_sparse_(input, the_template):
    """Gives a sparse tensor another one's size."""
    q = plain(the_template)
    return sparse_resize_(input, q.size, q.sparse_dims, q.values.dim() - 1)


# ---- methods ----


def _coo(t, name):
    layout = layout_of(t)
    if layout != COO:
        found = NAMES.get(layout, "Strided")
        raise RuntimeError(f"{name} expected sparse coordinate tensor layout but got {found}")
    return t


def _needs_coalesced(t, name):
    if not plain(_coo(t, name)).coalesced:
        raise RuntimeError(f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")
    return parts(t)


def indices(self):
    """(sparse dims, n)"""
    return _needs_coalesced(self, "indices").places


def values(self):
    """(n, ...)"""
    if layout_of(self) is None:
        raise RuntimeError("values expected sparse tensor layout but got Strided")
    return _needs_coalesced(self, "values").values if layout_of(self) == COO else parts(self).values


def _any_layout(t, name):
    if layout_of(t) is None:
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the 'CPU' backend: a strided tensor has no such part"
        )
    return plain(t)


def _indices(self):
    return _any_layout(self, "_indices").places


def _values(self):
    return _any_layout(self, "_values").values


def _nnz(self):
    return _any_layout(self, "_nnz").values.size(0)


def coalesce(self):
    """The same with ascending places, each once; itself where it is so."""
    return self if plain(_coo(self, "coalesce")).coalesced else made(coalesced(parts(self)))


def is_coalesced(self):
    """Whether the places ascend, each once."""
    return plain(_coo(self, "is_coalesced")).coalesced


def _coalesced_(self, coalesced):
    p = plain(self)
    _C._sparse_become(self, made(p._replace(coalesced=coalesced)))
    return self


def sparse_dim(self):
    """How many dims have indices."""
    return 0 if layout_of(self) is None else plain(self).sparse_dims


def dense_dim(self):
    """How many dims values have."""
    return self.dim() if layout_of(self) is None else plain(self).values.dim() - 1


def _compressed(t, name, wanted, column):
    layout = layout_of(t)
    if layout != wanted:
        words = "row" if wanted == CSR else "column"
        raise RuntimeError(
            f"{name} expected sparse {words} compressed tensor layout but got {NAMES.get(layout, 'Strided')}"
        )
    p = plain(t)
    return p.columns if column else p.places


def crow_indices(self):
    """Where each row begins."""
    return _compressed(self, "crow_indices", CSR, False)


def col_indices(self):
    """The column of each value."""
    return _compressed(self, "col_indices", CSR, True)


def ccol_indices(self):
    """Where each column begins."""
    return _compressed(self, "ccol_indices", CSC, False)


def row_indices(self):
    """The row of each value."""
    return _compressed(self, "row_indices", CSC, True)


def to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """The tensor in a sparse layout: COO, of all dims, unless it is said."""
    kind = COO if layout is None else _kind_of(layout)
    if layout_of(self) is not None:
        return self if layout_of(self) == kind else made(as_layout(parts(self), kind))
    if sparse_dim is not None and not (0 < sparse_dim <= self.dim() or (sparse_dim == 0 and self.dim() == 0)):
        raise RuntimeError(f"to_sparse: sparse_dim argument must be in >0 when in the range [1, {self.dim()}]")
    dims = self.dim() - dense_dim if dense_dim is not None else sparse_dim
    return made(as_layout(of_dense(self, 2 if kind != COO and dims is None else dims), kind))


def to_sparse_coo(self):
    """Layout COO."""
    return to_sparse(self)


def to_sparse_csr(self, dense_dim=None):
    """Layout CSR."""
    return to_sparse(self, layout=_C.sparse_csr, dense_dim=dense_dim)


def to_sparse_csc(self, dense_dim=None):
    """Layout CSC."""
    return to_sparse(self, layout=_C.sparse_csc, dense_dim=dense_dim)


def to_dense(self, dtype=None, *, masked_grad=None):
    """All elements in memory."""
    if layout_of(self) is None:
        return self if dtype is None else self.to(dtype)
    whole = dense_of(parts(self))
    return whole if dtype is None else whole.to(dtype)


def sparse_mask(self, mask):
    """The elements at the places of a sparse tensor."""
    return _calls._add_to_places(mask, self)


def sparse_resize_(self, size, sparse_dim, dense_dim):
    """Another size; what has no place in it has to be none."""
    p = plain(_coo(self, "sparse_resize_"))
    if self.requires_grad and _C.is_grad_enabled():
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if p.values.size(0) and (sparse_dim != p.sparse_dims or dense_dim != p.values.dim() - 1):
        raise RuntimeError(
            "changing the number of sparse or dense dimensions of a non-empty sparse tensor is not supported"
        )
    if p.values.size(0) and any(new < old for new, old in zip(size, p.size, strict=True)):
        raise RuntimeError("shrinking the size of a non-empty sparse tensor is not supported")
    return _resized(self, p, size, sparse_dim)


def _resized(t, p, size, dims):
    if not p.values.size(0):
        p = p._replace(places=p.places.new_empty((dims, 0)), values=p.values.new_empty((0, *size[dims:])))
    new = made(p._replace(size=tuple(size)))
    if new.dim() != t.dim():
        raise RuntimeError("a sparse tensor keeps its number of dims")
    _C._sparse_become(t, new)
    return t


def sparse_resize_and_clear_(self, size, sparse_dim, dense_dim):
    """Another size without elements."""
    p = plain(_coo(self, "sparse_resize_and_clear_"))
    return _resized(self, p._replace(values=p.values[:0], places=p.places[:, :0]), size, sparse_dim)


def _copied(method):
    def function(input, *, out=None):
        return method(input).clone()

    function.__name__ = function.__qualname__ = f"{method.__name__}_copy"
    function.__doc__ = f"A copy of {method.__name__}()."
    return function


indices_copy, values_copy = _copied(indices), _copied(values)
crow_indices_copy, col_indices_copy = _copied(crow_indices), _copied(col_indices)
ccol_indices_copy, row_indices_copy = _copied(ccol_indices), _copied(row_indices)


def _rebuild(layout, data):
    """For files: a tensor of what `reduced` gives."""
    if layout == _C.sparse_coo:
        return sparse_coo_tensor(data[0], data[1], data[2], is_coalesced=data[3] if len(data) > 3 else None)
    return sparse_compressed_tensor(*data, layout=layout)


def _rebuild_with(layout, data, requires_grad):
    """For pickle: the same, which requires grad or not."""
    return _rebuild(layout, data).requires_grad_(requires_grad)


def reduced(t):
    """(layout, parts) as PyTorch's files have them."""
    p = plain(t)
    size = _C.Size(p.size)
    data = (p.places, p.values, size, p.coalesced) if p.layout == COO else (p.places, p.columns, p.values, size)
    return LAYOUTS[p.layout], data


class _OldTypes(type):
    """torch.sparse.FloatTensor: the classes of old."""

    def __instancecheck__(cls, instance):
        return isinstance(instance, _C.Tensor) and layout_of(instance) == COO and instance.dtype == cls.dtype


def _old_type(name, dtype):
    def new(cls, *args):
        return sparse_coo_tensor(*args, dtype=dtype) if args else sparse_coo_tensor((0,), dtype=dtype)

    members = {"__new__": new, "__module__": "torch.sparse", "dtype": dtype, "is_sparse": True, "layout": _C.sparse_coo}
    return _OldTypes(f"{name}Tensor", (), members)


FloatTensor, DoubleTensor, HalfTensor = (
    _old_type("Float", _C.float32), _old_type("Double", _C.float64), _old_type("Half", _C.float16),
)  # fmt: skip
BFloat16Tensor, LongTensor, IntTensor = (
    _old_type("BFloat16", _C.bfloat16), _old_type("Long", _C.int64), _old_type("Int", _C.int32),
)  # fmt: skip
ByteTensor, CharTensor, ShortTensor = (
    _old_type("Byte", _C.uint8), _old_type("Char", _C.int8), _old_type("Short", _C.int16),
)  # fmt: skip

__getattr__ = _getter(__name__)

"""What calls with sparse tensors become: calls on their places and values. `called` is asked by the layer of such calls
(src/ops/sparse.c) with an operator's name and its arguments as in its schema.

Functions are found by the operator's name with its overload (add.Tensor) or without. Those that keep zeros are one list:
they work on values alone. Tests: tests/parity/test_sparse_parity.py.
"""

from .. import _C
from ._parts import (
    COO,
    CSC,
    CSR,
    NAMES,
    Parts,
    as_layout,
    at_places,
    coalesced,
    dense_of,
    indices_of,
    layout_of,
    made,
    of_dense,
    parts,
    to_coo,
)  # fmt: skip

# Functions f with f(0) = 0 that PyTorch has for sparse tensors; not linear ones add up what is at one place before.
_ON_VALUES = frozenset(
    "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan isneginf isposinf log1p nan_to_num neg "
    "rad2deg relu round sgn sign signbit sin sinh sqrt square tan tanh trunc conj_physical conj positive".split()
)
_LINEAR = frozenset("neg deg2rad rad2deg conj_physical conj positive".split())


def _not_there(name, layout):
    return NotImplementedError(
        f"Could not run 'aten::{name}' with arguments from the '{NAMES[layout]}CPU' backend. This could be because the "
        "operator doesn't exist for this backend, or was omitted during the selective/custom build process (if using custom "
        "build). wick has no such function for sparse tensors."
    )


def called(name, base, args):
    """The result of a call with a sparse tensor among its arguments."""
    short = base.removesuffix("_")
    found = _TABLE.get(name) or _TABLE.get(base) or _TABLE.get(short)
    if found is not None:
        return found(*args)
    if short in _ON_VALUES and layout_of(args[0]) is not None:
        p = parts(args[0])
        return made(_on_values(p if short in _LINEAR else coalesced(p), lambda v: getattr(_C, short)(v, *args[1:])))
    layout = next((layout_of(a) for a in args if isinstance(a, _C.Tensor) and layout_of(a)), COO)
    raise _not_there(name, layout)


def _on_values(p, function):
    return p._replace(values=function(p.values))


def _is_sparse(t):
    return isinstance(t, _C.Tensor) and layout_of(t) is not None


# ---- itself in other forms ----


def _alias(t, *_rest):
    return made(parts(t))


def _detach(t):
    from ._parts import plain, raw

    return raw(plain(t))


def _clone(t, memory_format=None):
    p = parts(t)
    columns = None if p.columns is None else p.columns.clone()
    return made(p._replace(places=p.places.clone(), columns=columns, values=p.values.clone()))


def _to_copy(t, dtype=None, device=None, *_rest):
    p = parts(t)
    values = p.values.to(dtype=dtype or p.values.dtype, device=device or p.values.device)
    return made(p._replace(values=values.clone() if values is p.values else values))


def _none_of(t, dtype=None, size=None):
    """A tensor without elements in t's layout."""
    from ._parts import plain

    p = plain(t)
    size, values = p.size if size is None else tuple(size), p.values
    empty = values.new_empty((0, *values.shape[1:]), dtype=dtype or values.dtype)
    if p.layout == COO:
        return made(
            Parts(COO, p.places.new_empty((len(size) - values.dim() + 1, 0)), None, empty, p.layout == COO, size)
        )
    return made(Parts(p.layout, _C.zeros_like(p.places), p.columns.new_empty((0,)), empty, True, size))


def _zeros_like(t, dtype=None, *_rest):
    return _none_of(t, dtype)


def _new_zeros(t, size, dtype=None, *_rest):
    return _none_of(t, dtype, size)


def _zero(t):
    return _none_of(t)


def _copy(t, source, *_rest):
    if not _is_sparse(t) or not _is_sparse(source):
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{t.type()} and src type = {source.type()}"
        )
    _C._sparse_become(t, _to_copy(source, t.dtype))
    return t


def _transpose(t, first, second):
    p = parts(t)
    first, second = first % len(p.size), second % len(p.size)
    if p.layout != COO:
        size = list(p.size)
        size[first], size[second] = size[second], size[first]
        return made(p._replace(layout=CSC if p.layout == CSR else CSR, size=tuple(size)))
    d = p.sparse_dims
    if max(first, second) >= d:
        raise RuntimeError("transpose of dense dims of sparse tensors is not supported")
    order, size = list(range(d)), list(p.size)
    order[first], order[second] = second, first
    size[first], size[second] = size[second], size[first]
    same = first == second
    return made(p._replace(places=p.places[order], size=tuple(size), coalesced=p.coalesced and same))


def _permute(t, dims):
    p = parts(t)
    n = len(p.size)
    dims = [d % n for d in dims]
    if p.layout != COO:
        return _transpose(t, 0, 1) if dims == [1, 0] else _alias(t)
    d = p.sparse_dims
    if sorted(dims[:d]) != list(range(d)):
        raise RuntimeError("transpositions between sparse and dense dimensions are not allowed.")
    values = p.values.permute(0, *(k - d + 1 for k in dims[d:]))
    size = tuple(p.size[k] for k in dims)
    return made(
        p._replace(
            places=p.places[dims[:d]], values=values, size=size, coalesced=p.coalesced and dims[:d] == list(range(d))
        )
    )


def _t(t):
    if t.dim() > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got {t.dim()} sparse dimensions"
        )
    return _transpose(t, 0, t.dim() - 1)


def _unsqueeze(t, dim):
    p = parts(t)
    dim = dim % (len(p.size) + 1)
    size = (*p.size[:dim], 1, *p.size[dim:])
    if dim > p.sparse_dims:
        return made(p._replace(values=p.values.unsqueeze(dim - p.sparse_dims + 1), size=size))
    zeros = p.places.new_zeros((1, p.places.size(1)))
    return made(p._replace(places=_C.cat([p.places[:dim], zeros, p.places[dim:]]), size=size))


def _select(t, dim, index):
    p = parts(t)
    dim, n = dim % len(p.size), p.size[dim]
    if not -n <= index < n:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(p.size)} at dimension {dim}")
    p, index = coalesced(to_coo(p)), index % n
    size = (*p.size[:dim], *p.size[dim + 1 :])
    if dim >= p.sparse_dims:
        return made(p._replace(values=p.values.select(dim - p.sparse_dims + 1, index), size=size))
    kept = (p.places[dim] == index).nonzero().reshape(-1)
    values = p.values.index_select(0, kept)
    if p.sparse_dims == 1:
        return values.sum(0)
    places = _C.cat([p.places[:dim], p.places[dim + 1 :]]).index_select(1, kept)
    return made(p._replace(places=places, values=values, size=size))


def _index_select(t, dim, index):
    p = coalesced(to_coo(parts(t)))
    dim = dim % len(p.size)
    size = (*p.size[:dim], index.numel(), *p.size[dim + 1 :])
    if dim >= p.sparse_dims:
        return made(p._replace(values=p.values.index_select(dim - p.sparse_dims + 1, index), size=size))
    wanted, element = (index.reshape(-1, 1) == p.places[dim]).nonzero(as_tuple=True)
    places = p.places.index_select(1, element)
    places = _C.cat([places[:dim], wanted.unsqueeze(0), places[dim + 1 :]])
    found = p._replace(places=places, values=p.values.index_select(0, element), size=size, coalesced=False)
    return made(found if dim == 0 else coalesced(found))


def _cat(tensors, dim=0):
    if not all(_is_sparse(t) for t in tensors):
        raise RuntimeError("sparse tensors can be concatenated with sparse tensors alone")
    all_parts = [to_coo(parts(t)) for t in tensors]
    first, dim = all_parts[0], dim % len(all_parts[0].size)
    total = sum(p.size[dim] for p in all_parts)
    size = (*first.size[:dim], total, *first.size[dim + 1 :])
    if dim >= first.sparse_dims:
        raise NotImplementedError("sparse tensors are concatenated along sparse dims")
    shifted, before = [], 0
    for p in all_parts:
        places = p.places.clone()
        places[dim] += before
        before += p.size[dim]
        shifted.append(places)
    values = _C.cat([p.values for p in all_parts])
    return made(Parts(COO, _C.cat(shifted, 1), None, values, False, size))


def _stack(tensors, dim=0):
    return _cat([_unsqueeze(t, dim) for t in tensors], dim)


# ---- sums and products ----


def _check_sizes(a, b):
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(a.shape)} while other has size "
            f"{list(b.shape)} (FYI: dense-sparse addition does not currently support broadcasting)"
        )


def _add(a, b, alpha=1):
    if not isinstance(b, _C.Tensor):
        raise _not_there("add.Scalar", layout_of(a))
    if not _is_sparse(a):
        _check_sizes(a, b)
        q = parts(b)
        return a + (dense_of(q) if alpha == 1 else dense_of(q) * alpha)
    if not _is_sparse(b):
        if layout_of(a) == COO:
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        return dense_of(parts(a)) + b * alpha
    _check_sizes(a, b)
    p, q = parts(a), parts(b)
    layout, p, q = p.layout, to_coo(p), to_coo(q)
    values = q.values if alpha == 1 else q.values * alpha
    common = _C.promote_types(p.values.dtype, values.dtype)
    both = _C.cat([p.values.to(common), values.to(common)])
    whole = Parts(COO, _C.cat([p.places, q.places], 1), None, both, False, p.size)
    return made(
        as_layout(coalesced(whole) if layout != COO or p.coalesced or q.coalesced or _same(p, q) else whole, layout)
    )


def _same(p, q):
    return p.places is q.places or (p.places.shape == q.places.shape and bool((p.places == q.places).all()))


def _sub(a, b, alpha=1):
    return _add(a, b, -alpha)


def _mul(a, b):
    if not _is_sparse(a):
        return _mul(b, a)
    p = parts(a)
    if not isinstance(b, _C.Tensor) or b.dim() == 0:
        return made(_on_values(p, lambda v: v * (dense_of(parts(b)) if _is_sparse(b) else b)))
    layout, p = p.layout, coalesced(to_coo(p))
    if not _is_sparse(b):
        return made(as_layout(p._replace(values=p.values * at_places(b.expand(p.size), p)), layout))
    q = coalesced(to_coo(parts(b)))
    mine, theirs = (
        _C.zeros(p.size[: p.sparse_dims]).index_put((*x.places,), _C.ones(x.places.size(1))) for x in (p, q)
    )
    both = Parts(COO, (mine * theirs).nonzero().t().contiguous(), None, p.values, True, p.size)
    values = at_places(dense_of(p), both) * at_places(dense_of(q), both)
    return made(as_layout(both._replace(values=values), layout))


def _div(a, b, rounding_mode=None):
    if not _is_sparse(a) or _is_sparse(b) or (isinstance(b, _C.Tensor) and b.dim()):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor (got: a tensor)")
    p = parts(a)
    return made(_on_values(coalesced(p) if rounding_mode else p, lambda v: _C.div(v, b, rounding_mode=rounding_mode)))


def _pow(t, exponent):
    return made(_on_values(coalesced(parts(t)), lambda v: v**exponent))


def _sum(t, dtype=None):
    p = parts(t)
    return p.values.sum(dtype=dtype)


def _sum_dims(t, dims=None, keepdim=False, dtype=None):
    """Sums along dims: sparse as long as a sparse dim is left."""
    p = parts(t)
    layout, n = p.layout, len(p.size)
    dims = [dims] if isinstance(dims, int) else dims
    dims = sorted({d % n for d in dims}) if dims else list(range(n))
    if len(dims) == n and not keepdim:
        return p.values.sum(dtype=dtype)
    p = to_coo(p)
    d = p.sparse_dims
    values = p.values if dtype is None else p.values.to(dtype)
    if any(k >= d for k in dims):
        values = values.sum([k - d + 1 for k in dims if k >= d], keepdim)
    left = [k for k in range(d) if k not in dims]
    size = [(1 if k in dims else p.size[k]) for k in range(n) if keepdim or k not in dims]
    if not left and not keepdim:
        return values.sum(0)
    places = p.places.clone() if keepdim else p.places[left]
    for k in dims if keepdim else ():
        if k < d:
            places[k] = 0
    found = coalesced(Parts(COO, places, None, values, False, tuple(size)))
    return made(as_layout(found, layout) if layout != COO and keepdim else found)


def _norm(t, *_rest):
    return coalesced(to_coo(parts(t))).values.norm()


def _any(t):
    return coalesced(to_coo(parts(t))).values.any()


def _times_dense(p, dense):
    """(m, k) sparse times (k, n): rows of the dense one, weighted and added up."""
    indices = indices_of(p)
    terms = p.values.unsqueeze(-1) * dense.index_select(0, indices[1])
    whole = _C.zeros((p.size[0], dense.size(1)), dtype=terms.dtype, device=terms.device)
    return whole.index_add(0, indices[0], terms)


def _times_sparse(p, q):
    """COO of a product of two: each element meets those of its row of the second."""
    p, q = coalesced(to_coo(p)), as_layout(q, CSR)
    counts = (q.places[1:] - q.places[:-1]).index_select(0, p.places[1])
    mine = _C.repeat_interleave(_C.arange(counts.size(0)), counts)
    first = counts.cumsum(0) - counts
    theirs = q.places[:-1].index_select(0, p.places[1]).index_select(0, mine) + (
        _C.arange(mine.size(0)) - first.index_select(0, mine)
    )
    places = _C.stack([p.places[0].index_select(0, mine), q.columns.index_select(0, theirs).long()])
    values = p.values.index_select(0, mine) * q.values.index_select(0, theirs)
    return coalesced(Parts(COO, places, None, values, False, (p.size[0], q.size[1])))


def _mm(a, b):
    if a.dim() != 2 or b.dim() != 2:
        if a.dim() == 2 and b.dim() == 1:
            raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got 1)")
        raise RuntimeError("mm: both matrices have to have two dims")
    if a.size(1) != b.size(0):
        wanted, found = (a.size(1), b.size(0)) if _is_sparse(a) else (b.size(0), a.size(1))
        raise RuntimeError(f"addmm: Argument #3 (dense): Expected dim 0 size {wanted}, got {found}")
    if _is_sparse(a) and _is_sparse(b):
        return made(as_layout(_times_sparse(parts(a), parts(b)), layout_of(a)))
    if _is_sparse(a):
        return _times_dense(parts(a), b)
    return _times_dense(parts(_transpose(b, 0, 1)), a.t()).t()


def _addmm(c, a, b, beta=1, alpha=1):
    product = _mm(a, b)
    if not _is_sparse(c):
        return c * beta + (dense_of(parts(product)) if _is_sparse(product) else product) * alpha
    if not _is_sparse(product):
        product = made(of_dense(product))
    return _add(_mul(c, beta), product, alpha)


def _mv(a, b):
    if a.dim() != 2 or b.dim() != 1:
        raise RuntimeError(
            f"mv: two tensor dim should be 2 and 1, but got SparseTensor Dim: {a.dim()}, DenseTensor Dim: {b.dim()}"
        )
    return _mm(a, b.unsqueeze(1)).squeeze(1)


def _matmul(a, b):
    if a.dim() == 2 and b.dim() == 1:
        return _mv(a, b)
    if a.dim() == 1 and b.dim() == 2:
        return _mv(_transpose(b, 0, 1), a)
    return _mm(a, b)


def _bmm(a, b):
    if _is_sparse(b):
        raise RuntimeError("bmm_sparse: Tensor 'mat2' must be dense")
    return _C.stack([_mm(_select(a, 0, k), b[k]) for k in range(a.size(0))])


def _add_to_places(mask, t):
    """t's elements at the mask's places."""
    p = parts(mask)
    return made(p._replace(values=at_places(t, p)))


def _linear(x, weight, bias=None):
    if _is_sparse(x):
        result = _mm(x, weight.t())
    else:
        result = _mm(weight, x.reshape(-1, x.size(-1)).t()).t().reshape(*x.shape[:-1], weight.size(0))
    return result if bias is None else result + bias


_TABLE = {
    "detach": _detach, "alias": _alias, "view_as": _alias, "clone": _clone, "_to_copy": _to_copy, "zeros_like": _zeros_like,
    "empty_like": _zeros_like, "new_zeros": _new_zeros, "new_empty": _new_zeros, "zero": _zero, "copy": _copy, "transpose": _transpose, "permute": _permute, "t": _t,
    "unsqueeze": _unsqueeze, "select": _select, "index_select": _index_select, "cat": _cat, "stack": _stack, "add": _add,
    "sub": _sub, "mul": _mul, "div": _div, "pow": _pow, "sum": _sum, "sum.dim_IntList": _sum_dims, "mm": _mm,
    "addmm": _addmm, "mv": _mv, "matmul": _matmul, "bmm": _bmm, "norm": _norm, "linalg_vector_norm": _norm, "any": _any,
    "linear": _linear,
}  # fmt: skip

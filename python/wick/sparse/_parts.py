"""What a sparse tensor consists of, and tensors made of that, followed by the tape: its values are an ordinary tensor, and
so everything that is done with it is done with them.

Layouts: COO has `places` (sparse dims, n) and values (n, ...); CSR has `places`, where each row begins (rows + 1), the
columns (n) and values (n, ...); CSC the same with rows and columns exchanged. Tests: tests/python/test_sparse.py.
"""

from typing import NamedTuple

from .. import _C

COO, CSR, CSC = 1, 2, 3
NAMES = {COO: "Sparse", CSR: "SparseCsr", CSC: "SparseCsc"}
LAYOUTS = {COO: _C.sparse_coo, CSR: _C.sparse_csr, CSC: _C.sparse_csc}


class Parts(NamedTuple):
    layout: int
    places: _C.Tensor
    columns: _C.Tensor  # None: COO
    values: _C.Tensor
    coalesced: bool
    size: tuple

    @property
    def sparse_dims(self):
        return self.places.size(0) if self.layout == COO else 2


def layout_of(t):
    """COO, CSR, CSC, or None for a strided tensor."""
    found = _C._sparse_parts(t)
    return found and found[0]


def plain(t):
    """The parts of a tensor without its history."""
    layout, places, columns, values, coalesced = _C._sparse_parts(t)
    return Parts(layout, places, columns, values, coalesced, tuple(t.shape))


def _follows(t):
    return _C.is_grad_enabled() and t.requires_grad


def parts(t):
    """The parts; values have t's history."""
    found = plain(t)
    if not _follows(t):
        return found
    return found._replace(values=_functions()[0].apply(t))


def made(p):
    """The tensor of parts, with the history of its values."""
    if _follows(p.values):
        return _functions()[1].apply(p.values, p)
    return raw(p)


def raw(p):
    return _C._sparse_make(p.layout, tuple(int(n) for n in p.size), p.places, p.columns, p.values.detach(), p.coalesced)


def _once(gradient, p):
    """A gradient by stored values as one by elements, of which several are stored: each has a share of it."""
    if p.coalesced or p.layout != COO:
        return gradient
    _numbers, which = _unique(p)
    counts = _C.zeros(which.size(0), dtype=gradient.dtype).index_add(
        0, which, _C.ones(which.size(0), dtype=gradient.dtype)
    )
    return gradient / counts.index_select(0, which).reshape(-1, *([1] * (gradient.dim() - 1)))


_made_functions = None


def _functions():
    """(values of a tensor, a tensor of values): made when they are first needed, since autograd.Function is."""
    global _made_functions
    if _made_functions is None:
        from ..autograd import Function

        class SparseValues(Function):
            @staticmethod
            def forward(ctx, t):
                ctx.parts = plain(t)
                return ctx.parts.values.detach()

            @staticmethod
            def backward(ctx, gradient):
                return made(ctx.parts._replace(values=_once(gradient, ctx.parts)))

        class SparseTensor(Function):
            @staticmethod
            def forward(ctx, values, p):
                ctx.parts = p._replace(values=values.detach())
                return raw(ctx.parts)

            @staticmethod
            def backward(ctx, gradient):
                return at_places(gradient, ctx.parts), None

        _made_functions = SparseValues, SparseTensor
    return _made_functions


# ---- places ----


def rows_of(starts, n=None):
    """The row of each element, (n): starts says where each row begins."""
    counts = starts[1:] - starts[:-1]
    return _C.repeat_interleave(_C.arange(counts.size(0), dtype=starts.dtype, device=starts.device), counts.long())


def starts_of(rows, count):
    """Where each of `count` rows begins among rows that ascend: (count + 1)."""
    return _C.searchsorted(rows.contiguous(), _C.arange(count + 1, dtype=rows.dtype, device=rows.device))


def indices_of(p):
    """The index of each element in each sparse dim, (sparse dims, n), of any layout."""
    if p.layout == COO:
        return p.places
    lines = rows_of(p.places)
    pair = (lines, p.columns) if p.layout == CSR else (p.columns, lines)
    return _C.stack(pair).long()


def flat(indices, size):
    """Row-major numbers of indices (d, n) in the first dims of a size: (n)."""
    number = _C.zeros(indices.size(1), dtype=_C.int64, device=indices.device)
    for d in range(indices.size(0)):
        number = number * size[d] + indices[d]
    return number


def unflat(number, size):
    """The indices again, (d, n)."""
    found = []
    for n in reversed(size):
        found.append(number % max(n, 1))
        number = number.div(max(n, 1), rounding_mode="floor")
    empty = _C.zeros((0, number.size(0)), dtype=_C.int64, device=number.device)
    return _C.stack(found[::-1]) if found else empty


def _product(numbers):
    total = 1
    for n in numbers:
        total *= n
    return total


def dense_of(p):
    """The strided tensor: elements of one place are added up."""
    d = p.sparse_dims
    whole = _C.zeros((_product(p.size[:d]), *p.values.shape[1:]), dtype=p.values.dtype, device=p.values.device)
    return whole.index_add(0, flat(indices_of(p), p.size), p.values).reshape(p.size)


def at_places(t, p):
    """What a tensor of p's size has at p's places: values, (n, ...)."""
    if layout_of(t) is not None:
        mine = parts(t)
        if p.coalesced and mine.places is p.places and mine.columns is p.columns:
            return mine.values
        t = dense_of(mine)
    d = p.sparse_dims
    return t.reshape(_product(p.size[:d]), *p.size[d:]).index_select(0, flat(indices_of(p), p.size))


def coalesced(p):
    """The same with ascending places, each once."""
    if p.coalesced or p.layout != COO:
        return p
    d = p.sparse_dims
    numbers, which = _unique(p)
    values = _C.zeros((numbers.size(0), *p.values.shape[1:]), dtype=p.values.dtype, device=p.values.device)
    values = values.index_add(0, which, p.values)
    return p._replace(places=unflat(numbers, p.size[:d]), values=values, coalesced=True)


def _unique(p):
    from ..functional import unique

    return unique(flat(p.places, p.size), sorted=True, return_inverse=True)


def of_dense(t, sparse_dims=None):
    """COO of the elements that are not zero; of whole parts, behind the first dims."""
    d = t.dim() if sparse_dims is None else sparse_dims
    from .._tensor import nonzero

    lead = tuple(t.shape[:d])
    whole = t.detach().reshape(_product(lead), -1)
    numbers = nonzero((whole != 0).any(1)).reshape(-1)
    values = t.reshape(_product(lead), *t.shape[d:]).index_select(0, numbers)
    return Parts(COO, unflat(numbers, lead), None, values, True, tuple(t.shape))


def to_compressed(p, layout):
    """COO, CSR or CSC parts as CSR or CSC."""
    if p.layout == layout:
        return p
    if len(p.size) - (p.values.dim() - 1) != 2:
        raise RuntimeError(
            "Only tensors with two sparse dimensions can be converted to the SparseCsr layout, got self with "
            f"{p.sparse_dims} sparse dimensions."
        )
    p = coalesced(p._replace(places=indices_of(p), columns=None, layout=COO, coalesced=p.layout != CSC and p.coalesced))
    rows, columns, values = p.places[0], p.places[1], p.values
    if layout == CSC:
        order = _C.argsort(columns, stable=True)
        rows, columns, values = columns[order], rows[order], values.index_select(0, order)
    return Parts(layout, starts_of(rows, p.size[0 if layout == CSR else 1]), columns, values, True, p.size)


def to_coo(p):
    if p.layout == COO:
        return p
    found = Parts(COO, indices_of(p), None, p.values, p.layout == CSR, p.size)
    return found if p.layout == CSR else coalesced(found)


def as_layout(p, layout):
    return to_coo(p) if layout == COO else to_compressed(p, layout)

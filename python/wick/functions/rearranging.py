"""Grids, stacks, splits, diagonals: where elements go.

Tests: tests/parity/test_functional_parity.py.
"""

import itertools

from .. import _C
from .._C import Tensor
from .forms import all_tensors, refuse_empty, wrapped_dim


def broadcast_tensors(*tensors):
    """The tensors expanded to the shape that they have beside each other."""
    return _C.broadcast_tensors(all_tensors(tensors))


def meshgrid(*tensors, indexing=None):
    """A grid for each of the vectors, which says its coordinate: "ij" like a matrix's, "xy" like a plane's.

    >>> meshgrid(wick.arange(2), wick.arange(3), indexing="ij")[0].shape
    torch.Size([2, 3])
    """
    tensors = all_tensors(tensors)
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing is None:
        import warnings

        warnings.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.", stacklevel=2
        )
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    for t in tensors:
        if t.dim() > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {t}")
    swap = indexing == "xy" and len(tensors) >= 2
    order = list(tensors)
    if swap:
        order[0], order[1] = order[1], order[0]
    shape = [t.numel() for t in order]
    grids = [t.reshape([-1 if d == at else 1 for d in range(len(order))]).expand(shape) for at, t in enumerate(order)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def cartesian_prod(*tensors):
    """All tuples of one element each: (product of the lengths, number of vectors)."""
    tensors = all_tensors(tensors)
    if len(tensors) == 1:
        return tensors[0]
    return _C.stack([grid.flatten() for grid in meshgrid(*tensors, indexing="ij")], 1)


def combinations(input, r=2, with_replacement=False):
    """All choices of r elements of a vector."""
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.numel()), r))
    if r == 0 or not rows:
        return input.new_empty((0,)) if not r else input[:0].unsqueeze(-1).expand(0, r)
    return input[_C.tensor(rows, device=input.device)]


def block_diag(*tensors):
    """The matrices along the diagonal of one."""
    tensors = [atleast_2d(t) for t in all_tensors(tensors)]
    if not tensors:
        return _C.empty(1, 0)
    width, at, rows = sum(t.shape[1] for t in tensors), 0, []
    for t in tensors:
        if t.dim() != 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Got {t.dim()}")
        rows.append(_C.constant_pad_nd(t, (at, width - at - t.shape[1])))
        at += t.shape[1]
    return _C.cat(rows)


def _at_least(tensors, dims, shape_of):
    many = all_tensors(tensors)
    made = tuple(t.reshape(shape_of(t)) if t.dim() < dims else t for t in many)
    single = len(tensors) == 1 and isinstance(tensors[0], Tensor)
    return made[0] if single else made


def atleast_1d(*tensors):
    """Tensors of at least one dim."""
    return _at_least(tensors, 1, lambda t: (1,))


def atleast_2d(*tensors):
    """Tensors of at least two dims: a vector becomes a row."""
    return _at_least(tensors, 2, lambda t: (1, t.numel()))


def atleast_3d(*tensors):
    """Tensors of at least three dims: (n) becomes (1, n, 1), (n, m) becomes (n, m, 1)."""
    return _at_least(tensors, 3, lambda t: (*t.shape, 1) if t.dim() == 2 else (1, t.numel(), 1))


def hstack(tensors, *, out=None):
    """Behind each other along the second dim; vectors along their only one."""
    refuse_empty("hstack", tensors)
    tensors = atleast_1d(*tensors) if len(tensors) > 1 else (atleast_1d(tensors[0]),)
    return _C.cat(list(tensors), 0 if tensors[0].dim() == 1 else 1, **({} if out is None else {"out": out}))


def vstack(tensors, *, out=None):
    """Below each other."""
    refuse_empty("vstack", tensors)
    return _C.cat([atleast_2d(t) for t in tensors], 0, **({} if out is None else {"out": out}))


row_stack = vstack


def dstack(tensors, *, out=None):
    """Behind each other along the third dim."""
    refuse_empty("dstack", tensors)
    return _C.cat([atleast_3d(t) for t in tensors], 2, **({} if out is None else {"out": out}))


def column_stack(tensors, *, out=None):
    """Vectors as columns, beside the columns of matrices."""
    refuse_empty("column_stack", tensors)
    parts = [t.reshape(t.numel(), 1) if t.dim() <= 1 else t for t in tensors]
    return _C.cat(parts, 1, **({} if out is None else {"out": out}))


def tensor_split(
    input, indices_or_sections=None, dim=0, *, indices=None, sections=None, tensor_indices_or_sections=None
):
    """Views of nearly equal parts, or of the parts between indices."""
    given = [v for v in (indices_or_sections, indices, sections, tensor_indices_or_sections) if v is not None]
    if len(given) != 1:
        raise TypeError("tensor_split() takes either a number of sections or indices")
    indices_or_sections, dim = given[0], wrapped_dim(dim, input.dim())
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if not isinstance(indices_or_sections, (int, tuple, list)):
        raise TypeError(
            "tensor_split() received an invalid combination of arguments - got "
            f"(Tensor, {type(indices_or_sections).__name__}), but expected one of:\n"
            " * (Tensor input, tuple of ints indices, int dim = 0)\n"
            " * (Tensor input, Tensor tensor_indices_or_sections, int dim = 0)\n"
            " * (Tensor input, int sections, int dim = 0)\n"
        )
    size = input.shape[dim]
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
        each, more = divmod(size, sections)
        ends = list(itertools.accumulate(each + (i < more) for i in range(sections)))
    else:
        ends = [*indices_or_sections, size]
    bounds = zip([0, *ends[:-1]], ends, strict=True)
    spans = [(slice(a, b).indices(size)[0], slice(a, b).indices(size)[1]) for a, b in bounds]
    return tuple(input.narrow(dim, min(a, size), max(b - a, 0)) for a, b in spans)


def _split_along(name, input, sections, dim, least):
    if input.dim() < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor "
            f"with {input.dim()} dimensions!"
        )
    if not isinstance(sections, (int, tuple, list)):
        name_of = "Tensor" if isinstance(sections, Tensor) else type(sections).__name__
        raise TypeError(
            f"{name}() received an invalid combination of arguments - got (Tensor, {name_of}), but expected one of:\n"
            " * (Tensor input, int sections)\n"
            f"      didn't match because some of the arguments have invalid types: (Tensor, !{name_of}!)\n"
            " * (Tensor input, tuple of ints indices)\n"
            f"      didn't match because some of the arguments have invalid types: (Tensor, !{name_of}!)\n"
        )
    if isinstance(sections, int) and (sections <= 0 or input.shape[dim] % sections):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {dim}, but the size of the dimension {input.shape[dim]} "
            f"is not divisible by the split_size {sections}!"
        )
    return tensor_split(input, sections, dim)


def hsplit(input, indices_or_sections):
    """tensor_split along the second dim, of vectors along the only one."""
    return _split_along("hsplit", input, indices_or_sections, 0 if input.dim() == 1 else 1, 1)


def vsplit(input, indices_or_sections):
    """tensor_split along the first dim."""
    return _split_along("vsplit", input, indices_or_sections, 0, 2)


def dsplit(input, indices_or_sections):
    """tensor_split along the third dim."""
    return _split_along("dsplit", input, indices_or_sections, 2, 3)


def fliplr(input):
    """The second dim backwards."""
    if input.dim() < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return input.flip(1)


def flipud(input):
    """The first dim backwards."""
    if input.dim() < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return input.flip(0)


def unravel_index(indices, shape):
    """The coordinates of flat indices."""
    shape = [shape] if isinstance(shape, int) else list(shape)
    coordinates = []
    for size in reversed(shape):
        coordinates.append(indices % size)
        indices = indices // size
    return _C.stack(coordinates[::-1], -1).unbind(-1) if coordinates else ()


def diagflat(input, offset=0):
    """A matrix with all elements along a diagonal."""
    return _C.diag(input.reshape(-1), offset)


def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Matrices with the rows of the last dim along a diagonal."""
    size, rank = input.shape[-1] + abs(offset), input.dim() + 1
    d1, d2 = wrapped_dim(dim1, rank), wrapped_dim(dim2, rank)
    if d1 == d2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    zeros = input.new_zeros((*input.shape[:-1], size, size)).movedim((-2, -1), (d1, d2))
    return zeros.diagonal_scatter(input, offset, d1, d2).contiguous()

"""torch.functional, and other functions that are more Python than arithmetic: sorting, counting, einsum.

They are made of operators, so that they have derivatives and are captured. Tensor has many of them as methods; see
_FUNCTION_METHODS in _tensor.py. Tests: tests/python/test_functional.py, tests/parity/test_functional_parity.py.
"""

import itertools
import math

from . import _C
from ._C import Tensor
from ._names import missing as _missing

_INFINITY = math.inf


def _all_tensors(tensors):
    """The tensors of f(a, b) or f([a, b])."""
    return tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors


def _wrapped(dim, ndim):
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        low, high = -max(ndim, 1), max(ndim, 1) - 1
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    return dim % max(ndim, 1)


def _written(result, out):
    """The result, or `out` with its values, resized where it has another shape."""
    if out is None:
        return result
    return _C.add(result, 0, out=out) if result.dtype != _C.bool else _C.ne(result, False, out=out)


def _written_pair(results, out):
    """The same for two results."""
    if out is None:
        return results
    return type(results)(*(_written(r, o) for r, o in zip(results, out, strict=True)))


# ---- shapes ----


def broadcast_tensors(*tensors):
    """The tensors expanded to the shape that they have beside each other."""
    tensors = _all_tensors(tensors)
    from ._tensor import broadcast_shapes

    shape = broadcast_shapes(*(t.shape for t in tensors))
    return [t.expand(shape) for t in tensors]


def meshgrid(*tensors, indexing=None):
    """A grid for each of the vectors, which says its coordinate: "ij" like a matrix's, "xy" like a plane's.

    >>> meshgrid(wick.arange(2), wick.arange(3), indexing="ij")[0].shape
    torch.Size([2, 3])
    """
    tensors = _all_tensors(tensors)
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
    tensors = _all_tensors(tensors)
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
    tensors = [atleast_2d(t) for t in _all_tensors(tensors)]
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
    many = _all_tensors(tensors)
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
    tensors = atleast_1d(*tensors) if len(tensors) > 1 else (atleast_1d(tensors[0]),)
    return _C.cat(list(tensors), 0 if tensors[0].dim() == 1 else 1, **({} if out is None else {"out": out}))


def vstack(tensors, *, out=None):
    """Below each other."""
    return _C.cat([atleast_2d(t) for t in tensors], 0, **({} if out is None else {"out": out}))


row_stack = vstack


def dstack(tensors, *, out=None):
    """Behind each other along the third dim."""
    return _C.cat([atleast_3d(t) for t in tensors], 2, **({} if out is None else {"out": out}))


def column_stack(tensors, *, out=None):
    """Vectors as columns, beside the columns of matrices."""
    parts = [t.reshape(t.numel(), 1) if t.dim() <= 1 else t for t in tensors]
    return _C.cat(parts, 1, **({} if out is None else {"out": out}))


def tensor_split(input, indices_or_sections, dim=0):
    """Views of nearly equal parts, or of the parts between indices."""
    dim = _wrapped(dim, input.dim())
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
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
            f"torch.{name} requires a tensor with at least {least} dimension{'s' if least > 1 else ''}, but got a tensor "
            f"with {input.dim()} dimensions!"
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
    d1, d2 = _wrapped(dim1, rank), _wrapped(dim2, rank)
    if d1 == d2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    zeros = input.new_zeros((*input.shape[:-1], size, size)).movedim((-2, -1), (d1, d2))
    return zeros.diagonal_scatter(input, offset, d1, d2).contiguous()


def vander(x, N=None, increasing=False):
    """The powers of a vector's elements, a row each."""
    N = x.shape[0] if N is None else N
    powers = _C.arange(N, device=x.device)
    return x.unsqueeze(-1) ** (powers if increasing else powers.flip(0))


# ---- products ----


def tensordot(a, b, dims=2, out=None):
    """Sums products over `dims`: so many last dims of a and first of b, or (dims of a, dims of b)."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        of_a, of_b = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        of_a, of_b = ([d] if isinstance(d, int) else list(d) for d in dims)
    if len(of_a) != len(of_b):
        raise RuntimeError("both dimension lists should have the same length")
    of_a, of_b = [d % a.dim() for d in of_a], [d % b.dim() for d in of_b]
    for x, y in zip(of_a, of_b, strict=True):
        if a.shape[x] == 1:
            b = b.sum(y, keepdim=True)
        elif b.shape[y] == 1:
            a = a.sum(x, keepdim=True)
        elif a.shape[x] != b.shape[y]:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {a.shape[x]} in dim {x} and second has size "
                f"{b.shape[y]} in dim {y}"
            )
    rest_a, rest_b = ([d for d in range(t.dim()) if d not in of] for t, of in ((a, of_a), (b, of_b)))
    inner = math.prod(a.shape[d] for d in of_a)
    left = a.permute(rest_a + of_a).reshape(-1, inner) if inner else a.permute(rest_a + of_a).flatten().reshape(
        math.prod(a.shape[d] for d in rest_a), 0)  # fmt: skip
    right = b.permute(of_b + rest_b).reshape(inner, -1 if inner else math.prod(b.shape[d] for d in rest_b))
    result = (left @ right).reshape([a.shape[d] for d in rest_a] + [b.shape[d] for d in rest_b])
    return result if out is None else out.copy_(result)


def chain_matmul(*matrices, out=None):
    """The product of matrices in the order of the least work."""
    matrices = _all_tensors(matrices)
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    return multi_dot(matrices, out=out)


def multi_dot(tensors, *, out=None):
    """The product of matrices in the order of the least work; the first and last may be vectors."""
    tensors = list(tensors)
    if len(tensors) < 2:
        return tensors[0]
    first, last = tensors[0].dim() == 1, tensors[-1].dim() == 1
    if first:
        tensors[0] = tensors[0].unsqueeze(0)
    if last:
        tensors[-1] = tensors[-1].unsqueeze(1)
    sizes = [t.shape[0] for t in tensors] + [tensors[-1].shape[1]]
    best = {(i, i): (0, None) for i in range(len(tensors))}
    for length in range(1, len(tensors)):
        for i in range(len(tensors) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i, j):
        k = best[i, j][1]
        return tensors[i] if k is None else product(i, k) @ product(k + 1, j)

    result = product(0, len(tensors) - 1)
    result = result.squeeze(0) if first else result
    result = result.squeeze(-1) if last else result
    return result if out is None else out.copy_(result)


# ---- einsum ----


def _parse_einsum(equation, count):
    """([letters of each operand], letters of the result or None); "..." stays as one letter "."."""
    left, arrow, right = equation.replace(" ", "").replace("...", ".").partition("->")
    terms = left.split(",")
    for term in [*terms, right]:
        for letter in term:
            if not (letter.isalpha() or letter == "."):
                raise RuntimeError(
                    "einsum(): invalid subscript given at index 0 in the equation string, subscripts must be in [a-zA-Z]"
                )
    if len(terms) > count:
        raise RuntimeError("einsum(): fewer operands were provided than specified in the equation")
    if len(terms) < count:
        raise RuntimeError("einsum(): more operands were provided than specified in the equation")
    return terms, right if arrow else None


def _labelled(term, operand, number):
    """A label for each dim of an operand; dims of "..." are numbers that count from the right."""
    if "." not in term:
        if len(term) != operand.dim():
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({len(term)}) does not match the number of "
                f"dimensions ({operand.dim()}) for operand {number} and no ellipsis was given"
            )
        return list(term)
    before, after = term.split(".")
    hidden = operand.dim() - len(before) - len(after)
    if hidden < 0:
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(term) - 1}) is more than the number of "
            f"dimensions ({operand.dim()}) for operand {number}"
        )
    return [*before, *range(-hidden, 0), *after]


def _take_diagonals(operand, labels):
    """The operand with each label once: equal labels take the diagonal."""
    for label in [x for i, x in enumerate(labels) if x in labels[:i]]:
        first, second = [i for i, x in enumerate(labels) if x == label][:2]
        if operand.shape[first] != operand.shape[second]:
            raise RuntimeError(
                f"einsum(): subscript {label} is repeated for operand 0 but the sizes don't match, "
                f"{operand.shape[second]} != {operand.shape[first]}"
            )
        operand = operand.diagonal(0, first, second)
        labels = [x for i, x in enumerate(labels) if i not in (first, second)] + [label]
    return operand, labels


def _arranged(operand, labels, wanted):
    """The operand with a dim for each wanted label, of size 1 where it has none."""
    operand = operand.permute([labels.index(x) for x in wanted if x in labels])
    for at, label in enumerate(wanted):
        if label not in labels:
            operand = operand.unsqueeze(at)
    return operand


def _sum_labels(operand, labels, gone):
    if not gone:
        return operand, labels
    return operand.sum([labels.index(x) for x in gone]), [x for x in labels if x not in gone]


def _contract(a, of_a, b, of_b, keep):
    """The product of two operands, summed over the labels that nothing else has."""
    sizes = {}
    for t, labels in ((a, of_a), (b, of_b)):
        for label, size in zip(labels, t.shape, strict=True):
            sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
    a, of_a = _sum_labels(a, of_a, [x for x in of_a if x not in of_b and x not in keep])
    b, of_b = _sum_labels(b, of_b, [x for x in of_b if x not in of_a and x not in keep])
    both = [x for x in of_a if x in of_b]
    batch, inner = [x for x in both if x in keep], [x for x in both if x not in keep]
    of_size_1 = [x for x in inner if a.shape[of_a.index(x)] == 1 or b.shape[of_b.index(x)] == 1]
    for label in of_size_1:  # broadcast against the other's sum
        a, of_a = _sum_labels(a, of_a, [label])
        b, of_b = _sum_labels(b, of_b, [label])
    inner = [x for x in inner if x not in of_size_1]
    rows, columns = ([x for x in labels if x not in batch and x not in inner] for labels in (of_a, of_b))
    result = batch + rows + columns
    if not inner:
        return _arranged(a, of_a, result) * _arranged(b, of_b, result), result

    def flat(operand, labels, groups):
        operand = operand.permute([labels.index(x) for group in groups for x in group])
        shape = [operand.shape[i] for i in range(len(batch))]
        at = len(batch)
        for group in groups[1:]:
            shape.append(math.prod(operand.shape[at : at + len(group)]))
            at += len(group)
        return operand.reshape(shape)

    left, right = flat(a, of_a, (batch, rows, inner)), flat(b, of_b, (batch, inner, columns))
    product = left @ right if not batch else _batched(left, right, len(batch))
    return product.reshape([*product.shape[: len(batch)], *(sizes[x] for x in rows + columns)]), result


def _batched(left, right, count):
    """bmm over several batch dims, which broadcast."""
    shape = [max(x, y) if min(x, y) else 0 for x, y in zip(left.shape[:count], right.shape[:count], strict=True)]
    left, right = (t.expand(*shape, *t.shape[count:]).reshape(-1, *t.shape[count:]) for t in (left, right))
    return _C.bmm(left, right).reshape(*shape, left.shape[1], right.shape[2])


def _cheapest_pair(operands, result):
    """The two operands whose product is to be made next: the one with the fewest elements over its loops."""

    def cost(i, j):
        labels = dict.fromkeys(operands[i][1] + operands[j][1])
        size = {}
        for t, names in (operands[i], operands[j]):
            for label, n in zip(names, t.shape, strict=True):
                size[label] = max(size.get(label, 1), n)
        others = set(result).union(*(names for k, (_, names) in enumerate(operands) if k not in (i, j)))
        grown = math.prod(size[x] for x in labels if x in others)
        return grown - sum(operands[k][0].numel() for k in (i, j)), math.prod(size[x] for x in labels)

    return min(itertools.combinations(range(len(operands)), 2), key=lambda pair: cost(*pair))


def einsum(*args):
    """Sums of products by letters: einsum("bij,bjk->bik", a, b).

    More than two operands are multiplied in pairs, each time the pair that leaves the least.
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
            "subscripts list"
        )
    if isinstance(args[0], Tensor):
        return _einsum_of_lists(args)
    equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if _C._overrides and _C._has_torch_function_variadic(*operands):
        return _C._dispatch_torch_function(einsum, operands, (equation, *operands), {})
    terms, result = _parse_einsum(equation, len(operands))
    labels = [_labelled(term, t, i) for i, (term, t) in enumerate(zip(terms, operands, strict=True))]
    hidden = sorted({x for of in labels for x in of if isinstance(x, int)})
    if result is None:
        letters = sorted(x for of in labels for x in of if isinstance(x, str))
        wanted = hidden + [x for x in letters if letters.count(x) == 1]
    else:
        wanted = [x for letter in result for x in (hidden if letter == "." else [letter])]
        for letter in wanted:
            if not any(letter in of for of in labels):
                raise RuntimeError(
                    f"einsum(): output subscript {letter} does not appear in the equation for any input operand"
                )
    return _sum_of_products([_take_diagonals(t, of) for t, of in zip(operands, labels, strict=True)], wanted)


def _check_sizes(operands):
    sizes = {}
    for number, (t, labels) in enumerate(operands):
        for at, label in enumerate(labels):
            size = t.shape[at]
            if size != 1 and sizes.setdefault(label, size) != size:
                raise RuntimeError(
                    f"einsum(): subscript {label} has size {size} for operand {number} which does not broadcast with "
                    f"previously seen size {sizes[label]}"
                )


def _sum_of_products(operands, wanted):
    _check_sizes(operands)
    while len(operands) > 1:
        i, j = (0, 1) if len(operands) == 2 else _cheapest_pair(operands, wanted)
        (a, of_a), (b, of_b) = operands[i], operands[j]
        rest = [operands[k] for k in range(len(operands)) if k not in (i, j)]
        keep = set(wanted).union(*(labels for _, labels in rest))
        operands = [_contract(a, of_a, b, of_b, keep), *rest]
    t, labels = operands[0]
    t, labels = _sum_labels(t, labels, [x for x in labels if x not in wanted])
    return t.permute([labels.index(x) for x in wanted])


def _einsum_of_lists(args):
    """einsum(a, [0, 1], b, [1, 2], [0, 2])"""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    lists = [*args[1::2], *([args[-1]] if len(args) % 2 else [])]
    terms = ["".join("..." if x is Ellipsis else letters[x] for x in of) for of in lists]
    count = len(args) // 2
    equation = ",".join(terms[:count]) + ("->" + terms[-1] if len(args) % 2 else "")
    return einsum(equation, *args[0 : 2 * count : 2])


# ---- distances ----


def cdist(x1, x2, p=2.0, compute_mode="use_mm_for_euclid_dist_if_necessary"):
    """The distance of each row of x1 from each of x2: (..., P, M), (..., R, M) -> (..., P, R)."""
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if p == 2 and (
        compute_mode == "use_mm_for_euclid_dist"
        or (compute_mode == "use_mm_for_euclid_dist_if_necessary" and max(x1.shape[-2], x2.shape[-2]) > 25)
    ):
        squares = [t.pow(2).sum(-1, True) for t in (x1, x2)]
        left = _C.cat([x1.mul(-2), squares[0], _C.ones_like(squares[0])], -1)
        right = _C.cat([x2, _C.ones_like(squares[1]), squares[1]], -1)
        return (left @ right.mT).clamp_min(0).sqrt()
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return _C.linalg_vector_norm(difference, p, [-1])


def pdist(input, p=2.0):
    """The distances between the rows of a matrix, each pair once."""
    count = input.shape[0]
    i, j = _C.triu_indices(count, count, 1, device=input.device)
    return _C.linalg_vector_norm(input[i] - input[j], p, [-1])


# ---- order ----


def _flat_or(input, dim):
    return (input.reshape(-1), 0) if dim is None else (input, _wrapped(dim, input.dim()))


def _pair(kind, values, indices):
    from . import return_types

    return return_types.make(kind, values, indices)


def kthvalue(input, k, dim=-1, keepdim=False, *, out=None):
    """The k-th smallest element along a dim, and where it is."""
    at = _wrapped(dim, input.dim())
    size = input.shape[at] if input.dim() else 1
    if not 1 <= k <= size:
        raise RuntimeError("kthvalue(): selected number k out of range for dimension " + str(at))
    values, indices = input.sort(dim=at, stable=True) if input.dim() else (input.clone(), _C.zeros((), dtype=_C.int64))
    if input.dim():
        values, indices = (t.narrow(at, k - 1, 1).contiguous() for t in (values, indices))
        if not keepdim:
            values, indices = values.squeeze(at), indices.squeeze(at)
    return _written_pair(_pair("kthvalue", values, indices), out)


def _median(input, dim, keepdim, ignore_nan, kind):
    if dim is None:
        if input.numel() == 0:
            return _C.full((), math.nan, dtype=input.dtype)
        return _median(input.reshape(-1), 0, False, ignore_nan, kind)[0]
    at = _wrapped(dim, input.dim())
    if not input.dim():
        return _pair(kind, input.clone(), _C.zeros((), dtype=_C.int64))
    values, indices = input.sort(dim=at, stable=True)  # NaN last
    size = input.shape[at]
    middle = _C.full_like(values.narrow(at, 0, 1), (size - 1) // 2, dtype=_C.int64)
    if input.is_floating_point():
        wrong = input.isnan().sum(at, True)
        middle = ((size - wrong - 1) // 2).clamp_min(0) if ignore_nan else _C.where(wrong > 0, size - wrong, middle)
    values, indices = values.gather(at, middle), indices.gather(at, middle)
    if not keepdim:
        values, indices = values.squeeze(at), indices.squeeze(at)
    return _pair(kind, values, indices)


def median(input, dim=None, keepdim=False):
    """The lower middle element, or (values, indices) along a dim; NaN when there is one."""
    return _median(input, dim, keepdim, False, "median")


def nanmedian(input, dim=None, keepdim=False):
    """The same without NaN."""
    return _median(input, dim, keepdim, True, "nanmedian")


def mode(input, dim=-1, keepdim=False):
    """The commonest element along a dim, the least of several, and the last place of it."""
    at = _wrapped(dim, input.dim())
    if not input.dim():
        return _pair("mode", input.clone(), _C.zeros((), dtype=_C.int64))
    moved = input.movedim(at, -1)
    same = moved.unsqueeze(-1) == moved.unsqueeze(-2)
    count = same.sum(-1)
    most = count.amax(-1, True)
    values = _C.where(count == most, moved.detach().double(), _INFINITY).amin(-1, True)
    hit = moved.double() == values
    indices = _C.where(hit, _C.arange(moved.shape[-1], device=input.device), -1).amax(-1, True)
    values = moved.gather(-1, indices)
    if not keepdim:
        return _pair("mode", values.squeeze(-1), indices.squeeze(-1))
    return _pair("mode", values.movedim(-1, at), indices.movedim(-1, at))


def _quantile(input, q, dim, keepdim, interpolation, ignore_nan, name):
    if not input.is_floating_point():
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if interpolation not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = _C.tensor(q, dtype=input.dtype, device=input.device)
    elif q.dtype != input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    many, was_flat, rank = q.dim() == 1, dim is None, input.dim()
    input, at = _flat_or(input if rank else input.reshape(1), dim)
    values = input.movedim(at, -1).sort(-1)[0]
    wrong = values.isnan().sum(-1, True)
    size = values.shape[-1]
    ranks = q.reshape(-1) * ((size - wrong - 1).clamp_min(0) if ignore_nan else size - 1)  # (..., Q)
    ranks = ranks.expand(*values.shape[:-1], q.numel())
    if not ignore_nan:
        ranks = _C.where(wrong > 0, float(size - 1), ranks)
    if interpolation in ("lower", "nearest"):
        ranks = ranks.floor() if interpolation == "lower" else ranks.round()
    elif interpolation == "higher":
        ranks = ranks.ceil()
    below = ranks.long()
    result = values.gather(-1, below)
    if interpolation in ("linear", "midpoint"):
        weights = ranks - below if interpolation == "linear" else _C.full_like(ranks, 0.5)
        result = result.lerp(values.gather(-1, ranks.ceil().long()), weights)
    result = result.movedim(-1, 0)  # (Q, ...)
    if keepdim:
        result = result.reshape(-1, *(1,) * rank) if was_flat or not rank else result.unsqueeze(at + 1)
    return result if many else result.squeeze(0)


def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear", out=None):
    """The value below which a part q of the elements lies, along a dim or of all."""
    result = _quantile(input, q, dim, keepdim, interpolation, False, "quantile")
    return result if out is None else out.copy_(result)


def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear", out=None):
    """The same without NaN."""
    result = _quantile(input, q, dim, keepdim, interpolation, True, "nanquantile")
    return result if out is None else out.copy_(result)


def aminmax(input, *, dim=None, keepdim=False):
    """(min, max) along a dim or of all."""
    dims = [] if dim is None else [dim]
    return _pair("aminmax", _C.amin(input, dims, keepdim), _C.amax(input, dims, keepdim))


def searchsorted(sorted_sequence, input, *, out_int32=False, right=False, side=None, sorter=None, out=None):
    """Where elements would have to stand in sorted rows: the number of smaller ones, with right=True of those <=."""
    if side is not None and side not in ("left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    right = right or side == "right"
    sequence = sorted_sequence if sorter is None else sorted_sequence.gather(-1, sorter)
    scalar = not isinstance(input, Tensor)
    values = _C.tensor(input, device=sequence.device) if scalar else input
    if sequence.dim() > 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise RuntimeError(
            "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries "
            f"tensor and input value tensor must match, but we got boundaries tensor {list(sequence.shape)} and input "
            f"value tensor {list(values.shape)}"
        )
    rows = sequence if sequence.dim() == 1 else sequence.unsqueeze(-2)
    low = _C.zeros(values.shape, dtype=_C.int64, device=sequence.device)
    high = _C.full_like(low, sequence.shape[-1])
    for _ in range(max(sequence.shape[-1], 1).bit_length()):  # bisection, all values at once
        middle = (low + high) // 2
        place = middle.clamp_max(max(sequence.shape[-1] - 1, 0))
        if not sequence.shape[-1]:
            break
        found = rows[place] if sequence.dim() == 1 else sequence.gather(-1, place)
        ahead = found <= values if right else found < values
        ahead = (ahead | (values != values) & (found == found)) & (middle < high)
        low, high = _C.where(ahead, middle + 1, low), _C.where(ahead, high, middle)
    result = low.int() if out_int32 else low
    return result if out is None else out.copy_(result)


def bucketize(input, boundaries, *, out_int32=False, right=False, out=None):
    """searchsorted with the arguments the other way round."""
    return searchsorted(boundaries, input, out_int32=out_int32, right=right, out=out)


def isin(elements, test_elements, *, assume_unique=False, invert=False, out=None):
    """Whether each element is one of the others."""
    if not isinstance(elements, Tensor):
        elements = _C.tensor(elements, device=test_elements.device)
    if not isinstance(test_elements, Tensor):
        test_elements = _C.tensor(test_elements, device=elements.device)
    result = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return _written(~result if invert else result, out)


# ---- scans ----


def _scan(input, dim, better, kind, out):
    """The best element so far, and the last place of it, by doubling steps."""
    at = _wrapped(dim, input.dim())
    indices = _C.zeros(input.shape, dtype=_C.int64, device=input.device)
    if not input.dim() or not input.numel():
        return _written_pair(_pair(kind, input.clone(), indices), out)
    size, step = input.shape[at], 1
    shape = [-1 if d == at else 1 for d in range(input.dim())]
    indices = indices + _C.arange(size, device=input.device).reshape(shape)
    values = input.detach()
    while step < size:
        ahead, now = values.narrow(at, 0, size - step), values.narrow(at, step, size - step)
        keep = better(now, ahead)
        where = _C.where(keep, indices.narrow(at, step, size - step), indices.narrow(at, 0, size - step))
        values = _C.cat([values.narrow(at, 0, step), _C.where(keep, now, ahead)], at)
        indices = _C.cat([indices.narrow(at, 0, step), where], at)
        step *= 2
    return _written_pair(_pair(kind, input.gather(at, indices), indices), out)


def cummax(input, dim, *, out=None):
    """The largest element so far along a dim, and its place."""
    return _scan(input, dim, lambda now, ahead: ((now >= ahead) & (ahead == ahead)) | (now != now), "cummax", out)


def cummin(input, dim, *, out=None):
    """The smallest element so far along a dim, and its place."""
    return _scan(input, dim, lambda now, ahead: ((now <= ahead) & (ahead == ahead)) | (now != now), "cummin", out)


def logcumsumexp(input, dim, *, out=None):
    """log of the sum of exponentials so far along a dim."""
    at = _wrapped(dim, input.dim())
    if not input.dim() or not input.numel():
        return _written(input.clone(), out)
    values, size, step = input, input.shape[at], 1
    while step < size:
        now, ahead = values.narrow(at, step, size - step), values.narrow(at, 0, size - step)
        values = _C.cat([values.narrow(at, 0, step), _C.logaddexp(now, ahead)], at)
        step *= 2
    return _written(values, out)


def trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral of samples along a dim by trapezoids."""
    size = y.shape[dim]
    left, right = y.narrow(dim, 0, size - 1), y.narrow(dim, 1, size - 1)
    if x is None:
        return (left + right).sum(dim) * (dx / 2)
    steps = x.diff() if x.dim() != y.dim() else x.diff(dim=dim)
    if x.dim() == 1 and y.dim() > 1:
        steps = steps.reshape([-1 if d == dim % y.dim() else 1 for d in range(y.dim())])
    return ((left + right) * steps).sum(dim) / 2


trapz = trapezoid


def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral so far."""
    size = y.shape[dim]
    sums = y.narrow(dim, 0, size - 1) + y.narrow(dim, 1, size - 1)
    if x is None:
        return sums.cumsum(dim) * (dx / 2)
    steps = x.diff() if x.dim() != y.dim() else x.diff(dim=dim)
    if x.dim() == 1 and y.dim() > 1:
        steps = steps.reshape([-1 if d == dim % y.dim() else 1 for d in range(y.dim())])
    return (sums * steps).cumsum(dim) / 2


# ---- counting ----


def bincount(input, weights=None, minlength=0):
    """How often each number is there, or the sum of its weights."""
    if input.dim() != 1 or (input.numel() and input.min() < 0):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    size = max(minlength, int(input.max()) + 1 if input.numel() else 0)
    if weights is None:
        return _C.zeros(size, dtype=_C.int64, device=input.device).index_add_(
            0, input.long(), _C.ones_like(input).long()
        )
    if weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    weights = weights if weights.dtype == _C.float32 else weights.double()
    return _C.zeros(size, dtype=weights.dtype, device=input.device).index_add_(0, input.long(), weights)


def histc(input, bins=100, min=0, max=0):
    """How many elements lie in each of `bins` equal parts of [min, max], or of what there is when both are 0."""
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    flat = input.detach().reshape(-1)
    low, high = float(min), float(max)
    if low == high and flat.numel():
        low, high = float(flat.min()), float(flat.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"range of [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError("max must be larger than min")
    inside = (flat >= low) & (flat <= high)
    place = ((flat - low) / (high - low) * bins).nan_to_num(0).clamp(0, bins - 1).long()
    return _C.zeros(bins, dtype=input.dtype, device=input.device).index_add_(0, place, inside.to(input.dtype))


def _first_of_runs(values):
    """Of sorted elements, or rows, whether each differs from the one before."""
    changed = values[1:] != values[:-1]
    changed = changed.flatten(1).any(1) if changed.dim() > 1 else changed
    return _C.cat([_C.ones(min(len(values), 1), dtype=_C.bool, device=values.device), changed])


def _runs(values, return_inverse, return_counts):
    """(elements that differ from the one before, numbers of the runs, lengths of the runs)"""
    first = _first_of_runs(values)
    numbers = first.cumsum(0) - 1 if return_inverse or return_counts else None
    counts = None
    if return_counts:
        counts = _C.zeros(int(first.sum()), dtype=_C.int64, device=values.device)
        counts = counts.index_add_(0, numbers, _C.ones_like(numbers))
    return values[first], numbers, counts


def _chosen(result, inverse, counts, return_inverse, return_counts):
    extra = ([inverse] if return_inverse else []) + ([counts] if return_counts else [])
    return (result, *extra) if extra else result


def _sort_rows(rows):
    """The order that sorts rows by their first element, then their second, ..."""
    order = _C.arange(rows.shape[0], device=rows.device)
    flat = rows.reshape(rows.shape[0], -1)
    for column in range(flat.shape[1] - 1, -1, -1):
        order = order[flat[order, column].argsort(stable=True)]
    return order


def unique(input, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The different elements, or slices along a dim, in order; where each went, and how many there were."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        kwargs = {"sorted": sorted, "return_inverse": return_inverse, "return_counts": return_counts, "dim": dim}
        return _C._dispatch_torch_function(unique, (input,), (input,), kwargs)
    if dim is None:
        values, order = input.reshape(-1).sort(stable=True)
    else:
        rows = input.movedim(dim, 0)
        order = _sort_rows(rows)
        values = rows[order]
    result, numbers, counts = _runs(values, return_inverse, return_counts)
    inverse = None
    if return_inverse:
        inverse = _C.empty_like(numbers).scatter_(0, order, numbers)
        inverse = inverse.reshape(input.shape) if dim is None else inverse
    if dim is not None:
        result = result.movedim(0, dim)
    return _chosen(result, inverse, counts, return_inverse, return_counts)


def unique_consecutive(input, return_inverse=False, return_counts=False, dim=None):
    """The elements, or slices along a dim, that differ from the one before."""
    values = input.reshape(-1) if dim is None else input.movedim(dim, 0)
    result, numbers, counts = _runs(values, return_inverse, return_counts)
    if return_inverse and dim is None:
        numbers = numbers.reshape(input.shape)
    if dim is not None:
        result = result.movedim(0, dim)
    return _chosen(result, numbers, counts, return_inverse, return_counts)


# ---- elements ----


def _euclid(a, b):
    """The greatest common divisors of two tensors of integers."""
    a, b = a.abs(), b.abs()
    while bool((b != 0).any()):
        rest = _C.where(b != 0, a % b.masked_fill(b == 0, 1), 0)
        a, b = _C.where(b != 0, b, a), rest
    return a


def gcd(input, other, *, out=None):
    """The greatest common divisors."""
    return _written(_euclid(*broadcast_tensors(*_promoted(input, other))), out)


def lcm(input, other, *, out=None):
    """The least common multiples."""
    a, b = broadcast_tensors(*_promoted(input, other))
    divisor = _euclid(a, b)
    return _written((a // divisor.masked_fill(divisor == 0, 1) * b).abs(), out)


def _promoted(a, b):
    common = _C.result_type(a, b)
    return a.to(common), b.to(common)


def renorm(input, p, dim, maxnorm):
    """Slices along a dim, scaled down where their norm is above maxnorm."""
    dims = [d for d in range(input.dim()) if d != dim % input.dim()]
    norms = _C.linalg_vector_norm(input, p, dims, True)
    return input * _C.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0)


def isreal(input):
    """Elements without an imaginary part: all of a real tensor."""
    return _C.ones_like(input, dtype=_C.bool)


def positive(input):
    """The tensor."""
    if input.dtype == _C.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def real(input):
    """The real part: of a real tensor, itself."""
    if input.is_complex():
        from ._names import not_yet

        raise NotImplementedError(not_yet("torch.real of complex tensors"))
    return input


conj = resolve_conj = resolve_neg = real


def masked_scatter(input, mask, source):
    """The tensor with its places where mask holds filled from source, one after the other."""
    mask, input = broadcast_tensors(mask, input)
    number = (mask.reshape(-1).cumsum(0) - 1).clamp_min(0)
    if int(mask.sum()) > source.numel():
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but source has too few elements"
            if input.dtype != source.dtype
            else "Number of elements of source < number of ones in mask"
        )
    return _C.where(mask, source.reshape(-1)[number].reshape(mask.shape), input) if source.numel() else input.clone()


def index_reduce(input, dim, index, source, reduce, *, include_self=True, out=None):
    """scatter_reduce with an index for whole slices."""
    dim = _wrapped(dim, input.dim())
    shape = [-1 if d == dim else 1 for d in range(input.dim())]
    places = index.reshape(shape).expand(source.shape)
    return _written(input.scatter_reduce(dim, places, source, reduce, include_self=include_self), out)


def __getattr__(name):
    import wick

    if name in ("broadcast_shapes", "norm", "split"):
        return getattr(wick, name)
    if name == "F":
        return wick.nn.functional
    raise _missing(__name__, name)

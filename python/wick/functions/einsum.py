"""einsum: sums of products by letters.

Tests: tests/parity/test_functional_parity.py.
"""

import itertools
import math

from .. import _C
from .._C import Tensor


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

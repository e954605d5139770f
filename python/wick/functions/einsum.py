"""einsum as Python calls it: operands behind the equation, in a list, or each with a list of numbers for letters.

A protocol of Python: the operator takes the equation and a list. Tests: tests/python/test_einsum.py.
"""

from .. import _C

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _term(subscripts):
    for x in subscripts:
        if x is not Ellipsis and not 0 <= x < len(_LETTERS):
            raise ValueError("einsum(): subscript in subscript list is not within the valid range [0, 52)")
    return "".join("..." if x is Ellipsis else _LETTERS[x] for x in subscripts)


def _of_lists(args):
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) as an equation and operands."""
    equation = ",".join(_term(of) for of in args[1::2])
    return equation + ("->" + _term(args[-1]) if len(args) % 2 else ""), args[0 : len(args) // 2 * 2 : 2]


def _in_order(count):
    """The path of products from left to right: each product goes behind what is left."""
    return [0, 1] + [at for left in range(count - 2, 0, -1) for at in (0, left)] if count > 1 else []


def einsum(*args):
    """Sums of products by letters: einsum("bij,bjk->bik", a, b).

    More than two operands are multiplied in pairs, in the order of the least work.
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its "
            "subscripts list"
        )
    equation, operands = _of_lists(args) if isinstance(args[0], _C.Tensor) else (args[0], args[1:])
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = operands[0]
    if _C._overrides and _C._has_torch_function_variadic(*operands):
        return _C._dispatch_torch_function(einsum, tuple(operands), (equation, *operands), {})
    if len(operands) > 2:
        from ..backends import opt_einsum

        if not opt_einsum.enabled:
            return _C.einsum(equation, operands, path=_in_order(len(operands)))
    return _C.einsum(equation, operands)

"""Guards of sizes as text: "s0 <= 64", "s1 == 2*s0". Renamed, read for bounds, and evaluated without running code.

Text may come from a file, so it is parsed, and only integers' arithmetic and comparisons are computed.
Tests: tests/python/test_export.py.
"""

import ast
import operator
import re

_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
               ast.Mod: operator.mod}  # fmt: skip
_COMPARISONS = {ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
                ast.GtE: operator.ge}  # fmt: skip
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}


def text_of(function, operands):
    """ "2*s0" for an operator and the texts of its operands."""
    sign = _SIGNS.get(function.__name__)
    if sign is None:
        return f"{function.__name__}({', '.join(operands)})"
    if sign == "+" and operands[1].startswith("-") and operands[1][1:].isdigit():
        return f"{operands[0]} - {operands[1][1:]}"
    left, right = (o if o.isalnum() else f"({o})" for o in operands)
    if sign == "*" and right.isdigit():
        left, right = right, left
    return f"{left}{sign}{right}" if sign == "*" else f"{left} {sign} {right}"


def renamed(text, names):
    """The text with other names."""
    return _NAME.sub(lambda found: names.get(found[0], found[0]), text)


def same_symbols(guards):
    """{symbol: the first that it is equal to} of guards such as "s0 == s1"."""
    names = {}
    for guard in guards:
        left, equals, right = guard.partition(" == ")
        if equals and left.isidentifier() and right.isidentifier():
            left, right = names.get(left, left), names.get(right, right)
            first, other = sorted((left, right), key=lambda s: (len(s), s))
            for name, known in names.items():
                if known == other:
                    names[name] = first
            names[other] = first
    return names


def is_trivial(guard):
    """Whether both sides are the same text."""
    left, equals, right = guard.partition(" == ")
    return bool(equals) and left == right


def bounds(guards):
    """{symbol: (least, most)} that guards on one symbol alone say; None: no bound."""
    found = {}
    for guard in guards:
        comparison = ast.parse(guard, mode="eval").body
        left, right = comparison.left, comparison.comparators[0]
        sign = type(comparison.ops[0])
        if isinstance(left, ast.Constant) and isinstance(right, ast.Name):
            turned = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
            left, right, sign = right, left, turned.get(sign, sign)
        if not (isinstance(left, ast.Name) and isinstance(right, ast.Constant)):
            continue
        low, high = found.get(left.id, (None, None))
        value = right.value + {ast.Lt: -1, ast.Gt: 1}.get(sign, 0)
        if sign in (ast.Gt, ast.GtE):
            low = value if low is None else max(low, value)
        elif sign in (ast.Lt, ast.LtE):
            high = value if high is None else min(high, value)
        found[left.id] = low, high
    return found


def is_fixed(symbol, hint, guards):
    """Whether a guard on this symbol alone holds for its present value and no other."""
    for guard in guards:
        if " == " in guard and set(_NAME.findall(guard)) - {"min", "max"} == {symbol}:
            if not any(holds(guard, {symbol: n}) for n in range(2, 2 * hint + 64) if n != hint):
                return True
    return False


def holds(guard, values):
    """Whether a guard holds for these values of the symbols."""
    return bool(_value(ast.parse(guard, mode="eval").body, values))


def _value(node, values):
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, values)
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_value(node.left, values), _value(node.right, values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        return _COMPARISONS[type(node.ops[0])](_value(node.left, values), _value(node.comparators[0], values))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        return {"min": min, "max": max}[node.func.id](_value(a, values) for a in node.args)
    raise ValueError(f"no guard of sizes: {ast.unparse(node)}")

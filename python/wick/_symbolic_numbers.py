"""torch.sym_*: what programs do with sizes that may be symbols. Here they are numbers, and so is the result."""

import builtins
import math

_NUMBERS = (int, float, bool)


def sym_float(a):
    """float(a)"""
    return a.__sym_float__() if hasattr(a, "__sym_float__") else float(a)


def sym_int(a):
    """The integer nearest to 0."""
    return a.__sym_int__() if hasattr(a, "__sym_int__") else int(a)


def sym_not(a):
    """not a"""
    return a.__sym_not__() if hasattr(a, "__sym_not__") else not a


def sym_max(a, b):
    """The greater; a float beside a float."""
    return _of_one_kind(builtins.max(a, b), a, b)


def sym_min(a, b):
    """The smaller; a float beside a float."""
    return _of_one_kind(builtins.min(a, b), a, b)


def _of_one_kind(x, a, b):
    return float(x) if isinstance(a, float) or isinstance(b, float) else x


def sym_sum(args):
    """The sum of all."""
    return builtins.sum(args)


def sym_ite(b, t, f):
    """t if b else f"""
    if not isinstance(b, bool) or type(t) is not type(f):
        raise AssertionError(f"expected a bool and two values of a type, got {type(b)}, {type(t)} and {type(f)}")
    return t if b else f


def sym_sqrt(a):
    """The square root."""
    return math.sqrt(a)


def sym_constrain_range(size, *, min=None, max=None):
    """Nothing: a number is checked where it is used."""
    _check_range(size, min, max)


def sym_constrain_range_for_size(size, *, min=None, max=None):
    """The same, for a size."""
    _check_range(size, min, max)


def _check_range(size, low, high):
    if (low is not None and size < low) or (high is not None and size > high):
        raise RuntimeError(f"Invalid value range for {size} between [{low}, {high}].")


def sym_fresh_size(expr):
    """The size: it is a number."""
    return expr

"""Arguments that are one number or one number a dimension."""

from collections.abc import Iterable

__all__ = []


def _ntuple(count, name="parse"):
    def parse(x):
        """A sequence as a tuple; one value as that many."""
        return tuple(x) if isinstance(x, Iterable) else (x,) * count

    parse.__name__ = name
    return parse


_single, _pair = _ntuple(1, "_single"), _ntuple(2, "_pair")
_triple, _quadruple = _ntuple(3, "_triple"), _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t, count):
    """(1, 2), 2 -> (2, 2, 1, 1): what F.pad takes for a padding that is the same on both sides."""
    return tuple(x for x in reversed(t) for _ in range(count))

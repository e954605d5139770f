"""Arguments that are one number or one number a dimension."""

from collections.abc import Iterable

__all__ = []  # of `from .utils import *`


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


def _list_with_default(out_size, defaults):
    """The sizes, with a default where one is None."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [v if v is not None else d for v, d in zip(out_size, defaults[-len(out_size) :], strict=False)]


def consume_prefix_in_state_dict_if_present(state_dict, prefix):
    """Takes a prefix such as "module." off all keys of a state_dict, in place."""
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    for key in list(metadata or ()):
        if key and (key == prefix.rstrip(".") or key.startswith(prefix)):
            metadata[key[len(prefix) :]] = metadata.pop(key)

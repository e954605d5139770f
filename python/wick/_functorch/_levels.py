"""Levels of function transforms: begin, end, and what of a program's values belongs to one."""

import contextlib

from .. import _C
from ..utils import _pytree

GRAD, BATCH, FORWARD = range(3)
RANDOMNESS = ("error", "different", "same")


def run_whole(function):
    """Marks a function that begins levels: where torch.compile cannot capture all of it, it runs as it is."""
    function._wick_whole = True
    return function


@contextlib.contextmanager
def level(kind, batch_size=0, randomness="error"):
    """Inside, the innermost level is a new one; gives how many there are."""
    depth = _C._level_begin(kind, batch_size, RANDOMNESS.index(randomness))
    try:
        yield depth
    finally:
        _C._level_end()


def wrap(tree):
    """The tree with its tensors as tensors of the innermost level."""
    return _pytree.tree_map(lambda x: _C._level_wrap(x, -1, None) if isinstance(x, _C.Tensor) else x, tree)


def value(tensor):
    """The tensor one level below."""
    found = _C._level_unwrap(tensor)
    return tensor if found is None else found[0]


def values(tree, where):
    """The tree with tensors one level below; it may hold tensors alone."""

    def unwrap(x):
        if isinstance(x, _C.Tensor):
            return value(x)
        raise RuntimeError(f"Expected tensors, got unsupported type {type(x)}")

    return _pytree.tree_map(unwrap, tree)

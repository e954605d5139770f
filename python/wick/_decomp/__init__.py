"""torch._decomp: operators in terms of others, down to a small primitive set, for backends and exporters.

table = get_decompositions([wick.ops.aten.gelu, wick.ops.aten._softmax])
graph = make_fx(f, decomposition_table=table)(x)  # of other operators in their place
"""

from .. import _C

__all__ = [
    "core_aten_decompositions",
    "decomposition_table",
    "get_decompositions",
    "primitives",
    "register_decomposition",
]

_NOTHING, _ONCE, _ALL = range(3)


class Decomposition:
    """An operator that is computed by calls of others. Derivatives are the operator's own."""

    def __init__(self, overload):
        self.overload = overload
        self.__name__ = str(overload)

    def __call__(self, *args, **kwargs):
        before = _C._set_decomposing(_ONCE)
        try:
            return self.overload(*args, **kwargs)
        finally:
            _C._set_decomposing(before)

    def __repr__(self):
        return f"<decomposition of {self.overload}>"


def primitives():
    """The operators that no decomposition goes below: a set of OpOverloads."""
    return {_C._overload(name) for name, kind in _C._decompositions().items() if kind == "primitive"}


def _own_table():
    names = [name for name, kind in _C._decompositions().items() if kind in ("rule", "parts")]
    return {overload: Decomposition(overload) for overload in map(_C._overload, names)}


decomposition_table = _own_table()  # {OpOverload: function}; register_decomposition adds to it


def _overloads(op):
    return [op] if isinstance(op, _C.OpOverload) else [getattr(op, name) for name in op.overloads()]


def get_decompositions(aten_ops):
    """{OpOverload: function} for those of the operators, or of their overloads, that have a decomposition."""
    wanted = [overload for op in aten_ops for overload in _overloads(op)]
    return {overload: decomposition_table[overload] for overload in wanted if overload in decomposition_table}


def core_aten_decompositions():
    """All decompositions: what a graph holds after them is in primitives()."""
    return dict(decomposition_table)


def register_decomposition(aten_op, registry=None):
    """A decorator: the function stands for the operator, a list of operators, or all overloads of a packet."""
    registry = decomposition_table if registry is None else registry

    def register(function):
        for op in aten_op if isinstance(aten_op, (list, tuple)) else [aten_op]:
            for overload in _overloads(op):
                if overload in registry:
                    raise RuntimeError(f"duplicate registrations for {overload}")
                registry[overload] = function
        return function

    return register

"""The integers among a backend's example inputs, and PyTorch's classes for other symbolic values."""

from ._names import cannot_be_made


class SymInt(int):
    """A size that differs from call to call, as a backend of compile() sees it: it prints as the symbol that stands for
    it in the graph, and is otherwise the int that it was in the call that was captured. Later calls are given ints.

    >>> def backend(module, example_inputs):
    ...     tensors = [e for e in example_inputs if not isinstance(e, SymInt)]
    ...     return module.forward
    """

    def __new__(cls, value, symbol):
        self = super().__new__(cls, value)
        self._symbol = symbol
        return self

    def __repr__(self):
        return self._symbol

    __str__ = __repr__

    def __format__(self, spec):
        return format(int(self), spec) if spec else self._symbol

    def __reduce__(self):
        return SymInt, (int(self), self._symbol)


SymFloat, SymBool = (
    cannot_be_made(f"torch.{name}", "floats and bools of a captured program are Python's own")
    for name in ("SymFloat", "SymBool")
)

"""Sizes that are symbols, as a backend sees them: integers, tensors of such sizes; and PyTorch's classes for other symbolic
values."""

import math

from . import _C
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


class _Sizes(tuple):
    """A torch.Size with symbols in it."""

    def __repr__(self):
        return f"torch.Size([{', '.join(map(str, self))}])"

    def numel(self):
        """Their product, for the sizes that the symbols had."""
        return math.prod(self)


class SymbolicTensor(_C.Tensor):
    """What a graph's node says of a tensor whose sizes are symbols: it has no memory, and prints as FakeTensor.

    >>> SymbolicTensor((SymInt(3, "s0"), 4), (4, 1), wick.float32).shape
    torch.Size([s0, 4])
    """

    def __new__(cls, sizes, strides, dtype):
        from .functions.statistics import empty_strided

        self = empty_strided(tuple(map(int, sizes)), tuple(map(int, strides)), dtype=dtype, device="meta").as_subclass(
            cls
        )
        self._sizes, self._strides = _Sizes(sizes), tuple(strides)
        return self

    shape = property(lambda self: self._sizes)

    def size(self, dim=None):
        """The sizes, or one of them."""
        return self._sizes if dim is None else self._sizes[dim]

    def stride(self, dim=None):
        """The strides, or one of them."""
        return self._strides if dim is None else self._strides[dim]

    def __repr__(self, *, tensor_contents=None):
        sizes = ", ".join(map(str, self._sizes)) + ("," if len(self._sizes) == 1 else "")
        dtype = "" if self.dtype is _C.float32 else f", dtype={self.dtype}"
        return f"FakeTensor(..., size=({sizes}){dtype})"

    def __reduce_ex__(self, protocol):
        return SymbolicTensor, (tuple(self._sizes), self._strides, self.dtype)

    def __deepcopy__(self, memo):
        return self


SymFloat, SymBool = (
    cannot_be_made(f"torch.{name}", "floats and bools of a captured program are Python's own")
    for name in ("SymFloat", "SymBool")
)

"""torch.functional, and other functions that are more Python than arithmetic: sorting, counting, einsum.

They are made of operators, so that they have derivatives and are captured; functions/ has them. Tensor has many of them
as methods; see _FUNCTION_METHODS in _tensor.py. Tests: tests/parity/test_functional_parity.py.
"""

from ._names import files_of as _files_of
from ._names import late as _late

# The file of functions/, then what it has.
_LATE = {
    "variadic": "atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod meshgrid unravel_index",
    "products": "chain_matmul tensordot",
    "ctc": "ctc_loss",
    "einsum": "einsum",
    "distances": "cdist",
    "counting": "unique unique_consecutive",
    "elements": "is_conj is_neg resolve_conj resolve_neg",
}
_of_functions = _late(__name__, names=_files_of(_LATE), beside=f"{__package__}.functions")


def __getattr__(name):
    import wick

    if name in ("broadcast_shapes", "norm", "split"):
        return getattr(wick, name)
    if name == "F":
        return wick.nn.functional
    return _of_functions(name)

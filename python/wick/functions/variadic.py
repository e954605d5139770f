"""Functions that take their tensors one by one, f(a, b), or in a list, f([a, b]): a protocol of Python over operators that
take lists. Tests: tests/parity/test_functional_parity.py, tests/python/test_torch_function.py."""

from .. import _C


def _variadic(name, doc):
    operator = getattr(_C, name)

    def function(*tensors, **kwargs):
        many = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
        if _C._overrides and _C._has_torch_function_variadic(*many):
            return _C._dispatch_torch_function(function, tuple(many), tensors, kwargs)
        return operator(many, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _one_or_many(name, doc):
    """The same where one tensor gives one."""
    operator, of_many = getattr(_C, name), _variadic(name, doc)

    def function(*tensors):
        if len(tensors) != 1 or not isinstance(tensors[0], _C.Tensor):
            return of_many(*tensors)
        if _C._overrides and _C._has_torch_function_variadic(tensors[0]):
            return _C._dispatch_torch_function(function, tensors, tensors, {})
        return operator(tensors[0])

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


atleast_1d = _one_or_many("atleast_1d", "Tensors of at least one dim.")
atleast_2d = _one_or_many("atleast_2d", "Tensors of at least two dims: a vector becomes a row.")
atleast_3d = _one_or_many(
    "atleast_3d", "Tensors of at least three dims: (n) becomes (1, n, 1), (n, m) becomes (n, m, 1)."
)
block_diag = _variadic("block_diag", "The matrices along the diagonal of one.")
broadcast_tensors = _variadic(
    "broadcast_tensors", "The tensors expanded to the shape that they have beside each other."
)
cartesian_prod = _variadic(
    "cartesian_prod", "All tuples of one element each: (product of the lengths, number of vectors)."
)
_meshgrid = _variadic("meshgrid", "")


def meshgrid(*tensors, indexing=None):
    """A grid for each of the vectors, which says its coordinate: "ij" like a matrix's, "xy" like a plane's.

    >>> meshgrid(wick.arange(2), wick.arange(3), indexing="ij")[0].shape
    torch.Size([2, 3])
    """
    return _meshgrid(*tensors, **({} if indexing is None else {"indexing": indexing}))


def unravel_index(indices, shape):
    """The coordinates of flat indices."""
    shape = [shape] if isinstance(shape, int) else list(shape)
    coordinates = []
    for size in reversed(shape):
        coordinates.append(indices % size)
        indices = indices // size
    return _C.stack(coordinates[::-1], -1).unbind(-1) if coordinates else ()

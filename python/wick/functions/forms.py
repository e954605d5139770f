"""What the functions take and give in several forms: lists of tensors, dims, out=, pairs with names.

Tests: tests/parity/test_functional_parity.py.
"""

from .. import _C


def all_tensors(tensors):
    """The tensors of f(a, b) or f([a, b])."""
    return tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors


def wrapped_dim(dim, ndim):
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        low, high = -max(ndim, 1), max(ndim, 1) - 1
        raise IndexError(f"Dimension out of range (expected to be in range of [{low}, {high}], but got {dim})")
    return dim % max(ndim, 1)


def refuse_complex(input, kernel):
    """PyTorch's error where a kernel takes no complex tensors."""
    if input.is_complex():
        kind = "ComplexFloat" if input.dtype == _C.complex64 else "ComplexDouble"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{kind}'")


def written(result, out):
    """The result, or `out` with its values, resized where it has another shape."""
    if out is None:
        return result
    return _C.add(result, 0, out=out) if result.dtype != _C.bool else _C.ne(result, False, out=out)


def written_pair(results, out):
    """The same for two results."""
    if out is None:
        return results
    return type(results)(*(written(r, o) for r, o in zip(results, out, strict=True)))


def refuse_shared_memory(input, out):
    """PyTorch's error where a result lies in the input's memory and the kernel would read what it has written."""
    if any(
        o.numel() and input.numel() and o.untyped_storage().data_ptr() == input.untyped_storage().data_ptr()
        for o in out
    ):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
            "location. Please clone() the tensor before performing the operation."
        )


def refuse_empty(name, tensors):
    if not len(tensors):
        raise RuntimeError(f"{name} expects a non-empty TensorList")


def named_pair(kind, values, indices):
    from .. import return_types

    return return_types.make(kind, values, indices)

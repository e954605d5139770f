"""vmap: one call of a function for many examples."""

import functools

from .. import _C
from ..utils import _pytree
from ._levels import BATCH, RANDOMNESS, level, run_whole

__all__ = ["in_dims_t", "out_dims_t", "vmap", "vmap_impl"]

in_dims_t = int | tuple
out_dims_t = int | tuple


def _name(func):
    return getattr(func, "__name__", repr(func))


def _check_randomness(randomness):
    if randomness not in RANDOMNESS:
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")


# ---- what goes in ----


def _check_in_dim(arg, dim, start):
    """A dim of an argument, counted from the front; None where the argument has no batch."""
    if not isinstance(dim, int) and dim is not None:
        raise ValueError(
            f"{start}Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
        )
    if dim is None:
        return None
    if not isinstance(arg, _C.Tensor):
        raise ValueError(
            f"{start}Got in_dim={dim} for an input but the input is of type {type(arg)}. We cannot vmap over "
            "non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -arg.dim() <= dim < arg.dim():
        raise ValueError(
            f"{start}Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {arg.dim()} so "
            f"expected in_dim to satisfy -{arg.dim()} <= in_dim < {arg.dim()}."
        )
    return dim % arg.dim()


def _common_size(args, dims):
    sizes = [arg.size(dim) for arg, dim in zip(args, dims, strict=True) if dim is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return sizes[0]


def _read_inputs(func, in_dims, args):
    """(batch size, dims by argument, arguments in a row, their structure)"""
    name = _name(func)
    start = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): "
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"{start}expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(in_dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
            "function with no inputs. The latter is unsupported."
        )
    flat, spec = _pytree.tree_flatten(args)
    dims = _pytree._broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{start}in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{_pytree.tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    dims = [_check_in_dim(arg, dim, start) for arg, dim in zip(flat, dims, strict=True)]
    return _common_size(flat, dims), dims, flat, spec


# ---- what comes out ----


def _read_out_dims(func, out_dims, outputs, spec):
    """A dim for each output."""
    name = _name(func)
    if isinstance(outputs, _C.Tensor):
        if isinstance(out_dims, int):
            return [out_dims]
        if isinstance(out_dims, tuple) and len(out_dims) == 1:
            return list(out_dims)
        if out_dims is None:
            return [None]
        dims = None
    else:
        dims = _pytree._broadcast_to_and_flatten(out_dims, spec)
    if dims is None:
        raise ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            f"`outputs`. out_dims has structure {_pytree.tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    return dims


def _check_out_dims(func, out_dims):
    if isinstance(out_dims, int):
        return
    for dim in _pytree.tree_leaves(out_dims, is_leaf=lambda x: x is None):
        if not isinstance(dim, int) and dim is not None:
            raise ValueError(
                f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                "collection of ints representing where in the outputs the vmapped dimension should appear."
            )


def _whole(name, output, dim, size):
    """The output of all examples, with the batch as dim `dim`."""
    found = _C._level_unwrap(output) if isinstance(output, _C.Tensor) else None
    if dim is None:
        if found is not None:
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return output
    if not isinstance(output, _C.Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(output)}. Did you mean to set "
            "out_dims= to None for output?"
        )
    if not -output.dim() - 1 <= dim <= output.dim():
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-output.dim() - 1}, {output.dim()}], but got {dim})"
        )
    dim %= output.dim() + 1
    return dim, found, output, size


def _take_out(func, out_dims, size, outputs):
    """What is to be done with each output once the level has ended."""
    flat, spec = _pytree.tree_flatten(outputs)
    dims = _read_out_dims(func, out_dims, outputs, spec)
    name = _name(func)
    return [_whole(name, output, dim, size) for output, dim in zip(flat, dims, strict=True)], spec


def _finish(taken):
    if type(taken) is not tuple:
        return taken
    dim, found, output, size = taken
    if found is None:  # the same for all examples
        sizes = list(output.shape)
        return output.unsqueeze(dim).expand(sizes[:dim] + [size] + sizes[dim:])
    value, batch_dim = found
    return value if batch_dim == dim else value.movedim(batch_dim, dim)


# ---- the call ----


def _call(func, size, dims, flat, spec, out_dims, randomness, kwargs):
    with level(BATCH, size, randomness):
        batched = [x if dim is None else _C._level_wrap(x, dim, None) for x, dim in zip(flat, dims, strict=True)]
        taken, out_spec = _take_out(func, out_dims, size, func(*_pytree.tree_unflatten(batched, spec), **kwargs))
    return [_finish(t) for t in taken], out_spec


def _chunked(func, size, dims, flat, spec, out_dims, randomness, chunk_size, kwargs):
    parts = []
    for begin in range(0, size, chunk_size):
        length = min(chunk_size, size - begin)
        part = [x if d is None else x.narrow(d, begin, length) for x, d in zip(flat, dims, strict=True)]
        outputs, out_spec = _call(func, length, dims, part, spec, out_dims, randomness, kwargs)
        parts.append(outputs)
    tree = _pytree.tree_unflatten(parts[0], out_spec)
    places = _read_out_dims(func, out_dims, tree, out_spec)
    joined = [p[0] if dim is None else _C.cat(p, dim) for p, dim in zip(zip(*parts, strict=True), places, strict=True)]
    return _pytree.tree_unflatten(joined, out_spec)


@run_whole
def vmap_impl(func, in_dims, out_dims, randomness, chunk_size, *args, **kwargs):
    """vmap(func, in_dims, out_dims, randomness, chunk_size=chunk_size)(*args, **kwargs)"""
    _check_out_dims(func, out_dims)
    size, dims, flat, spec = _read_inputs(func, in_dims, args)
    if chunk_size is not None and size > chunk_size:
        return _chunked(func, size, dims, flat, spec, out_dims, randomness, chunk_size, kwargs)
    outputs, out_spec = _call(func, size, dims, flat, spec, out_dims, randomness, kwargs)
    return _pytree.tree_unflatten(outputs, out_spec)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """The function for many examples at once: tensors have one more dim, in_dims (a number for each argument, or None),
    and results have it at out_dims. The function sees one example.

    dot = vmap(torch.dot)          # (N, K), (N, K) -> (N)

    randomness: what random operators do: "error", or numbers that are "different" for the examples or the "same".
    chunk_size: no more examples than that at once.
    """
    _check_randomness(randomness)
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        return vmap_impl(func, in_dims, out_dims, randomness, chunk_size, *args, **kwargs)

    return wrapped

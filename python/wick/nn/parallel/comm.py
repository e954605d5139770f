"""Tensors to several CUDA devices and back. All of it is copies, sums and cat of tensors, so gradients go through it.

Tests: tests/cuda/test_data_parallel.py.
"""

import warnings

from ... import _C
from ..._names import getter as _getter

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def place(device):
    """A CUDA device by number, name or object; None is the current one, -1 and "cpu" the CPU."""
    from ...cuda import _index

    if not isinstance(device, int) and device is not None:
        device = _C.device(device)
        if device.type == "cpu":
            return device
    return _C.device("cpu") if device == -1 else _C.device("cuda", _index(device))


def _target(device):
    where = place(device)
    if where.type == "cpu":
        raise ValueError(f"Expected a non cpu device, but got: {where}")
    return where


def broadcast(tensor, devices=None, *, out=None):
    """The tensor on each device, the first of which is its own; itself there. With `out`, into these tensors."""
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}"
        )
    if out is not None:
        return tuple(o if o is tensor else o.copy_(tensor, non_blocking=True) for o in out)
    places = [_target(d) for d in devices]
    if tensor.is_cuda and places and places[0] != tensor.device:
        raise RuntimeError("device of broadcasted tensor must appear as the first on devices list")
    return tuple(tensor.to(where, non_blocking=True) for where in places)


def broadcast_coalesced(tensors, devices, buffer_size=10485760):
    """broadcast of each tensor: for each device, a list of them all."""
    copies = [broadcast(t, devices) for t in tensors]
    return [[copy[i] for copy in copies] for i in range(len(devices))]


def reduce_add(inputs, destination=None):
    """The sum of tensors of several devices, on that of one of them; the current one by default."""
    where = _target(destination)
    root = None
    for i, t in enumerate(inputs):
        if t.device.type == "cpu":
            raise AssertionError(f"reduce_add expects all inputs to be on GPUs, but input {i} is on CPU")
        if t.device == where:
            root = i
        if t.size() != inputs[0].size():
            got, expected = ("x".join(map(str, x.size())) for x in (t, inputs[0]))
            raise ValueError(f"input {i} has invalid size: got {got}, but expected {expected}")
    if root is None:
        raise RuntimeError("reduce_add expects destination to be on the same GPU with one of the tensors")
    total = inputs[root]
    for i, t in enumerate(inputs):
        if i != root:
            total = total + t.to(where, non_blocking=True)
    return total


def reduce_add_coalesced(inputs, destination=None, buffer_size=10485760):
    """reduce_add of the first tensors of each device, of the second, and so on."""
    return tuple(reduce_add(list(group), destination) for group in zip(*inputs, strict=True))


def _shares(tensor, count, chunk_sizes, dim):
    if chunk_sizes is None:
        return tensor.chunk(count, dim)
    if len(chunk_sizes) != count:
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {count} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    return tensor.split(list(chunk_sizes), dim)


def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    """The tensor cut along `dim`, a share on each device; copies go through `streams` where they are given."""
    from ...cuda import StreamContext, current_stream

    if out is not None:
        for name, given in (("devices", devices), ("chunk_sizes", chunk_sizes)):
            if given is not None:
                raise RuntimeError(f"'{name}' must not be specified when 'out' is specified, but got {name}={given}")
        shares = tensor.split([o.size(dim) for o in out], dim)
        return tuple(o.copy_(share, non_blocking=True) for o, share in zip(out, shares, strict=True))
    places = [_target(d) for d in devices]
    copies = []
    for i, share in enumerate(_shares(tensor, len(places), chunk_sizes, dim)):
        stream = streams[i] if streams else None
        with StreamContext(stream):
            copies.append(share.to(places[i], non_blocking=True))
        if stream is not None:
            current_stream(places[i]).wait_stream(stream)
            copies[-1].record_stream(current_stream(places[i]))
    return tuple(copies)


def gather(tensors, dim=0, destination=None, *, out=None):
    """Tensors of several devices behind each other along `dim`, on a device or the CPU."""
    if out is not None:
        if destination is not None:
            raise RuntimeError(
                f"'destination' must not be specified when 'out' is specified, but got destination={destination}"
            )
        shares = out.split([t.size(dim) for t in tensors], dim)
        for share, t in zip(shares, tensors, strict=True):
            share.copy_(t, non_blocking=True)
        return out
    if destination == -1:
        warnings.warn(
            "Using -1 to represent CPU tensor is deprecated. Please use a "
            'device object or string instead, e.g., "cpu".',
            FutureWarning,
            stacklevel=2,
        )
    where = place(destination)
    return _C.cat([t.to(where, non_blocking=where.type != "cpu") for t in tensors], dim)


__getattr__ = _getter(__name__)

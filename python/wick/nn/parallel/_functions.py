"""Sharing out and taking together as functions with a derivative, which copies, cat and chunk have.
Without devices, where PyTorch refuses, everything stays where it is."""

from ... import _C
from ..._names import getter as _getter
from . import comm
from .scatter_gather import gather, has_devices

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class Gather:
    """The shares of several devices behind each other."""

    @staticmethod
    def apply(target_device, dim, *inputs):
        """One tensor of the shares."""
        if has_devices() and any(t.device.type == "cpu" for t in inputs):
            raise AssertionError("Gather function not implemented for CPU tensors")
        return gather(inputs, target_device, dim)


class Scatter:
    """A tensor cut into a share for each device."""

    @staticmethod
    def apply(target_gpus, chunk_sizes, dim, input):
        """The shares."""
        if not has_devices():
            return tuple(input.split(chunk_sizes, dim) if chunk_sizes else input.chunk(len(target_gpus), dim))
        return comm.scatter(input, target_gpus, chunk_sizes, dim)


class Broadcast:
    """Tensors once for each device."""

    @staticmethod
    def apply(target_gpus, *inputs):
        """All of them on the first device, all on the second, and so on."""
        if not has_devices():
            return tuple(inputs) * len(target_gpus)
        if any(t.device.type == "cpu" for t in inputs):
            raise AssertionError("Broadcast function not implemented for CPU tensors")
        return tuple(t for copies in comm.broadcast_coalesced(inputs, target_gpus) for t in copies)


class ReduceAddCoalesced:
    """Sums over the shares of several devices: of the i-th tensors of each."""

    @staticmethod
    def apply(destination, num_inputs, *grads):
        """The sums."""
        shares = [grads[i : i + num_inputs] for i in range(0, len(grads), num_inputs)]
        if not has_devices():
            return tuple(_C.stack(group).sum(0) for group in zip(*shares, strict=True))
        return comm.reduce_add_coalesced(shares, destination)


def _get_stream(device):
    """The stream that copies to a device: None, the current one."""
    return None


__getattr__ = _getter(__name__)

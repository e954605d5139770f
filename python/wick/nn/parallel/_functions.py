"""Sharing out and taking together as functions with a derivative, which cat and chunk have; devices there are none of."""

from ... import _C
from ..._names import getter as _getter
from .scatter_gather import gather

__all__ = ["Broadcast", "Gather", "ReduceAddCoalesced", "Scatter"]


class Gather:
    """The shares of several devices behind each other."""

    @staticmethod
    def apply(target_device, dim, *inputs):
        """One tensor of the shares."""
        return gather(inputs, target_device, dim)


class Scatter:
    """A tensor cut into a share for each device."""

    @staticmethod
    def apply(target_gpus, chunk_sizes, dim, input):
        """The shares, views of the tensor."""
        return tuple(input.split(chunk_sizes, dim) if chunk_sizes else input.chunk(len(target_gpus), dim))


class Broadcast:
    """Tensors once for each device."""

    @staticmethod
    def apply(target_gpus, *inputs):
        """The tensors themselves, as often as there are targets."""
        return tuple(inputs) * len(target_gpus)


class ReduceAddCoalesced:
    """Sums over the shares of several devices: of the i-th tensors of each."""

    @staticmethod
    def apply(destination, num_inputs, *grads):
        """The sums."""
        return tuple(_C.stack(grads[i::num_inputs]).sum(0) for i in range(num_inputs))


def _get_stream(device):
    """The stream that copies to a device: None, as for the CPU."""
    return None


__getattr__ = _getter(__name__)

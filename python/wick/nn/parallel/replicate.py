"""Copies of a module for devices."""

from collections import OrderedDict

from ..._names import getter as _getter
from . import comm

__all__ = ["replicate"]


def _copies(tensors, devices, detach):
    """{id: [a copy for each device]}; on the tensor's own device it shares its memory, and is no parameter."""
    copies = {}
    for t in tensors:
        cut = t.detach() if detach else t.view_as(t)
        copies[id(t)] = comm.broadcast(cut, devices)
    return copies


def _fill(replica, module, number, tensors, replicas):
    """What the replica has of its own: children, parameters as plain tensors, buffers."""
    replica._former_parameters = OrderedDict()
    for key, child in module._modules.items():
        replica._modules[key] = None if child is None else replicas[id(child)]
    for key, parameter in module._parameters.items():
        if parameter is None:
            replica._parameters[key] = None
        else:
            setattr(replica, key, tensors[id(parameter)][number])
            replica._former_parameters[key] = tensors[id(parameter)][number]
    for key, buffer in module._buffers.items():
        replica._buffers[key] = None if buffer is None else tensors[id(buffer)][number]


def replicate(network, devices, detach=False):
    """The module once for each device, the first of which it is on.

    The copies' parameters are computed of the module's, so that gradients of all add up there; with `detach` they are not.
    """
    if not devices:
        return []
    tensors = _copies(network.parameters(), devices, detach)
    for buffer in network.buffers():
        tensors |= _copies([buffer], devices, detach or not buffer.requires_grad)
    made = []
    for number in range(len(devices)):
        modules = list(network.modules())
        replicas = {id(module): module._replicate_for_data_parallel() for module in modules}
        for module in modules:
            _fill(replicas[id(module)], module, number, tensors, replicas)
        made.append(replicas[id(network)])
    return made


__getattr__ = _getter(__name__)

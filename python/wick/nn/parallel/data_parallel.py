"""A module whose batch is split over devices."""

from itertools import chain

from ... import _C
from ..modules.module import Module
from .parallel_apply import parallel_apply
from .replicate import replicate
from .scatter_gather import gather, scatter_kwargs

__all__ = ["DataParallel", "data_parallel"]


def _devices(device_ids):
    """The devices' numbers; of None all devices."""
    from ... import cuda

    return list(range(cuda.device_count())) if device_ids is None else [cuda._index(d) for d in device_ids]


def _check_is_on(module, number):
    first = _C.device("cuda", number)
    for t in chain(module.parameters(), module.buffers()):
        if t.device != first:
            raise RuntimeError(
                f"module must have its parameters and buffers on device {first} (device_ids[0]) but found one of "
                f"them on device: {t.device}"
            )


class DataParallel(Module):
    """Calls copies of the module with each device's share of the batch; without devices the module with the whole.

    Its parameters have the names that they have in PyTorch: "module." stands before them.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        from ... import cuda

        super().__init__()
        self.module, self.dim = module, dim
        self.device_ids, self.output_device = [], output_device
        if not cuda.is_available():
            return
        self.device_ids = _devices(device_ids)
        self.output_device = self.device_ids[0] if output_device is None else output_device
        self.src_device_obj = _C.device("cuda", self.device_ids[0])
        if len(self.device_ids) == 1:
            self.module.to(self.src_device_obj)

    def forward(self, *inputs, **kwargs):
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        _check_is_on(self.module, self.device_ids[0])
        shares, named = self.scatter(inputs, kwargs, self.device_ids)
        if not shares and not named:  # a module without inputs runs once
            shares, named = ((),), ({},)
        if len(self.device_ids) == 1:
            return self.module(*shares[0], **named[0])
        replicas = self.replicate(self.module, self.device_ids[: len(shares)])
        return self.gather(self.parallel_apply(replicas, shares, named), self.output_device)

    def replicate(self, module, device_ids):
        return replicate(module, device_ids, not _C.is_grad_enabled())

    def scatter(self, inputs, kwargs, device_ids):
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def parallel_apply(self, replicas, inputs, kwargs):
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs, output_device):
        return gather(outputs, output_device, dim=self.dim)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """The module's result by shares on all devices; without them, its result."""
    from ... import cuda

    if not isinstance(inputs, tuple):
        inputs = (inputs,) if inputs is not None else ()
    if not cuda.is_available():
        return module(*inputs, **(module_kwargs or {}))
    numbers = _devices(device_ids)
    _check_is_on(module, numbers[0])
    shares, named = scatter_kwargs(inputs, module_kwargs, numbers, dim)
    if not shares and not named:
        shares, named = ((),), ({},)
    if len(numbers) == 1:
        return module(*shares[0], **named[0])
    used = numbers[: len(shares)]
    outputs = parallel_apply(replicate(module, used, not _C.is_grad_enabled()), shares, named, used)
    return gather(outputs, numbers[0] if output_device is None else output_device, dim)

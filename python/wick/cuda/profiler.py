"""torch.cuda.profiler: the CUDA profiler's switch, which needs a device."""

from . import _needs_device

init, start, stop, profile = map(_needs_device, ("init", "start", "stop", "profile"))

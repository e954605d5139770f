"""torch.cuda.profiler: the CUDA profiler's switch, which needs a device."""

from . import _needing_a_device

globals().update(_needing_a_device(("init", "start", "stop", "profile")))

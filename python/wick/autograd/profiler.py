"""torch.autograd.profiler: the older home of torch.profiler's names."""

from .._names import cannot_be_made
from .._names import getter as _getter
from ..profiler import EventList, ProfilerActivity, profile, record_function

__all__ = ["EventList", "ProfilerActivity", "profile", "record_function"]

emit_nvtx = cannot_be_made("torch.autograd.profiler.emit_nvtx", "it marks ranges for a profiler of CUDA")
emit_itt = cannot_be_made("torch.autograd.profiler.emit_itt", "it marks ranges for VTune, which wick knows nothing of")

__getattr__ = _getter(__name__)

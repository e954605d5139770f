"""torch.cuda.comm: copies between CUDA devices, which there are none of."""

from . import _needing_a_device

_NAMES = ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather")
globals().update(_needing_a_device(_NAMES))

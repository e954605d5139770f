"""torch.cuda.comm: copies between CUDA devices, which there are none of."""

from . import _needs_device

broadcast, broadcast_coalesced, reduce_add, reduce_add_coalesced, scatter, gather = map(
    _needs_device, ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather")
)

"""torch.cuda.comm: names of torch.nn.parallel.comm."""

from .._names import getter as _getter
from ..nn.parallel.comm import broadcast, broadcast_coalesced, gather, reduce_add, reduce_add_coalesced, scatter

__all__ = ["broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather"]

__getattr__ = _getter(__name__)

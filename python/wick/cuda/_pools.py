"""torch.cuda's pools of memory, and its blocks as a list (src/cuda/pools.c)."""

import contextlib

import wick as torch

from .. import _C

__all__ = ["MemPool", "memory_snapshot", "use_mem_pool"]


class MemPool:
    """Memory of a device apart from the rest: use_mem_pool allocates from it.

    It may be given to graphs, by its id. What is free of it when it goes is anybody's.
    """

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        if not torch.cuda.is_available():
            raise RuntimeError("Tried to instantiate dummy base class _MemPool")
        if allocator is not None:
            raise NotImplementedError("torch.cuda.MemPool: allocators of the program's are not there yet")
        self._device, self._id = torch.cuda.current_device(), _C._graph_pool_handle()
        self._share = _C._cuda_pool_share(self._device, self._id)

    @property
    def id(self):
        """Its number, (0, number)."""
        return self._id

    @property
    def device(self):
        """The index of the device whose memory it is."""
        return self._device

    @property
    def allocator(self):
        """Where its memory comes from: None, from where all does."""
        return

    def use_count(self):
        """How many use it: this object, graphs, and use_mem_pool."""
        return _C._cuda_pool_uses(self._share)

    def snapshot(self, include_traces=True):
        """Its memory, as memory_snapshot has it."""
        return memory_snapshot(self._id)


@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    """What this thread allocates inside a `with` is a pool's."""
    share = _C._cuda_pool_share(torch.cuda._index(device), pool.id)
    before = _C._cuda_pool_use(share)
    try:
        yield
    finally:
        _C._cuda_pool_use(before)


def _block(address, size, is_free):
    state = "inactive" if is_free else "active_allocated"
    return {"address": address, "size": size, "requested_size": 0 if is_free else size, "state": state, "frames": []}


def _segment(device, address, pool, stream):
    return {
        "device": device, "address": address, "total_size": 0, "allocated_size": 0, "active_size": 0,
        "requested_size": 0, "stream": stream, "segment_type": "large", "segment_pool_id": (0, pool),
        "is_expandable": True, "frames": [], "blocks": [],
    }  # fmt: skip


def _segments(device):
    """Blocks that lie one behind the other and are of one stream and one pool make a segment."""
    segments, last = [], None
    for address, size, pool, stream, is_free in _C._cuda_blocks(f"cuda:{device}"):
        if (pool, stream) != last:
            segments.append(_segment(device, address, pool, stream))
        last, segment = (pool, stream), segments[-1]
        segment["total_size"] += size
        for name in () if is_free else ("allocated_size", "active_size", "requested_size"):
            segment[name] += size
        segment["blocks"].append(_block(address, size, is_free))
    return segments


def memory_snapshot(mempool_id=None, include_traces=True):
    """The blocks of all devices' memory, a dict for each stretch of them; of one pool if it is given."""
    torch.cuda._lazy_init()
    found = [segment for device in range(torch.cuda.device_count()) for segment in _segments(device)]
    return [s for s in found if mempool_id is None or s["segment_pool_id"] == tuple(mempool_id)]

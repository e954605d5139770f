"""What memory is used: PyTorch's counters, as far as our allocators keep them.

Device memory is one pool (src/cuda/memory.c), so there is no ".large_pool" and no ".small_pool", a request's size is its
block's, and what is free can be given to whoever wants it: nothing is split or too large to be, and these counters are 0.
Pinned memory: src/cuda/pinned.c.
"""

from collections import OrderedDict

from .. import _C

__all__ = [
    "host_memory_stats", "host_memory_stats_as_nested_dict", "memory_stats", "memory_stats_as_nested_dict",
    "memory_summary", "reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats",
]  # fmt: skip


def _need_device():
    from . import _lazy_init

    _lazy_init()


def _four(name, current, peak, allocated, freed):
    """The entries of one counter."""
    kinds = {"current": current, "peak": peak, "allocated": allocated, "freed": freed}
    return {f"{name}.{kind}": value for kind, value in kinds.items() if value is not None}


def memory_stats(device=None):
    """Counters of device memory, by name.

    >>> torch.cuda.memory_stats()["allocated_bytes.all.peak"]
    """
    from . import _index, is_available

    if not is_available():
        return OrderedDict()
    u = _C._cuda_usage(f"cuda:{_index(device)}")
    held = (u["allocated"], u["peak_allocated"], u["allocated_ever"], u["freed_ever"])
    blocks = (u["active"], u["peak_active"], u["allocations"], u["frees"])
    segments = (u["segments"], u["peak_segments"], u["mappings"], u["unmappings"])
    stats = {"num_alloc_retries": u["retries"], "num_sync_all_streams": u["retries"], "num_ooms": u["refusals"]}
    stats |= {"num_oom_rejections": 0, "max_split_size": -1}
    stats |= {"num_device_alloc": u["mappings"], "num_device_free": u["unmappings"]}
    for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
        stats.update(_four(f"{name}.all", *held))
    for name in ("inactive_split.all", "inactive_split_bytes.all", "oversize_allocations", "oversize_segments"):
        stats.update(_four(name, 0, 0, 0, 0))
    stats.update(_four("segment.all", *segments))
    reserved = (u["reserved"], u["peak_reserved"], u["reserved_ever"], u["unreserved_ever"])
    stats.update(_four("reserved_bytes.all", *reserved))
    for name in ("allocation", "active"):
        stats.update(_four(f"{name}.all", *blocks))
    return OrderedDict(sorted(stats.items()))


def host_memory_stats():
    """Counters of pinned memory, by name."""
    from . import is_available

    if not is_available():
        return OrderedDict()
    u = _C._cuda_pinned_usage()
    stats = {"num_host_alloc": u["segments"], "num_host_free": u["segment_frees"]}
    stats.update(
        _four("allocations", u["owned"], None, u["segments"], u["segment_frees"])
        | _four("allocated_bytes", u["reserved"], u["peak_reserved"], None, None)
        | _four("active_requests", u["active"], None, u["allocations"], u["frees"])
        | _four("active_bytes", u["allocated"], u["peak_allocated"], None, None)
    )
    return OrderedDict(sorted(stats.items()))


def _nested(stats):
    """Nested by the parts of the names."""
    nested = {}
    for name, value in stats.items():
        *path, last = name.split(".")
        at = nested
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return nested


def memory_stats_as_nested_dict(device=None):
    """memory_stats, nested by the parts of the names."""
    return _nested(memory_stats(device))


def host_memory_stats_as_nested_dict():
    """host_memory_stats, nested by the parts of the names."""
    return _nested(host_memory_stats())


def reset_peak_host_memory_stats():
    """The peaks of pinned memory start at what is used now."""
    _need_device()
    _C._cuda_reset_pinned_peaks()


def reset_accumulated_host_memory_stats():
    """What host_memory_stats has counted since the start is 0."""
    _need_device()
    _C._cuda_reset_pinned_totals()


# ---- as text ----

_WIDTH = 75
_ROWS = (
    ("allocated_bytes", "Allocated memory"),
    ("active_bytes", "Active memory"),
    ("reserved_bytes", "GPU reserved memory"),
    ("allocation", "Allocations"),
    ("active", "Active allocs"),
)


def _size(value):
    unit = 0
    while value >= 768 * 1024 and unit < 5:
        value, unit = value // 1024, unit + 1
    return f"{value:6d} {('B  ', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"


def _count(value):
    unit = 0
    while value >= 750 * 1000 and unit < 2:
        value, unit = value // 1000, unit + 1
    return f"{value:7d} {' KM'[unit]} "


def _row(cells):
    return "|" + "|".join(cells) + "|"


def memory_summary(device=None, abbreviated=False):
    """memory_stats as a table; there are no parts to leave out of it."""
    from . import _index

    stats, number = memory_stats(device), _index(device)
    head = _row(
        [f" {'Metric':^21} ", *(f" {text:<10} " for text in ("Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed"))]
    )
    calls = f" CUDA OOMs: {stats['num_ooms']} | cudaMalloc retries: {stats['num_alloc_retries']}"
    double, single = "|" + "=" * _WIDTH + "|", "|" + "-" * _WIDTH + "|"
    title = f"PyTorch CUDA memory summary, device ID {number}"
    lines = [double, f"|{title:^{_WIDTH}}|", single, f"|{calls:^{_WIDTH}}|", double, head]
    for key, name in _ROWS:
        shown = _size if key.endswith("bytes") else _count
        values = [stats[f"{key}.all.{kind}"] for kind in ("current", "peak", "allocated", "freed")]
        lines += [single, _row([f" {name:<21} ", *(f" {shown(value)} " for value in values)])]
    return "\n".join([*lines, double]) + "\n"

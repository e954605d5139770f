"""torch.utils._foreach_utils: lists of tensors, grouped as optimizers of other libraries want them.

Tests: tests/python/test_import_names.py.
"""

from .._names import getter as _getter

__all__ = []


def _get_foreach_kernels_supported_devices():
    """The devices of fused updates of many tensors."""
    return ["cuda", "xpu", "mtia"]


def _get_fused_kernels_supported_devices():
    """The devices of optimizers' fused steps."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia"]


def _device_has_foreach_support(device):
    return device.type in (*_get_foreach_kernels_supported_devices(), "cpu")


def _has_foreach_support(tensors, device):
    return _device_has_foreach_support(device) and all(t is None or type(t).__name__ == "Tensor" for t in tensors)


def _group_tensors_by_device_and_dtype(tensorlistlist, with_indices=False):
    """{(device, dtype): (lists, indices)}: each list's tensors at the places where the first list has this device and dtype.

    Lists that are empty stay empty; None may stand for a tensor but in the first list.
    """
    groups = {}
    for at, first in enumerate(tensorlistlist[0]):
        lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for chosen, tensors in zip(lists, tensorlistlist, strict=True):
            if tensors:
                chosen.append(tensors[at])
        if with_indices:
            indices.append(at)
    return groups


__getattr__ = _getter(__name__)

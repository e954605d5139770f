"""Descriptions of tensors: Node.meta["tensor_meta"]."""

from typing import NamedTuple

from ... import _C


class TensorMetadata(NamedTuple):
    """What is known of a node's tensor without its values."""

    shape: _C.Size
    dtype: _C.dtype
    requires_grad: bool
    stride: tuple
    memory_format: object
    is_quantized: bool
    qparams: dict


def _extract_tensor_metadata(result):
    layout = _C.contiguous_format if result.is_contiguous() else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), layout, False, {})

"""Files of GGUF: their metadata and tensors, and linear layers over their quantized blocks.

>>> file = load("model.gguf")                       # doctest: +SKIP
>>> file.metadata["general.architecture"], list(file.tensors)
>>> layer = linear(file.tensors["blk.0.attn_q.weight"])

The file is mapped: a tensor is read when it is first touched. Numbers are in the order of the machine, little-endian.
Tests: tests/python/test_gguf.py.
"""

import mmap
import struct
from dataclasses import dataclass

from . import _C

__all__ = ["BlockTensor", "File", "linear", "load"]

MAGIC = b"GGUF"
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}  # kinds of values
STRING, ARRAY = 8, 9
PLAIN = {  # numbers of tensor types -> dtype
    0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16",
}  # fmt: skip
BLOCKS = {  # -> format, elements and bytes of a block
    2: ("q4_0", 32, 18), 8: ("q8_0", 32, 34), 12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210),
}  # fmt: skip
LONGEST = 1 << 27  # a length beyond it is a damaged file's


@dataclass
class BlockTensor:
    """A tensor of quantized blocks: `blocks` (rows, bytes of a row) of uint8, and the shape that it stands for."""

    format: str
    shape: tuple
    blocks: object

    def dequantize(self):
        """In float32."""
        return _C._quant_weight(self.blocks, self.format).view(self.shape)


@dataclass
class File:
    """What is in a file, by name."""

    metadata: dict
    tensors: dict


class _Reader:
    """Numbers one after the other; reading past the end is a ValueError."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        if size < 0 or self.at + size > len(self.data):
            raise ValueError("GGUF: the file ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind):
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def length(self):
        n = self.number("Q")
        if n > LONGEST:
            raise ValueError(f"GGUF: {n} is no length")
        return n

    def text(self):
        return self.take(self.length()).decode("utf-8", "replace")

    def value(self, kind, depth=0):
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY or depth > 4:
            raise ValueError(f"GGUF: there is no kind {kind} of values")
        item, n = self.number("I"), self.length()
        if item in NUMBERS:
            form = f"<{n}{NUMBERS[item]}"
            return list(struct.unpack(form, self.take(struct.calcsize(form))))
        return [self.value(item, depth + 1) for _ in range(n)]


def _tensor(data, start, kind, shape):
    """The shape's last dim is what lies side by side."""
    count = 1
    for size in shape:
        count *= size
    if kind in PLAIN:
        dtype = getattr(_C, PLAIN[kind])
        return _bytes(data, start, count * dtype.itemsize).view(dtype).view(shape)
    if kind not in BLOCKS:
        raise NotImplementedError(f"GGUF: tensors of type {kind} are not read")
    format, elements, size = BLOCKS[kind]
    if not shape or shape[-1] % elements:
        raise ValueError(f"GGUF: rows of {shape[-1] if shape else 1} are no blocks of {elements}")
    rows = count // shape[-1] if shape[-1] else 0
    row = shape[-1] // elements * size
    return BlockTensor(format, shape, _bytes(data, start, rows * row).view(rows, row))


def _bytes(data, start, size):
    if start + size > len(data):
        raise ValueError("GGUF: a tensor lies beyond the end of the file")
    return _C.frombuffer(data, dtype=_C.uint8, count=size, offset=start) if size else _C.empty(0, dtype=_C.uint8)


def load(path):
    """The file's metadata, and its tensors: those of floats and integers as tensors, quantized ones as BlockTensor."""
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    reader = _Reader(data)
    if reader.take(4) != MAGIC:
        raise ValueError(f"{path} is no GGUF file")
    version = reader.number("I")
    if version not in (2, 3):
        raise NotImplementedError(f"GGUF: version {version} is not read")
    tensors, entries = reader.length(), reader.length()
    metadata = {}
    for _ in range(entries):
        name = reader.text()
        metadata[name] = reader.value(reader.number("I"))
    described = []
    for _ in range(tensors):
        name, dims = reader.text(), reader.number("I")
        if dims > 8:
            raise ValueError(f"GGUF: {name} has {dims} dims")
        shape = tuple(reversed([reader.length() for _ in range(dims)]))
        described.append((name, shape, reader.number("I"), reader.number("Q")))
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment <= 0:
        raise ValueError(f"GGUF: an alignment of {alignment}")
    first = -(-reader.at // alignment) * alignment
    return File(metadata, {n: _tensor(data, first + at, kind, shape) for n, shape, kind, at in described})


def linear(weight, bias=None):
    """A layer y = x w' + b over a BlockTensor (out, in), whose blocks stay as they are."""
    from .ao.quantization.linear import QuantizedLinear

    if not isinstance(weight, BlockTensor) or len(weight.shape) != 2:
        raise TypeError("gguf.linear: the weight is a matrix of blocks")
    out_features, in_features = weight.shape
    return QuantizedLinear(in_features, out_features, weight.blocks, None, bias, weight.format)

"""wick.gguf: files that the test writes by the format's definition are read back, metadata and tensors; blocks are the
numbers that their definition says; layers over them; and damaged files are errors."""

import struct

import pytest

import wick
from wick import gguf, nn

KINDS = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7, "str": 8, "list": 9, "u64": 10,
         "i64": 11, "f64": 12}  # fmt: skip
FORMS = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f", "bool": "?", "u64": "Q",
         "i64": "q", "f64": "d"}  # fmt: skip


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, v):
    if kind == "str":
        return text(v)
    if kind.endswith("[]"):
        item = kind[:-2]
        return struct.pack("<IQ", KINDS[item], len(v)) + b"".join(value(item, x) for x in v)
    return struct.pack("<" + FORMS[kind], v)


def file_of(entries, tensors, alignment=32, version=3):
    """tensors: {name: (type, shape, bytes)}"""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    for name, (kind, v) in entries.items():
        out += text(name) + struct.pack("<I", KINDS["list" if kind.endswith("[]") else kind]) + value(kind, v)
    data = b""
    for name, (kind, shape, content) in tensors.items():
        data += bytes(-len(data) % alignment)
        out += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        out += struct.pack("<IQ", kind, len(data))
        data += content
    return out + bytes(-len(out) % alignment) + data


def half(x):
    return struct.pack("<e", x)


def q4_0(scale, values):
    """32 integers from -8 to 7."""
    return half(scale) + bytes((values[j] + 8) | (values[j + 16] + 8) << 4 for j in range(16))


@pytest.fixture
def path(tmp_path):
    def write(content):
        file = tmp_path / "model.gguf"
        file.write_bytes(content)
        return str(file)

    return write


def test_metadata(path):
    entries = {
        "general.architecture": ("str", "gpt2"), "general.alignment": ("u32", 64), "a": ("i8", -3), "b": ("f32", 0.5),
        "c": ("bool", True), "d": ("u64", 2**40), "e": ("str[]", ["x", "é", ""]), "f": ("i16[]", [-1, 300]),
        "g": ("f64", -2.5), "h": ("i64", -(2**40)),
    }  # fmt: skip
    content = struct.pack("<3f", 1, 2, 3)
    file = gguf.load(path(file_of(entries, {"t": (0, (3,), content), "u": (0, (3,), content)}, alignment=64)))
    assert file.metadata == {name: v for name, (_, v) in entries.items()}
    assert file.tensors["t"].tolist() == [1, 2, 3] == file.tensors["u"].tolist()


def test_plain_tensors(path):
    x = wick.arange(6.0).view(2, 3)
    types = {"f32": (0, wick.float32), "f16": (1, wick.float16), "i8": (24, wick.int8), "i32": (26, wick.int32),
             "i64": (27, wick.int64), "f64": (28, wick.float64), "bf16": (30, wick.bfloat16)}  # fmt: skip
    tensors = {
        name: (kind, (2, 3), bytes(x.to(dtype).contiguous().view(wick.uint8).flatten().tolist()))
        for name, (kind, dtype) in types.items()
    }
    file = gguf.load(path(file_of({}, tensors)))
    for name, (_, dtype) in types.items():
        assert file.tensors[name].dtype == dtype and wick.equal(file.tensors[name], x.to(dtype))


def test_blocks_and_layers(path):
    wick.manual_seed(0)
    values = wick.randint(-8, 8, (6, 64))
    scales = wick.tensor([0.5, 0.25]).repeat(6).view(6, 2)
    rows = [[q4_0(scales[r, b].item(), values[r, 32 * b : 32 * b + 32].tolist()) for b in range(2)] for r in range(6)]
    eights = wick.randint(-128, 128, (2, 32))
    q8 = b"".join(half(0.125) + struct.pack("<32b", *eights[r].tolist()) for r in range(2))
    tensors = {"w": (2, (6, 64), b"".join(b for row in rows for b in row)), "v": (8, (2, 32), q8)}
    file = gguf.load(path(file_of({}, tensors)))
    w, v = file.tensors["w"], file.tensors["v"]
    assert (w.format, w.shape, v.format, v.shape) == ("q4_0", (6, 64), "q8_0", (2, 32))
    whole = (values.view(6, 2, 32) * scales[:, :, None]).view(6, 64)
    assert wick.equal(w.dequantize(), whole) and wick.equal(v.dequantize(), eights * 0.125)
    bias, x = wick.randn(6), wick.randn(3, 64)
    layer = gguf.linear(w, bias)
    wick.testing.assert_close(layer(x), nn.functional.linear(x, whole, bias), rtol=1e-5, atol=1e-4)
    assert "format=q4_0" in repr(layer)


def k_block(format):
    """A block of 256 whose numbers are known: the bytes, and what they stand for by the definition."""
    wick.manual_seed(1)
    q = wick.randint(0, 32 if format == "q5_k" else 16, (8, 32)).tolist()
    scales, mins = (wick.randint(0, 64, (8,)).tolist() for _ in range(2))
    packed = [0] * 12
    for j in range(8):
        if j < 4:
            packed[j] |= scales[j]
            packed[j + 4] |= mins[j]
        else:
            packed[j + 4] |= (scales[j] & 15) | (mins[j] & 15) << 4
            packed[j - 4] |= scales[j] >> 4 << 6
            packed[j] |= mins[j] >> 4 << 6
    low = bytes((q[j][i] & 15) | (q[j + 1][i] & 15) << 4 for j in range(0, 8, 2) for i in range(32))
    fifth = bytes(sum((q[j][i] >> 4) << j for j in range(8)) for i in range(32))
    data = half(0.25) + half(0.5) + bytes(packed) + (fifth if format == "q5_k" else b"") + low
    return data, [0.25 * scales[j] * q[j][i] - 0.5 * mins[j] for j in range(8) for i in range(32)]


@pytest.mark.parametrize("format,kind", [("q4_k", 12), ("q5_k", 13)])
def test_blocks_of_256(path, format, kind):
    data, wanted = k_block(format)
    tensor = gguf.load(path(file_of({}, {"w": (kind, (2, 256), data * 2)}))).tensors["w"]
    assert tensor.format == format and tensor.dequantize().tolist() == [wanted, wanted]


def test_the_file_is_not_written(path):
    name = path(file_of({}, {"t": (0, (3,), struct.pack("<3f", 1, 2, 3))}))
    gguf.load(name).tensors["t"].zero_()
    assert gguf.load(name).tensors["t"].tolist() == [1, 2, 3]


GOOD = file_of({"a": ("str", "b"), "l": ("i32[]", [1, 2])}, {"t": (2, (2, 32), bytes(36))})


def test_damaged_files_are_errors(path):
    for size in range(len(GOOD)):
        with pytest.raises((ValueError, NotImplementedError)):
            gguf.load(path(GOOD[:size]))
    generator = wick.Generator().manual_seed(0)
    for _ in range(300):  # any other bytes: an error, or what they say
        at = int(wick.randint(0, len(GOOD), (1,), generator=generator))
        data = bytearray(GOOD)
        data[at] = int(wick.randint(0, 256, (1,), generator=generator))
        try:
            for tensor in gguf.load(path(bytes(data))).tensors.values():
                tensor.dequantize() if isinstance(tensor, gguf.BlockTensor) else tensor.sum()
        except (ValueError, NotImplementedError, RuntimeError):
            pass


def test_types_that_are_not_read(path):
    with pytest.raises(NotImplementedError, match="type 10"):
        gguf.load(path(file_of({}, {"t": (10, (256,), bytes(84))})))
    with pytest.raises(NotImplementedError, match="version 1"):
        gguf.load(path(file_of({}, {}, version=1)))
    with pytest.raises(ValueError, match="no GGUF file"):
        gguf.load(path(b"GGML" + bytes(40)))
    with pytest.raises(TypeError, match="matrix of blocks"):
        gguf.linear(wick.ones(2, 2))

"""wick.safetensors: round trips, zero copy, metadata, what cannot be saved, damaged files."""

import gc
import json
import os
import struct

import pytest

import wick
from wick import nn, safetensors

WORDS = "bool uint8 int8 int16 int32 int64 float8_e4m3fn float8_e5m2 float16 bfloat16 float32 float64 complex64"
DTYPES = WORDS.split()


def file_bytes(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trip(tmp_path, dtype):
    tensors = {
        "matrix": wick.tensor([[0, 1, 1], [1, 0, 1]], dtype=getattr(wick._C, dtype)),
        "number": wick.tensor(1, dtype=getattr(wick._C, dtype)),
        "empty": wick.empty(0, 3, dtype=getattr(wick._C, dtype)),
    }
    path = tmp_path / "file.safetensors"
    safetensors.save_file(tensors, path)
    for back in (safetensors.load_file(path), safetensors.load(path.read_bytes())):
        assert back.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert back[name].dtype is tensor.dtype and back[name].shape == tensor.shape
            assert back[name].tolist() == tensor.tolist()
    assert safetensors.save(tensors) == path.read_bytes()


def test_metadata(tmp_path):
    path = str(tmp_path / "file.safetensors")
    safetensors.save_file({"a": wick.ones(2)}, path, metadata={"format": "pt", "ä": "ö"})
    with safetensors.safe_open(path, framework="pt", device="cpu") as file:
        assert file.metadata() == {"format": "pt", "ä": "ö"}
        assert file.keys() == ["a"] and file.get_tensor("a").tolist() == [1, 1]
        assert file.get_slice("a").get_shape() == [2] and file.get_slice("a")[:1].tolist() == [1]
        with pytest.raises(KeyError, match="File does not contain tensor b"):
            file.get_tensor("b")
    safetensors.save_file({}, path)
    with safetensors.safe_open(path) as file:
        assert file.metadata() is None and file.keys() == []


def test_loaded_tensors_are_private_views(tmp_path):
    path = tmp_path / "file.safetensors"
    safetensors.save_file({"a": wick.zeros(4), "b": wick.ones(4)}, path)
    before = path.read_bytes()
    first = safetensors.load_file(path)
    first["a"].add_(5)
    assert first["a"].tolist() == [5] * 4 and first["b"].tolist() == [1] * 4
    assert path.read_bytes() == before and safetensors.load_file(path)["a"].tolist() == [0] * 4
    assert first["a"].untyped_storage().nbytes() == 16
    last = first.pop("b")
    os.remove(path)
    del first
    gc.collect()
    assert last.tolist() == [1] * 4


def test_unaligned_data(tmp_path):
    header = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    text += b" " * (1 - len(text) % 4)
    data = struct.pack("<Q", len(text)) + text + struct.pack("<2f", 1, 2)
    path = tmp_path / "file.safetensors"
    path.write_bytes(data)
    assert (safetensors.load_file(path)["a"] + 1).tolist() == [2, 3]


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "file.safetensors"
    base = wick.arange(6.0).view(2, 3)
    with pytest.raises(ValueError, match="You are trying to save a non contiguous tensor: `a`"):
        safetensors.save_file({"a": base.t()}, path)
    with pytest.raises(RuntimeError, match="Some tensors share memory"):
        safetensors.save_file({"a": base, "b": base[1]}, path)
    safetensors.save_file({"a": base[0], "b": base[1]}, path)  # beside each other
    with pytest.raises(ValueError, match="Expected a dict"):
        safetensors.save_file([base], path)
    with pytest.raises(ValueError, match="Key `a` is invalid, expected torch.Tensor"):
        safetensors.save_file({"a": 1}, path)
    with pytest.raises(ValueError, match="zero bytes"):
        safetensors.save_file({"a\0b": base}, path)
    with pytest.raises(TypeError):
        safetensors.save_file({"a": base}, path, metadata={"a": 1})
    with pytest.raises(OSError):
        safetensors.save_file({"a": base}, tmp_path / "none" / "file")


def test_model(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = nn.Linear(3, 3)
            self.second.weight = self.first.weight

    path = tmp_path / "file.safetensors"
    saved, loaded = Tied(), Tied()
    safetensors.save_model(saved, path)
    assert safetensors.load_model(loaded, path) == (set(), [])
    for name, tensor in saved.state_dict().items():
        assert wick.equal(loaded.state_dict()[name], tensor)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        safetensors.load_file(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        safetensors.load_file(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 8,
        struct.pack("<Q", 1 << 60) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        file_bytes({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}),
        file_bytes({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"\0" * 4),
        file_bytes({"a": {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 0]}}),
        file_bytes({"a": {"dtype": "XX", "shape": [], "data_offsets": [0, 4]}}, b"\0" * 4),
    ],
)
def test_damaged_files(tmp_path, data):
    path = tmp_path / "file.safetensors"
    path.write_bytes(data)
    for load in (lambda: safetensors.load_file(path), lambda: safetensors.load(data)):
        with pytest.raises(ValueError):
            load()


def test_dtypes_that_wick_does_not_have(tmp_path):
    data = file_bytes({"a": {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]}}, b"\0" * 4)
    with pytest.raises(NotImplementedError, match='"a" has dtype F4'):
        safetensors.load(data)

"""Bools as memory from elsewhere may hold them: any byte but 0 is true, for every reader, eager and compiled."""

import io

import numpy as np
import pytest

import wick
from wick import safetensors
from wick.nn import functional as F

BYTES = [0, 1, 2, 3, 255, 0, 128, 64]
TRUTHS = [byte != 0 for byte in BYTES]
NUMBERS = [int(truth) for truth in TRUTHS]
PLACES = [1, 2, 3, 4, 6, 7]


def viewed(tmp_path):
    return wick.tensor(BYTES, dtype=wick.uint8).view(wick.bool)


def saved_and_loaded(tmp_path):
    file = io.BytesIO()
    wick.save(viewed(tmp_path), file)
    file.seek(0)
    return wick.load(file)


def from_safetensors(tmp_path):
    path = tmp_path / "bools.safetensors"
    safetensors.save_file({"bools": viewed(tmp_path)}, path)
    assert bytes(BYTES) in path.read_bytes()
    return safetensors.load_file(path)["bools"]


def numpy_bools():
    return np.array(BYTES, dtype=np.uint8).view(np.bool_)


def from_numpy(tmp_path):
    return wick.from_numpy(numpy_bools())


def from_dlpack(tmp_path):
    return wick.from_dlpack(numpy_bools())


def from_a_buffer(tmp_path):
    return wick.frombuffer(bytearray(BYTES), dtype=wick.bool)


def through_a_storage(tmp_path):
    bools = wick.zeros(8, dtype=wick.bool)
    bools.untyped_storage().copy_(wick.tensor(BYTES, dtype=wick.uint8).untyped_storage())
    return bools


WAYS_IN = [viewed, saved_and_loaded, from_safetensors, from_numpy, from_dlpack, from_a_buffer, through_a_storage]

# As PyTorch 2.13 answers for the tensor of `viewed`.
READERS = {
    "nonzero": (lambda b: b.nonzero().flatten(), PLACES),
    "where": (lambda b: wick.where(b)[0], PLACES),
    "masked_select": (lambda b: wick.arange(8).masked_select(b), PLACES),
    "index": (lambda b: wick.arange(8)[b], PLACES),
    "index_put": (lambda b: wick.arange(8).index_put((b,), wick.tensor(9)), [0, 9, 9, 9, 9, 5, 9, 9]),
    "sum": (lambda b: b.sum(), 6),
    "sum_dim": (lambda b: b.view(2, 4).sum(0), [1, 1, 2, 2]),
    "sum_rows": (lambda b: b.view(2, 4).t().sum(0), [3, 3]),
    "mean": (lambda b: b.float().mean(), 0.75),
    "cumsum": (lambda b: b.cumsum(0), [0, 1, 2, 3, 4, 4, 5, 6]),
    "prod": (lambda b: b[1:5].prod(), 1),
    "any": (lambda b: b[2:].any(), True),
    "all": (lambda b: b[1:5].all(), True),
    "all_dim": (lambda b: b.view(2, 4).all(0), [False, False, True, True]),
    "any_then_sum": (lambda b: b.view(4, 2).any(1) + b.view(4, 2).all(1).float(), [1, 2, 1, 2]),
    "amax": (lambda b: b.amax().view(wick.uint8), 1),
    "amin": (lambda b: b[1:5].amin().view(wick.uint8), 1),
    "max_dim": (lambda b: b.view(2, 4).max(1)[1], [1, 0]),
    "float": (lambda b: b.float(), NUMBERS),
    "int": (lambda b: b.to(wick.int32), NUMBERS),
    "uint8": (lambda b: b.to(wick.uint8), NUMBERS),
    "copy_": (lambda b: wick.empty(8).copy_(b), NUMBERS),
    "eq": (lambda b: b == True, TRUTHS),  # noqa: E712
    "eq_itself": (lambda b: b == b.flip(0), [False, True, False, True, True, False, True, False]),
    "lt": (lambda b: b < True, [not truth for truth in TRUTHS]),
    "and": (lambda b: b & b.flip(0), [False, True, False, True, True, False, True, False]),
    "xor": (lambda b: b ^ True, [not truth for truth in TRUTHS]),
    "not": (lambda b: (~b).view(wick.uint8), [1 - number for number in NUMBERS]),
    "logical_not": (lambda b: b.logical_not().view(wick.uint8), [1 - number for number in NUMBERS]),
    "maximum": (lambda b: wick.maximum(b, ~b).view(wick.uint8), [1] * 8),
    "add": (lambda b: b + 1, [number + 1 for number in NUMBERS]),
    "mul": (lambda b: b * 2.5, [number * 2.5 for number in NUMBERS]),
    "pow": (lambda b: b.pow(2), NUMBERS),
    "where_condition": (lambda b: wick.where(b, 1.0, 2.0), [2 - number for number in NUMBERS]),
    "where_values": (lambda b: wick.where(wick.ones(8) > 0, b, ~b).sum(), 6),
    "masked_fill": (lambda b: wick.zeros(8).masked_fill(b, 1), NUMBERS),
    "condition_and_value": (lambda b: wick.where(b, b.float() * 3, b + 0.5), [0.5 if n == 0 else 3 for n in NUMBERS]),
    "sort": (lambda b: b.sort(stable=True)[1], [0, 5, 1, 2, 3, 4, 6, 7]),
    "gather": (lambda b: b.gather(0, wick.tensor([4, 4, 2])).float(), [1, 1, 1]),
    "index_select": (lambda b: b.index_select(0, wick.tensor([4])).int(), [1]),
    "scatter_add": (
        lambda b: wick.ones(8, dtype=wick.bool).scatter_add(0, wick.tensor([0, 0, 1]), b[2:5]).int(),
        [1] * 8,
    ),
    "cat": (lambda b: wick.cat([b, b]).sum(), 12),
    "clone": (lambda b: b.clone().int(), NUMBERS),
    "expand": (lambda b: b.expand(3, 8).sum(0), [3 * number for number in NUMBERS]),
    "strided": (lambda b: b[::2].float(), [0, 1, 1, 1]),
    "pad": (lambda b: F.pad(b, (1, 1)).int(), [0, *NUMBERS, 0]),
    "equal": (lambda b: wick.tensor(wick.equal(b, b.int() != 0)), True),
    "repeat_interleave": (lambda b: wick.repeat_interleave(wick.arange(8), b.long()), PLACES),
    "attention": (
        lambda b: F.scaled_dot_product_attention(
            wick.zeros(1, 1, 1, 2), wick.zeros(1, 1, 8, 2), wick.arange(16.0).view(1, 1, 8, 2), attn_mask=b.view(1, 8)
        ).flatten(),
        pytest.approx([46 / 6, 52 / 6]),
    ),
}


@pytest.mark.parametrize("way", WAYS_IN, ids=lambda way: way.__name__)
def test_every_reader_asks_whether_a_byte_is_0(way, tmp_path):
    bools = way(tmp_path)
    assert bools.view(wick.uint8).tolist() == BYTES
    for name, (reader, expected) in READERS.items():
        assert reader(bools).tolist() == expected, name


@pytest.mark.parametrize("name", READERS)
def test_compiled_readers_ask_the_same(name, tmp_path):
    reader, expected = READERS[name]
    compiled = wick.compile(reader, options={"wait": True})
    for _ in range(3):
        assert compiled(viewed(tmp_path)).tolist() == expected


def test_python_reads_bools(tmp_path):
    bools = viewed(tmp_path)
    assert bools.tolist() == TRUTHS and [item.item() for item in bools] == TRUTHS
    assert list(map(bool, bools)) == TRUTHS and list(map(int, bools)) == list(map(float, bools)) == NUMBERS
    assert repr(bools[:5]) == "tensor([False,  True,  True,  True,  True])"
    assert wick.arange(3)[bools[2]].tolist() == [[0, 1, 2]]
    assert wick.tensor([bools[2], bools[4]]).view(wick.uint8).tolist() == [1, 1]
    assert wick.full((2,), bools[4].item()).tolist() == [True, True]


def test_large_bools_of_any_bytes():
    """Long enough for whole vectors, several blocks and chunks of a reduction, and threads; by rows and by columns."""
    raw = (wick.arange(3 * 70001) % 256).to(wick.uint8)
    bools, truths = raw.view(wick.bool).view(3, 70001), (raw != 0).view(3, 70001)
    x = wick.arange(3.0 * 70001).view(3, 70001)
    readers = [
        lambda b: b.sum(1),
        lambda b: b.sum(0),
        lambda b: b.any(1, keepdim=True).int() + b.all(0, keepdim=True),
        lambda b: b[:, 1:200].all(1).int(),
        lambda b: b.t().sum(1),
        lambda b: wick.where(b, x, -x).sum(1) + (b & b.flip(1)).sum(1),
        lambda b: (b ^ b.roll(1, 1)).cumsum(1).float() * b,
        lambda b: x[b],
        lambda b: b.nonzero(),
        lambda b: wick.softmax(x.masked_fill(b, -1.0), 1) + b,
    ]
    for reader in readers:
        expected = reader(truths)
        assert wick.equal(reader(bools), expected)
        compiled = wick.compile(reader, options={"wait": True})
        assert wick.equal(compiled(bools), expected) and wick.equal(compiled(bools), expected)

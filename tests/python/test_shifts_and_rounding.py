"""<< and >>, round to decimals, norms by name: values as PyTorch 2.13 gives them."""

import math

import pytest

import wick

INTEGERS = [wick.uint8, wick.int8, wick.int16, wick.int32, wick.int64]


def shifted(value, count, bits, signed, left):
    """By the text of the C++ kernels: a count outside of the type shifts all bits out; the sign stays."""
    if left:
        result = value << count if 0 <= count < bits else 0
        result &= (1 << bits) - 1
        return result - (1 << bits) if signed and result >> (bits - 1) else result
    return value >> (count if 0 <= count < bits - signed else bits - signed)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts(dtype):
    limits = wick.iinfo(dtype)
    signed = limits.min < 0
    values = [limits.min, limits.max, 1, 2, 37, 0] + ([-1, -5] if signed else [])
    counts = [0, 1, 3, limits.bits - 2, limits.bits - 1, limits.bits, limits.bits + 1, 100] + (
        [-1, -7] if signed else []
    )
    x, n = wick.tensor(values, dtype=dtype), wick.tensor(counts, dtype=dtype)
    for left in (True, False):
        wanted = [[shifted(v, c, limits.bits, signed, left) for c in counts] for v in values]
        a, b = x[:, None], n[None]
        for result in (
            a << b if left else a >> b,
            (wick.bitwise_left_shift if left else wick.bitwise_right_shift)(a, b),
            wick.compile(lambda a, b, left=left: a << b if left else a >> b)(a, b),
        ):
            assert result.dtype is dtype and result.tolist() == wanted
        for k, count in enumerate(counts):
            assert (x << count if left else x >> count).tolist() == [row[k] for row in wanted]
            y = x.clone()
            y = y.__ilshift__(count) if left else y.__irshift__(count)
            assert y.tolist() == [row[k] for row in wanted]


def test_shifts_of_numbers_and_promotion():
    x = wick.tensor([1, 2, 3])
    assert (2 << x).tolist() == [4, 8, 16] and (-9 >> x).tolist() == [-5, -3, -2]
    assert wick.bitwise_left_shift(2, x).tolist() == [4, 8, 16] and x.__rlshift__(1).tolist() == [2, 4, 8]
    assert (wick.tensor([True]) << 1).dtype is wick.int64 and (wick.tensor([1], dtype=wick.int8) << 257).tolist() == [2]
    assert (wick.tensor([1], dtype=wick.int8) << wick.tensor([8])).tolist() == [256]
    assert wick.bitwise_right_shift(x, 1, out=wick.empty(0)).tolist() == [0, 1, 1]
    x <<= 2
    x >>= wick.tensor([1, 1, 0])
    assert x.tolist() == [2, 4, 12]


def test_shifts_in_native_code():
    """The written C's shifts are the interpreter's, in the middle of a fused kernel."""

    def function(x, n):
        return ((x << n) ^ (x >> 1)) + (n << 2)

    x = wick.arange(-5000, 5000) * 98765432123
    n = wick.arange(10000) % 70 - 3
    compiled = wick.compile(function, options={"wait": True})
    for _ in range(3):
        assert compiled(x, n).tolist() == function(x, n).tolist()


def test_round_to_decimals():
    x = wick.tensor([1.2345, -2.555, 25.0, 12345.678])
    assert wick.round(x, decimals=2).tolist() == wick.tensor([1.23, -2.56, 25.0, 12345.68]).tolist()
    assert x.round(decimals=-1).tolist() == [0.0, -0.0, 20.0, 12350.0]
    assert x.round(decimals=0).tolist() == x.round().tolist() and x.clone().round_(decimals=1).tolist()[2] == 25.0
    assert wick.round(wick.tensor([1.25, 2.35], dtype=wick.float16), decimals=1).tolist() == [1.2001953125, 2.30078125]
    assert math.isnan(wick.round(x, decimals=400)[0].item()) and math.isnan(x.double().round(decimals=-400)[0].item())
    y = x.clone().requires_grad_()
    y.round(decimals=1).sum().backward()
    assert y.grad.tolist() == [0, 0, 0, 0]
    assert wick.compile(lambda x: wick.round(x * 2, decimals=1))(x).tolist() == wick.round(x * 2, decimals=1).tolist()


def test_norms():
    x = wick.tensor([[3.0, 4.0], [1.0, 0.0]])
    root = math.sqrt(26)
    assert wick.norm(x).item() == wick.norm(x, p="fro").item() == x.norm("fro").item() == pytest.approx(root)
    assert x.norm(p=None, dim=0).tolist() == x.norm(dim=0).tolist() == wick.norm(x, "fro", 0).tolist()
    assert x.norm(p="fro", dim=(0, 1), keepdim=True).shape == (1, 1)
    assert x.norm(p=math.inf).item() == 4 and x.norm(p=-math.inf, dim=1).tolist() == [3, 0]
    assert x.norm(0).item() == 3 and x.norm(1, 1, dtype=wick.float64).dtype is wick.float64
    assert wick.norm(x, 2, 0, False, wick.empty(2)).shape == (2,)
    assert wick.linalg.vector_norm(x, 1, dim=0, keepdim=True).tolist() == [[4, 4]]
    assert wick.linalg.vector_norm(x=x).item() == pytest.approx(root)
    assert x.norm("nuc").item() == pytest.approx(wick.linalg.svdvals(x).sum().item())
    y = x.clone().requires_grad_()
    y.norm("fro").backward()
    assert y.grad.flatten().tolist() == pytest.approx([v / root for v in (3, 4, 1, 0)])

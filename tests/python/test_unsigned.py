"""uint16, uint32 and uint64: what PyTorch has of them on the CPU, and its errors for what it has not."""

import io

import numpy as np
import pytest

import wick as torch

WORDS = (torch.uint16, torch.uint32, torch.uint64)
BITS = {torch.uint16: 16, torch.uint32: 32, torch.uint64: 64}
words = pytest.mark.parametrize("dtype", WORDS, ids=str)


def name_of(dtype):
    return f"UInt{BITS[dtype]}"


@words
def test_creation_and_values(dtype):
    most = 2 ** BITS[dtype] - 1
    assert torch.iinfo(dtype).max == most and torch.iinfo(dtype).min == 0
    assert torch.tensor([most, 3], dtype=dtype).tolist() == [most, 3]
    assert torch.full((2,), -1, dtype=dtype).tolist() == [most, most]
    assert torch.full((), most, dtype=dtype).item() == most
    assert str(torch.tensor([most], dtype=dtype)) == f"tensor([{most}], dtype={dtype})"
    assert torch.zeros(2, dtype=dtype).dtype is dtype and not dtype.is_signed
    assert torch.tensor([3], dtype=dtype).type() == f"torch.{name_of(dtype)}Tensor"


def test_numbers_that_do_not_fit():
    assert torch.tensor([-1], dtype=torch.uint16).tolist() == [65535]
    with pytest.raises(RuntimeError, match="value cannot be converted to type uint16 without overflow"):
        torch.tensor([65536], dtype=torch.uint16)
    with pytest.raises(RuntimeError, match="value cannot be converted to type uint32_t without overflow"):
        torch.zeros(2, dtype=torch.uint32).fill_(2**32)
    with pytest.raises(OverflowError, match="can't convert negative int to unsigned"):
        torch.tensor([-1], dtype=torch.uint64)
    with pytest.raises(OverflowError, match="int too big to convert"):
        torch.tensor([2**64], dtype=torch.uint64)
    with pytest.raises(TypeError, match="an integer is required"):
        torch.tensor([1.5], dtype=torch.uint64)


@words
def test_conversion(dtype):
    values = [-1, 70000, 5, 2**40]
    assert torch.tensor(values).to(dtype).tolist() == [v % 2 ** BITS[dtype] for v in values]
    assert torch.tensor([1, 200], dtype=dtype).float().tolist() == [1.0, 200.0]
    assert torch.tensor([1.0, 200.75]).to(dtype).tolist() == [1, 200]
    assert torch.tensor([1, 0], dtype=dtype).bool().tolist() == [True, False]
    assert torch.tensor([1, 0, 7], dtype=dtype).view(torch.uint8).numel() == 3 * BITS[dtype] // 8


@pytest.mark.parametrize("target", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_large_numbers_round_once(target):
    values = [2**63, 2**64 - 1, 2**63 + 2**39 + 1, 2**63 + 1025, 2**63 - 1, 2**53 + 1, 0]
    tensor = torch.tensor(values, dtype=torch.uint64)
    numbers = np.array(values, dtype=np.uint64)
    if target is torch.float64:
        assert tensor.to(target).tolist() == numbers.astype(np.float64).tolist()
    elif target is torch.float32:
        assert tensor.to(target).tolist() == numbers.astype(np.float32).tolist()
    compiled = torch.compile(lambda x: x.to(target) + 0)
    assert torch.equal(compiled(tensor), tensor.to(target) + 0)
    back = torch.tensor([1.5e19, 1e25, -1.0, 3.7], dtype=torch.float64).to(torch.uint64)
    assert back.tolist() == [15000000000000000000, 0, 2**64 - 1, 3]


@words
def test_numpy_and_dlpack(dtype):
    tensor = torch.tensor([1, 2 ** BITS[dtype] - 1], dtype=dtype)
    array = tensor.numpy()
    assert array.dtype == np.dtype(f"uint{BITS[dtype]}") and array.tolist() == tensor.tolist()
    assert torch.from_numpy(array).dtype is dtype
    assert torch.tensor(array).tolist() == tensor.tolist()
    assert torch.from_dlpack(tensor).tolist() == tensor.tolist()


@words
def test_save_and_load(dtype):
    buffer = io.BytesIO()
    tensor = torch.tensor([[1, 2], [3, 2 ** BITS[dtype] - 1]], dtype=dtype)
    torch.save({"t": tensor}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)["t"]
    assert loaded.dtype is dtype and loaded.tolist() == tensor.tolist()


@words
def test_what_computes(dtype):
    a, b = torch.tensor([3, 0, 7], dtype=dtype), torch.tensor([3, 2, 5], dtype=dtype)
    most = 2 ** BITS[dtype] - 1
    assert (a * b).tolist() == [9, 0, 35] and (a * b).dtype is dtype
    assert (a * -1).tolist() == [most - 2, 0, most - 6]
    assert (a == b).tolist() == [True, False, False] and (a != 7).tolist() == [True, True, False]
    assert (a & b).tolist() == [3, 0, 5] and (a | b).tolist() == [3, 2, 7] and (a ^ b).tolist() == [0, 2, 2]
    assert torch.cat([a, b]).tolist() == [3, 0, 7, 3, 2, 5] and torch.stack([a, b]).shape == (2, 3)
    assert torch.where(torch.tensor([True, False, True]), a, b).tolist() == [3, 2, 7]
    assert a[torch.tensor([2, 0])].tolist() == [7, 3] and a[a != 0].tolist() == [3, 7]
    assert a.sum().item() == 10 and a.sum().dtype is torch.int64 and a.cumsum(0).tolist() == [3, 3, 10]
    assert (a / 2).tolist() == [1.5, 0, 3.5] and (a + 0.5).tolist() == [3.5, 0.5, 7.5]
    large = torch.tensor([1, most, 0, most - 1], dtype=dtype)
    assert large.sort()[0].tolist() == [0, 1, most - 1, most]
    assert large.sort(descending=True)[1].tolist() == [1, 3, 0, 2]
    assert a.all().item() is False and a.any().item() is True


@words
def test_compiled_as_eager(dtype):
    def f(a, b):
        c = (a * b) ^ a
        return c, c.float() * 0.5, (c == b)

    a, b = torch.tensor([3, 0, 2 ** BITS[dtype] - 1], dtype=dtype), torch.tensor([3, 2, 5], dtype=dtype)
    for eager, compiled in zip(f(a, b), torch.compile(f)(a, b), strict=True):
        assert eager.dtype is compiled.dtype and eager.tolist() == compiled.tolist()


@words
@pytest.mark.parametrize(
    "kernel, call",
    [
        ("add_stub", lambda x: x + 1),
        ("add_stub", lambda x: x - x),
        ("ge_cpu", lambda x: x >= 1),
        ("neg_cpu", lambda x: -x),
        ("abs_cpu", lambda x: x.abs()),
        ("pow", lambda x: x**2),
        ("div_floor_cpu", lambda x: x // 2),
        ("bitwise_not_cpu", lambda x: ~x),
        ("lshift_cpu", lambda x: x << 1),
        ("maximum_cpu", lambda x: torch.maximum(x, x)),
        ("max_all", lambda x: x.max()),
        ("clamp_scalar_cpu", lambda x: x.clamp(1, 3)),
        ("masked_fill", lambda x: x.masked_fill(x == 1, 3)),
        ("index_select", lambda x: x.index_select(0, torch.tensor([0]))),
        ("scatter_gather_tensor_cpu", lambda x: x.gather(0, torch.tensor([0]))),
        ("take_cpu", lambda x: x.take(torch.tensor([0]))),
        ("dot", lambda x: torch.dot(x, x)),
        ("topk_cpu", lambda x: x.topk(1)),
        ("nonzero_count_cpu", lambda x: x.nonzero()),
        ("addmm_impl_cpu_", lambda x: x[None] @ x[:, None]),
        ("arange_cpu", lambda x: torch.arange(3, dtype=x.dtype)),
        ("eye", lambda x: torch.eye(3, dtype=x.dtype)),
    ],
)
def test_what_does_not(dtype, kernel, call):
    with pytest.raises(NotImplementedError) as error:
        call(torch.tensor([3, 1], dtype=dtype))
    assert str(error.value) == f"\"{kernel}\" not implemented for '{name_of(dtype)}'"


@words
def test_promotion(dtype):
    a = torch.tensor([3, 1], dtype=dtype)
    text = (
        f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote {name_of(dtype)} and Long"
    )
    for call in (
        lambda: a * torch.tensor([1, 2]),
        lambda: a == torch.tensor([1, 2]),
        lambda: torch.cat([a, torch.tensor([1])]),
        lambda: torch.promote_types(dtype, torch.int64),
    ):
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value) == text
    assert torch.promote_types(dtype, torch.float16) is torch.float16
    assert (a * torch.tensor(3)).dtype is dtype and (a * True).dtype is dtype
    assert torch.result_type(a, 1.5) is torch.float32

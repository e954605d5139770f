"""Counts and draws by weights on the device: the CPU's results and errors, and nothing on the host."""

import warnings

import pytest

import wick as torch


@pytest.fixture
def on_device():
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*will fall back.*")
        yield


def same(function, *tensors, limit=0.0):
    wanted, found = function(*tensors), function(*(t.to("cuda") for t in tensors))
    assert found.device.type == "cuda" and found.dtype == wanted.dtype and found.shape == wanted.shape
    assert torch.allclose(found.cpu(), wanted, rtol=limit, atol=limit)


def test_counts(on_device):
    torch.manual_seed(1)
    numbers = torch.randint(0, 9, (200,))
    same(torch.bincount, numbers)
    same(lambda t: torch.bincount(t.int(), minlength=20), numbers)
    for dtype in torch.float32, torch.float64, torch.int64:
        same(lambda t, w: torch.bincount(t, w), numbers, (torch.randn(200) * 9).to(dtype), limit=1e-5)
    repeats = torch.tensor([2, 0, 3, 1, 0])
    same(torch.repeat_interleave, repeats)
    same(torch.repeat_interleave, repeats.int())
    same(lambda x, r: torch.repeat_interleave(x, r, dim=0, output_size=6), torch.randn(5, 2), repeats)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_histograms(on_device, dtype):
    torch.manual_seed(2)
    x = torch.randn(30, 10).to(dtype)
    x[0, 0], x[0, 1] = float("nan"), 0.5
    same(lambda t: torch.histc(t, 7, -1, 0.5), x)
    same(lambda t: torch.histc(t, 10), x.nan_to_num())
    same(lambda t: torch.histc(t, 3), torch.ones(4, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_histograms_of_integers(on_device, dtype):
    """Which PyTorch counts on GPUs alone: integers stand in parts as if they were floats."""
    torch.manual_seed(2)
    x = torch.randint(0, 100, (30, 10))
    for bins, *ends in (7, 5, 60), (10,), (100, 0, 99), (3, -1, 1):
        wanted = torch.histc(x.double(), bins, *ends).to(dtype)
        found = torch.histc(x.to(dtype).cuda(), bins, *ends)
        assert found.dtype == dtype and torch.equal(found.cpu(), wanted)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        torch.histc(torch.ones(2, dtype=torch.bool, device="cuda"))
    assert torch.ones(3, 4, dtype=torch.bool, device="cuda").trace().tolist() == 3


@pytest.mark.filterwarnings("ignore:.*will fall back")
def test_a_histogram_of_no_integers():
    assert torch.histc(torch.empty(0, dtype=torch.int32, device="cuda"), 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_reductions_at_places(on_device, reduce, include_self, dtype):
    torch.manual_seed(3)
    index, values, x = torch.randint(0, 5, (40, 3)), (torch.randn(40, 3) * 5).to(dtype), torch.ones(6, 3).to(dtype)
    same(lambda x, i, v: x.scatter_reduce(0, i, v, reduce, include_self=include_self), x, index, values, limit=1e-5)


def test_draws_by_weights(on_device):
    torch.manual_seed(4)
    p = torch.tensor([[0.0, 1.0, 3.0], [5.0, 0.0, 0.0]], device="cuda")
    drawn = torch.cat([torch.multinomial(p, 1) for _ in range(400)], 1).cpu()
    assert set(drawn[1].tolist()) == {0} and set(drawn[0].tolist()) == {1, 2}
    assert abs((drawn[0] == 2).float().mean() - 0.75) < 0.08
    torch.manual_seed(5)
    q = torch.empty(50, device="cuda").exponential_()
    torch.manual_seed(5)
    first = torch.multinomial(torch.ones(50, device="cuda"), 50)
    assert torch.equal(first, (1 / q).topk(50).indices)  # PyTorch's rule


def test_errors_are_those_of_the_cpu():
    cases = [
        lambda d: torch.bincount(torch.tensor([-1, 2], device=d)),
        lambda d: torch.bincount(torch.tensor([0.5], device=d)),
        lambda d: torch.repeat_interleave(torch.tensor([1, -1], device=d)),
        lambda d: torch.repeat_interleave(torch.tensor([1, 1], device=d), output_size=3),
        lambda d: torch.histc(torch.tensor([float("inf")], device=d)),
        lambda d: torch.multinomial(torch.tensor([0.0, 0.0], device=d), 1),
        lambda d: torch.multinomial(torch.tensor([1.0, -1.0], device=d), 1),
        lambda d: torch.multinomial(torch.tensor([1.0, float("nan")], device=d), 2),
    ]
    for case in cases:
        with pytest.raises((RuntimeError, NotImplementedError)) as wanted:
            case("cpu")
        with pytest.raises(wanted.type) as found:
            case("cuda")
        assert str(found.value) == str(wanted.value)

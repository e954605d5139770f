"""Random numbers of the device: PyTorch's on a CUDA device of the same seed, where they were recorded; states; dropout."""

import warnings

import pytest

import wick as torch
from wick import _C


def test_recorded_streams():
    torch.manual_seed(0)  # recorded from PyTorch 2.11 on one GPU
    assert torch.rand(5, device="cuda").tolist() == pytest.approx([0.3990, 0.5167, 0.0249, 0.9401, 0.9459], abs=5e-5)
    torch.manual_seed(0)
    assert torch.randn(5, device="cuda").tolist() == pytest.approx(
        [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209], abs=5e-5
    )


def test_a_state_comes_back():
    state = torch.cuda.get_rng_state()
    first = torch.rand(100, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.rand(100, device="cuda"))
    assert state.dtype == torch.uint8 and state.numel() == 16
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert torch.equal(
        torch.randn(9, device="cuda", generator=generator),
        torch.randn(9, device="cuda", generator=torch.Generator(device="cuda").manual_seed(3)),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_distributions(dtype):
    torch.manual_seed(1)
    u = torch.empty(20_000, dtype=dtype, device="cuda").uniform_(-1, 3).double().cpu()
    assert -1 <= u.min() and u.max() <= 3 and abs(u.mean() - 1) < 0.05
    n = torch.empty(20_000, dtype=dtype, device="cuda").normal_(2, 3).double().cpu()
    assert abs(n.mean() - 2) < 0.1 and abs(n.std() - 3) < 0.1
    e = torch.empty(20_000, dtype=dtype, device="cuda").exponential_(2).double().cpu()
    assert e.min() >= 0 and abs(e.mean() - 0.5) < 0.05
    b = torch.empty(20_000, dtype=dtype, device="cuda").bernoulli_(0.3).double().cpu()
    assert set(b.unique().tolist()) == {0, 1} and abs(b.mean() - 0.3) < 0.02


def test_integers_and_others():
    torch.manual_seed(2)
    i = torch.randint(-5, 6, (5000,), device="cuda").cpu()
    assert i.min() == -5 and i.max() == 5
    assert torch.equal(torch.randperm(50, device="cuda").sort().values.cpu(), torch.arange(50))
    assert torch.multinomial(torch.ones(4, device="cuda"), 2).device.type == "cuda"


def test_dropout_keeps_what_its_mask_says():
    torch.manual_seed(3)
    x = torch.ones(4001, device="cuda", requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    kept = (y != 0).cpu()
    assert abs(kept.float().mean() - 0.75) < 0.03
    assert torch.equal(y.detach().cpu()[kept], torch.full((int(kept.sum()),), 1 / 0.75))
    assert torch.equal((x.grad != 0).cpu(), kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [4096, 40_008, 1001])
def test_dropout_is_its_mask_times_the_scale(dtype, n):
    """In one kernel or two: the same mask, rounded once; the generator is behind the mask's draws; what is no number stays
    none."""
    x = torch.randn(n, dtype=dtype, device="cuda")
    x[:3] = torch.tensor([float("nan"), float("inf"), -0.0], dtype=dtype)
    torch.manual_seed(3)
    y, mask = torch.native_dropout(x, 0.25, True)
    behind = torch.rand(3, device="cuda")
    torch.manual_seed(3)
    drawn = _C._operator("_dropout_mask")(list(x.shape), list(x.stride()), 0.25, device=x.device, of=dtype)
    assert torch.equal(mask, drawn) and torch.equal(behind, torch.rand(3, device="cuda"))
    wide = torch.promote_types(dtype, torch.float32)  # PyTorch's kernel multiplies small floats with a float32
    expected = (x.to(wide) * (mask.to(wide) * torch.tensor(1 / 0.75, dtype=wide, device="cuda"))).to(dtype)
    assert torch.equal(y.isnan(), expected.isnan()) and torch.equal(y.nan_to_num(), expected.nan_to_num())
    assert torch.equal(y.signbit() & ~y.isnan(), expected.signbit() & ~y.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_other_distributions(dtype):
    torch.manual_seed(4)
    c = torch.empty(20_000, dtype=dtype, device="cuda").cauchy_(1, 2).double().cpu()
    quarters = c.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64)).tolist()
    assert quarters == pytest.approx([-1, 1, 3], abs=0.15)
    n = torch.empty(20_000, dtype=dtype, device="cuda").log_normal_(0.5, 0.25).double().cpu().log()
    assert abs(n.mean() - 0.5) < 0.02 and abs(n.std() - 0.25) < 0.02
    g = torch.empty(20_000, dtype=dtype, device="cuda").geometric_(0.4).double().cpu()
    assert g.min() >= 1 and abs(g.mean() - 2.5) < 0.1
    assert torch.empty(100, dtype=torch.int32, device="cuda").geometric_(0.4).min() >= 1


def test_distributions_check_their_numbers():
    for name, *numbers in ("geometric_", 0.0), ("geometric_", 1.5), ("cauchy_", 0, -1), ("log_normal_", 0, 0):
        messages = []
        for device in "cpu", "cuda":
            with pytest.raises(RuntimeError) as error:
                getattr(torch.empty(3, device=device), name)(*numbers)
            messages.append(str(error.value))
        assert messages[0] == messages[1]


@pytest.mark.parametrize("n", [1, 2, 7, 1000, 40_000])
def test_permutations(n):
    torch.manual_seed(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p = torch.randperm(n, device="cuda")
    assert torch.equal(p.sort().values.cpu(), torch.arange(n))
    assert n < 10 or not torch.equal(p.cpu(), torch.arange(n))
    torch.manual_seed(5)
    assert torch.equal(torch.randperm(n, device="cuda", dtype=torch.int32), p.int())
    assert not torch.equal(torch.randperm(n, device="cuda"), p) or n < 10


def test_permutations_are_fair():
    torch.manual_seed(6)
    counts = {}
    for _ in range(600):
        order = tuple(torch.randperm(3, device="cuda").tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6 and min(counts.values()) > 60


# ---- by rejection, and by tensors of parameters ----


def drawn_on_device(f):
    """What it draws, twice with the same seed, without the host (which would warn)."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.manual_seed(7)
        first = f()
        torch.manual_seed(7)
        assert torch.equal(first, f()) and not torch.equal(first, f())
    assert first.is_cuda
    return first


def moments(x):
    x = x.double().cpu()
    return x.mean().item(), x.var().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [0.3, 1.0, 7.5])
def test_gamma(dtype, shape):
    x = drawn_on_device(lambda: torch._standard_gamma(torch.full((4000,), shape, device="cuda", dtype=dtype)))
    mean, variance = moments(x)
    assert x.dtype == dtype and (x > 0).all()
    assert abs(mean - shape) < 5 * (shape / 4000) ** 0.5 and abs(variance / shape - 1) < 0.3


@pytest.mark.parametrize("rate", [0.0, 0.7, 4.0, 60.0])
def test_poisson(rate):
    x = torch.full((4000,), rate, device="cuda")
    x = drawn_on_device(lambda: torch.poisson(x)) if rate else torch.poisson(x)
    mean, variance = moments(x)
    assert torch.equal(x, x.floor()) and (x >= 0).all()
    assert abs(mean - rate) <= 5 * (rate / 4000) ** 0.5 and abs(variance - rate) <= 0.2 * rate


@pytest.mark.parametrize("count, p", [(5, 0.2), (40, 0.7), (200, 0.5)])
def test_binomial(count, p):
    counts, ps = torch.full((4000,), float(count), device="cuda"), torch.full((4000,), p, device="cuda")
    x = drawn_on_device(lambda: torch.binomial(counts, ps))
    mean, variance = moments(x)
    wanted = count * p * (1 - p)
    assert (x >= 0).all() and (x <= count).all() and torch.equal(x, x.floor())
    assert abs(mean - count * p) < 5 * (wanted / 4000) ** 0.5 and abs(variance / wanted - 1) < 0.2


def test_dirichlet():
    x = drawn_on_device(lambda: torch._sample_dirichlet(torch.tensor([[1.0, 2.0, 5.0]], device="cuda").expand(2000, 3)))
    assert torch.allclose(x.sum(1), torch.ones(2000, device="cuda"))
    assert torch.allclose(x.mean(0).cpu(), torch.tensor([1.0, 2.0, 5.0]) / 8, atol=0.03)
    d = torch.distributions.Dirichlet(torch.ones(3, device="cuda", requires_grad=True))
    d.rsample()[0].backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_bernoulli_by_a_tensor(dtype):
    p = torch.linspace(0, 1, 5, device="cuda", dtype=dtype).expand(3000, 5)
    x = drawn_on_device(lambda: torch.bernoulli(p))
    assert torch.allclose(x.float().mean(0).cpu(), torch.linspace(0, 1, 5), atol=0.06)
    assert (x[:, 0] == 0).all() and (x[:, 4] == 1).all() and ((x == 0) | (x == 1)).all()
    y = drawn_on_device(lambda: torch.zeros(3000, 5, device="cuda", dtype=torch.int64).bernoulli_(p))
    assert torch.allclose(y.float().mean(0).cpu(), torch.linspace(0, 1, 5), atol=0.06)


def test_multinomial_with_replacement():
    p = torch.tensor([[0.0, 1.0, 3.0, 0.0], [2.0, 0.0, 0.0, 2.0]], device="cuda")
    x = drawn_on_device(lambda: torch.multinomial(p, 4000, replacement=True))
    shares = torch.stack([(x == k).float().mean(1) for k in range(4)], 1).cpu()
    assert torch.allclose(shares, (p / 4).cpu(), atol=0.04) and (shares[p.cpu() == 0] == 0).all()
    assert torch.multinomial(p[0], 7, replacement=True).shape == (7,)


@pytest.mark.filterwarnings("error:.*will fall back.*")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_slopes_that_are_drawn(dtype):
    torch.manual_seed(1)
    x = torch.linspace(-2, 2, 4001, dtype=dtype).cuda().requires_grad_()
    y = torch.nn.functional.rrelu(x, 0.1, 0.5, training=True)
    y.backward(torch.ones_like(y))
    slopes, below = x.grad, x.detach() <= 0
    assert y.is_cuda and bool((slopes[~below] == 1).all())
    drawn = slopes[below]
    assert 0.1 <= drawn.min() <= drawn.max() <= 0.5 and abs(drawn.double().mean().item() - 0.3) < 0.02
    assert len(drawn.double().cpu().unique()) > 200 and torch.allclose(y, x * slopes, rtol=1e-2)
    again = torch.nn.functional.rrelu(x, 0.1, 0.5, training=True)
    torch.manual_seed(1)
    assert not torch.equal(again, y) and torch.equal(torch.nn.functional.rrelu(x, 0.1, 0.5, training=True), y)

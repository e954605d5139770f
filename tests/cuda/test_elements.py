"""Rows whose functions are plain C: gcd, nextafter, incomplete gamma functions, zeta, polynomials and derivatives of samples
on the device are the CPU's; bit for bit where no logarithm or angle is in them."""

import warnings

import pytest

import wick as torch

special = torch.special
INF, NAN = float("inf"), float("nan")
ENDS = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, 2.0, 1e-45, -1e-45, 5e-324, 65504.0, 3.4e38, 1.7e308]
RECURRENCES = ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]
CHEBYSHEV = [f"{kind}chebyshev_polynomial_{letter}" for kind in ("", "shifted_") for letter in "tuvw"]


def both(function, *tensors):
    """What the function gives on the device, on the host's side, and what the CPU does. Nothing falls back to the host."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = function(*[t.cuda() if isinstance(t, torch.Tensor) else t for t in tensors])
    assert found.device.type == "cuda"
    wanted = function(*tensors)
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    return found.cpu(), wanted


def same(function, *tensors):
    found, wanted = both(function, *tensors)
    assert repr(found.tolist()) == repr(wanted.tolist())


def close(function, *tensors, least=1e-3):
    """`least`: what counts as 0, of the tolerance."""
    found, wanted = both(function, *tensors)
    tolerance = {torch.float64: 1e-11, torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 1e-2}[wanted.dtype]
    assert torch.allclose(found, wanted, rtol=tolerance, atol=tolerance * least, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
@pytest.mark.parametrize("function", [torch.gcd, torch.lcm])
def test_divisors(function, dtype):
    torch.manual_seed(1)
    low = 0 if dtype == torch.uint8 else -100
    a, b = torch.randint(low, 100, (40, 9), dtype=dtype), torch.randint(low, 100, (9,), dtype=dtype)
    a[0], b[0] = 0, 0
    same(function, a, b)
    same(function, a.t(), torch.tensor(12, dtype=dtype))


def test_divisors_of_large_numbers():
    least = -(2**63)
    a, b = torch.tensor([least, least, 2**62, least, 3]), torch.tensor([least, 6, 3 * 2**40, 1, 0])
    same(torch.gcd, a, b)
    same(torch.lcm, a, b)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_next_floats(dtype):
    ends = torch.tensor(ENDS + [-x for x in ENDS], dtype=torch.float64).to(dtype)
    same(torch.nextafter, ends.unsqueeze(1), ends)
    powers = torch.tensor([2.0**k for k in range(-14, 15)], dtype=dtype)
    same(torch.nextafter, powers, torch.tensor(0.0, dtype=dtype))
    same(torch.nextafter, powers, torch.tensor(INF, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [torch.igamma, torch.igammac])
def test_incomplete_gamma_functions(function, dtype):
    a = torch.tensor([0, 1e-3, 0.1, 0.5, 1, 1.5, 3, 9.5, 10, 30, 200, 1000, -1, INF, NAN], dtype=torch.float64)
    x = torch.tensor([0, 1e-4, 0.3, 0.5, 1, 1.2, 2.5, 9, 11, 35, 190, 1010, -2, INF, NAN], dtype=torch.float64)
    close(function, a.to(dtype).unsqueeze(1), x.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_zeta(dtype):
    s = torch.tensor([0.5, 1, 1.001, 2, 3.5, 20, 100, NAN], dtype=dtype)
    x = torch.tensor([-2.5, -2, 0, 1e-2, 0.5, 1, 3, 50, 1e5, INF], dtype=dtype)
    close(special.zeta, s.unsqueeze(1), x)
    close(special.zeta, 2.5, x.abs() + 0.5)
    close(special.zeta, s, 2.5)
    for n in (1, 2, 3, 6):
        close(lambda t, n=n: torch.polygamma(n, t), torch.cat([x, -x + 0.25, x / 7 + 0.1]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", RECURRENCES + CHEBYSHEV)
def test_polynomials(name, dtype):
    function = getattr(special, name)
    x = torch.tensor([-1e3, -2.5, -1, -0.99, -0.3, 0, 1e-9, 0.5, 0.7, 1, 1.5, 40, INF, NAN], dtype=dtype)
    low, high = torch.arange(-2, 6, dtype=dtype), torch.tensor([9, 17, 33, 100, 200], dtype=dtype)
    same(function, x.unsqueeze(1), low)
    if name in RECURRENCES:
        same(function, x.unsqueeze(1), high)
    else:  # by the angle, from which zeros are as far as the degree times its rounding
        close(function, x.unsqueeze(1), high, least=1)
    same(function, x, 3)


def test_derivatives_of_samples():
    torch.manual_seed(1)
    a, x = torch.rand(30, 1, dtype=torch.float64) * 20 + 0.05, torch.rand(9, dtype=torch.float64) * 20
    close(torch._standard_gamma_grad, a.expand(30, 9), x.expand(30, 9))
    share = torch.rand(30, 9, dtype=torch.float64)
    close(torch._dirichlet_grad, share, a.expand(30, 9), a.expand(30, 9) + 3)


def test_gradients_and_graphs():
    x = torch.rand(3, 4, dtype=torch.float64) + 0.5

    def step(t):
        t = t.detach().requires_grad_()
        (torch.polygamma(1, t) + torch.igamma(torch.full_like(t, 2.0), t)).sum().backward()
        return t.grad

    close(step, x)
    close(torch.compile(lambda t: torch.polygamma(2, t * 2) + 1), x)


def test_results_in_place_and_in_memory_of_any_layout():
    torch.manual_seed(1)
    a, b = torch.rand(6, 8) + 0.5, torch.rand(6, 8) + 0.5
    for function in torch.igamma, torch.nextafter:
        for out in torch.empty(6, 8), torch.empty(8, 6).t(), torch.empty(6, 16)[:, ::2]:
            wanted, there = function(a, b), out.cuda()
            function(a.cuda(), b.cuda(), out=there)
            assert torch.allclose(there.cpu(), wanted, rtol=1e-6)
    whole, other = torch.randint(1, 99, (6, 8)), torch.randint(1, 99, (8,))
    x = whole.cuda()
    assert torch.equal(x.gcd_(other.cuda()).cpu(), torch.gcd(whole, other))
    same(torch.nextafter, a.t(), b.double().float().t())

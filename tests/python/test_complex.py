"""Complex tensors: compiled code has eager's bits, writes through parts, derivatives against finite differences, other
forms of the values. Against PyTorch: tests/parity/test_complex_parity.py."""

import io
import pickle

import numpy as np
import pytest

import wick as torch


def complex_tensor(*shape, dtype=torch.complex64):
    generator = np.random.default_rng(len(shape) + sum(shape))
    values = generator.standard_normal(shape) + 1j * generator.standard_normal(shape)
    return torch.from_numpy(values).to(dtype)


def same_bits(x, y):
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(same_bits(a, b) for a, b in zip(x, y, strict=True))
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    return x.detach().contiguous().numpy().tobytes() == y.detach().contiguous().numpy().tobytes()


PROGRAMS = {
    "arithmetic": lambda a, b, r: (a * b + r) / (b - 2j),
    "functions": lambda a, b, r: torch.exp(a) * b.abs() + torch.log(b) * a.angle(),
    "numbers": lambda a, b, r: (r * 1j + 1) * (2 - 1j),
    "product": lambda a, b, r: a @ b.mH,
    "parts": lambda a, b, r: (a.real + b.imag, torch.view_as_real(a * 2).sum(-1)),
    "polar": lambda a, b, r: torch.polar(a.abs(), r),
    "reductions": lambda a, b, r: (a.sum(0), a.mean(), a.cumsum(1), a.prod(1), a.std(0)),
    "places": lambda a, b, r: (torch.cat([a, b])[1:3], a[[0, 2]], torch.where(r > 0, a, b)),
    "rotary": lambda a, b, r: torch.view_as_real(torch.view_as_complex(torch.stack([r, r * 2], -1)) * a).flatten(1),
    "real loss": lambda a, b, r: (a * b).abs().pow(2).sum(),
    "in place": lambda a, b, r: a.clone().mul_(b).add_(r),
    "of parts made": lambda a, b, r: torch.complex(r, r + 1) * a,
    "norm": lambda a, b, r: torch.linalg.vector_norm(a, dim=1),
    "compared": lambda a, b, r: a != b,
    "fused with views": lambda a, b, r: torch.view_as_complex(torch.stack([r, r * 2], -1)),
}


def filled(a, b, r):
    z = torch.zeros_like(a)
    z.real.copy_(r)
    z.imag = r * 2
    return z


PROGRAMS["writes"] = filled


def gradients(function, tensors):
    leaves = [t.clone().requires_grad_() for t in tensors]
    y = function(*leaves)
    parts = [t for t in (y if isinstance(y, tuple) else (y,)) if t.requires_grad]
    if parts:
        sum((t.abs() if t.is_complex() else t).sum() for t in parts).backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_compiled_has_the_same_bits(name, dtype):
    function, tensors = PROGRAMS[name], (complex_tensor(4, 5, dtype=dtype), complex_tensor(4, 5, dtype=dtype) * 2)
    tensors += (complex_tensor(5, 4, dtype=dtype).real.t().contiguous(),)
    expected, expected_gradients = function(*tensors), gradients(function, tensors)
    compiled = torch.compile(function)
    for _ in range(3):
        assert same_bits(compiled(*tensors), expected)
        assert same_bits(gradients(compiled, tensors), expected_gradients)


SMOOTH = [
    lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a**b, lambda a, b: torch.exp(a) + torch.sqrt(b), lambda a, b: a.tanh() * b.sigmoid(),
    lambda a, b: a.abs() * b.angle(), lambda a, b: a.sgn(), lambda a, b: a @ b.mH, lambda a, b: a.prod(1), lambda a, b: a.cumprod(0),
    lambda a, b: torch.linalg.vector_norm(a, 3), lambda a, b: torch.complex(a.real, b.imag), lambda a, b: torch.polar(a.abs(), b.real),
    lambda a, b: a.real * b, lambda a, b: torch.view_as_real(a * b), lambda a, b: a.acosh() + b.atanh(), lambda a, b: (a * 2j) ** (1 + 1j),
    lambda a, b: torch.addcmul(a, a, b, value=2j), lambda a, b: a.std(), lambda a, b: torch.lerp(a, b, b), lambda a, b: a.conj() * b,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SMOOTH)))
def test_derivatives(number):
    a = complex_tensor(2, 3, dtype=torch.complex128).requires_grad_()
    b = (complex_tensor(3, 2, dtype=torch.complex128).t().contiguous() + 2).requires_grad_()
    assert torch.autograd.gradcheck(SMOOTH[number], (a, b))
    assert torch.autograd.gradgradcheck(SMOOTH[number], (a, b))


def test_history_of_written_parts():
    r = torch.randn(3, requires_grad=True)
    z = torch.zeros(3, dtype=torch.complex64)
    z.real = r * 2
    z.imag.copy_(r * 3)
    (z * 1j).real.sum().backward()
    assert r.grad.tolist() == [-3.0, -3.0, -3.0]
    x = torch.randn(3, 2, requires_grad=True)
    y = x * 1
    torch.view_as_complex(y).mul_(2j)
    y.sum().backward()
    assert x.grad.tolist() == [[2.0, -2.0]] * 3


def test_the_gradient_of_a_real_tensor_is_real():
    r = torch.randn(4, requires_grad=True)
    (r * complex_tensor(4)).abs().sum().backward()
    assert r.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_other_forms(dtype):
    z = complex_tensor(3, 4, dtype=dtype)
    assert z.numpy().dtype == str(dtype).rpartition(".")[2]
    assert same_bits(torch.from_numpy(z.numpy()), z)
    assert same_bits(pickle.loads(pickle.dumps(z)), z)
    file = io.BytesIO()
    torch.save(z.t(), file)
    file.seek(0)
    assert same_bits(torch.load(file), z.t())
    assert z[0].tolist() == [complex(x) for x in z[0]]
    assert z.conj().resolve_conj().is_conj() is False


def test_in_place_on_views_and_more_dims_than_a_nest():
    z = complex_tensor(4, 6)
    expected = z.numpy().copy()
    z[:, ::2].mul_(1j)
    expected[:, ::2] *= 1j
    assert np.array_equal(z.numpy(), expected)
    shape = [1, 2] * 10
    many = complex_tensor(2**10).reshape(shape)
    turned = many.permute(list(reversed(range(20))))
    assert np.allclose((turned * turned.conj() + 1j).numpy(), turned.numpy() * turned.numpy().conj() + 1j)


def test_what_has_no_complex_kernel_refuses():
    z = complex_tensor(2, 3)
    for refused in (
        lambda: z < z,
        lambda: z.sort(),
        lambda: z.floor(),
        lambda: z.amax(),
        lambda: torch.multinomial(z, 1),
    ):
        with pytest.raises((NotImplementedError, RuntimeError)):
            refused()

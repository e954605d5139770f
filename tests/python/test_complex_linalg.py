"""Linear algebra of complex matrices: what solving and determinants have to fulfil, and derivatives by differences, those of
general eigenvalues among them. Values are compared with PyTorch's in tests/parity/test_linalg_parity.py."""

import pytest

import wick as torch


def matrices(*shape, dtype=torch.complex128):
    generator = torch.Generator().manual_seed(7)
    parts = torch.randn(2, *shape, dtype=torch.float64, generator=generator)
    return torch.complex(parts[0], parts[1]).to(dtype)


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype,tolerance", [(torch.complex128, 1e-10), (torch.complex64, 1e-3)])
def test_solving(dtype, tolerance):
    a, b = matrices(3, 4, 4, dtype=dtype), matrices(3, 4, 2, dtype=dtype)
    close(a @ torch.linalg.solve(a, b), b, tolerance)
    close(torch.linalg.solve(a, b.mT, left=False) @ a, b.mT, tolerance)
    close(a @ torch.linalg.inv(a), torch.eye(4, dtype=dtype).expand(3, 4, 4), tolerance)
    vector = b[0, :, 0]
    close(a[0] @ torch.linalg.solve(a[0], vector), vector, tolerance)


def test_determinants():
    a = matrices(3, 4, 4)
    values = torch.linalg.eigvals(a)
    close(torch.linalg.det(a), values.prod(-1))
    sign, size = torch.linalg.slogdet(a)
    assert sign.dtype == torch.complex128 and size.dtype == torch.float64
    close(sign * size.exp(), values.prod(-1))
    close(torch.logdet(a).exp(), values.prod(-1))
    close(torch.linalg.det(matrices(0, 0)), torch.ones((), dtype=torch.complex128))


def test_singular_matrices():
    with pytest.raises(torch.linalg.LinAlgError, match="The diagonal element 1 is zero"):
        torch.linalg.inv(torch.zeros(2, 2, dtype=torch.complex64))
    assert torch.linalg.det(torch.zeros(2, 2, dtype=torch.complex64)) == 0
    sign, size = torch.linalg.slogdet(torch.zeros(2, 2, dtype=torch.complex128))
    assert sign == 0 and size == -torch.inf


def by_differences(function, a, step=1e-6):
    """The gradient of a real function of a complex or real matrix: dL/dx + i dL/dy."""
    gradient = torch.zeros_like(a)
    for k in range(a.numel()):
        for part in (1, 1j) if a.is_complex() else (1,):
            shift = torch.zeros_like(a)
            shift.view(-1)[k] = part * step
            slope = (function(a + shift) - function(a - shift)) / (2 * step)
            gradient.view(-1)[k] += slope * part
    return gradient


WEIGHT = matrices(3, 3)
FUNCTIONS = {
    "solve": lambda a: (torch.linalg.solve(a, WEIGHT) * WEIGHT).real.sum(),
    "right side": lambda a: (torch.linalg.solve(WEIGHT, a) * WEIGHT).imag.sum(),
    "inv": lambda a: (torch.linalg.inv(a) ** 2).imag.sum(),
    "det": lambda a: (torch.linalg.det(a) * (0.3 + 2j)).real,
    "slogdet": lambda a: (torch.linalg.slogdet(a)[0] * (0.3 + 2j)).real + 0.7 * torch.linalg.slogdet(a)[1],
    "eigvals": lambda a: (torch.linalg.eigvals(a).abs() ** 3).sum(),
    "eig": lambda a: (lambda values, vectors: (values.abs() * (vectors.abs() ** 4).sum(0)).sum())(*torch.linalg.eig(a)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name):
    a = (matrices(3, 3) + torch.diag(torch.arange(3.0))).requires_grad_()
    (found,) = torch.autograd.grad(FUNCTIONS[name](a), a)
    close(found, by_differences(FUNCTIONS[name], a.detach()), 1e-6)


@pytest.mark.parametrize("name", ["eigvals", "eig"])
def test_gradients_of_real_matrices(name):
    a = (torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) * 2).requires_grad_()
    (found,) = torch.autograd.grad(FUNCTIONS[name](a), a)
    assert found.dtype == torch.float64
    close(found, by_differences(FUNCTIONS[name], a.detach()), 1e-6)


def test_second_derivatives():
    a = matrices(3, 3).requires_grad_()

    def slope(a):
        (gradient,) = torch.autograd.grad((torch.linalg.inv(a) ** 2).real.sum(), a, create_graph=True)
        return (gradient * WEIGHT).real.sum()

    (found,) = torch.autograd.grad(slope(a), a)
    close(found, by_differences(lambda t: slope(t.requires_grad_()).detach(), a.detach()), 1e-5)


def test_compiled_derivatives_and_the_check_of_phases():
    def loss(a):
        w, v = torch.linalg.eigh(a + a.mH)
        return (v.abs() ** 3 * w.unsqueeze(-2)).sum()

    def of_phase(a):
        return torch.linalg.eigh(a + a.mH)[1].real.sum()

    compiled, refused = torch.compile(loss), torch.compile(of_phase)
    for _ in range(3):
        a, b = (matrices(4, 4).requires_grad_() for _ in range(2))
        loss(a).backward()
        compiled(b).backward()
        assert torch.equal(a.grad, b.grad)
        with pytest.raises(RuntimeError, match="linalg_eigh_backward: The eigenvectors in the complex case"):
            refused(matrices(4, 4).requires_grad_()).backward()

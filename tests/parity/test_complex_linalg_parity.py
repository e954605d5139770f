"""torch.linalg on complex and real matrices against PyTorch: values that do not depend on a choice of signs or phases, and
their gradients, of single matrices, batches and empty ones, below and above the size from which a LAPACK is used."""

import pytest
from compare import torch, words

import wick

numpy = pytest.importorskip("numpy")


def hermitian(a):
    return a + a.mH


def definite(t, a):
    return a @ a.mH + t.eye(a.shape[-1], dtype=a.dtype)


def flat(t, results):
    return t.cat([x.flatten() for x in results])


def spectral(w, v):
    return (v * w.sin().unsqueeze(-2)) @ v.mH


def by_factors(t, a):
    f = t.linalg.lu_factor(a)
    right, left = t.linalg.lu_solve(*f, a), t.linalg.lu_solve(*f, a, left=False)
    return right + left + t.linalg.lu_solve(*f, a, adjoint=True) + t.linalg.lu_solve(*f, a, left=False, adjoint=True)


def triangles(t, a):
    first = t.linalg.solve_triangular(a, a.mT, upper=True)
    return first + t.linalg.solve_triangular(a, a.mT, upper=False, left=False, unitriangular=True)


def turned(t, a):
    f = t.geqrf(a.detach())
    return t.ormqr(*f, a) + t.ormqr(*f, a, transpose=True)


SQUARE = {
    "cholesky": lambda t, a: t.linalg.cholesky(definite(t, a)),
    "cholesky upper": lambda t, a: t.linalg.cholesky(definite(t, a), upper=True),
    "cholesky_solve": lambda t, a: t.cholesky_solve(a, t.linalg.cholesky(definite(t, a))),
    "cholesky_solve upper": lambda t, a: t.cholesky_solve(a, t.linalg.cholesky(definite(t, a), upper=True), True),
    "cholesky_inverse": lambda t, a: t.cholesky_inverse(t.linalg.cholesky(definite(t, a))),
    "eigh values": lambda t, a: t.linalg.eigh(hermitian(a))[0],
    "eigh": lambda t, a: spectral(*t.linalg.eigh(hermitian(a))),
    "eigh upper": lambda t, a: spectral(*t.linalg.eigh(hermitian(a), "U")),
    "eigvalsh": lambda t, a: t.linalg.eigvalsh(hermitian(a)),
    "lu_solve": by_factors,
    "triangles": triangles,
    "pinv hermitian": lambda t, a: t.linalg.pinv(hermitian(a), hermitian=True),
    "matrix_rank hermitian": lambda t, a: t.linalg.matrix_rank(hermitian(a), hermitian=True).double(),
    "matrix_exp": lambda t, a: t.linalg.matrix_exp(a * 0.3),
    "slogdet": lambda t, a: sum(t.linalg.slogdet(a)),
    "logdet": lambda t, a: t.logdet(definite(t, a)),
    "matrix_power": lambda t, a: t.linalg.matrix_power(a, 3) + t.linalg.matrix_power(a, -2),
    "ldl hermitian": lambda t, a: t.linalg.ldl_factor(hermitian(a.detach()), hermitian=True)[0],
    "ldl symmetric": lambda t, a: t.linalg.ldl_factor(a.detach() + a.detach().mT)[0],
    "ldl pivots": lambda t, a: t.linalg.ldl_factor(hermitian(a.detach()), hermitian=True)[1].double(),
    "ldl_solve": lambda t, a: t.linalg.ldl_solve(
        *t.linalg.ldl_factor(hermitian(a.detach()), hermitian=True), a.detach(), hermitian=True
    ),
}
ANY = {
    "svdvals": lambda t, a: t.linalg.svdvals(a),
    "svd": lambda t, a: (lambda u, s, v: (u * s.sin().unsqueeze(-2)) @ v)(*t.linalg.svd(a, False)),
    "svd U": lambda t, a: (lambda u, s, v: spectral(s, u))(*t.linalg.svd(a, False)),
    "svd V": lambda t, a: (lambda u, s, v: spectral(s, v.mH))(*t.linalg.svd(a, False)),
    "svd full": lambda t, a: (lambda u, s, v: u[..., : s.shape[-1]].abs() * s.unsqueeze(-2))(*t.linalg.svd(a)),
    "qr": lambda t, a: flat(t, t.linalg.qr(a)),
    "lu": lambda t, a: flat(t, t.linalg.lu(a)[1:]),
    "pinv": lambda t, a: t.linalg.pinv(a),
    "matrix_rank": lambda t, a: t.linalg.matrix_rank(a).double(),
    "lstsq": lambda t, a: t.linalg.lstsq(a, a[..., :2]).solution,
    "lstsq gelsd": lambda t, a: t.linalg.lstsq(a, a.flip(-1)[..., :2], driver="gelsd").residuals,
    "lstsq gels": lambda t, a: t.linalg.lstsq(a, a.flip(-1)[..., :2], driver="gels").solution,
    "lstsq gelss": lambda t, a: t.linalg.lstsq(a, a.flip(-1)[..., :2], driver="gelss").singular_values,
    "cond": lambda t, a: t.linalg.cond(a),
    "norm 2": lambda t, a: t.linalg.matrix_norm(a, 2),
    "norm nuc": lambda t, a: t.linalg.matrix_norm(a, "nuc"),
    "geqrf": lambda t, a: flat(t, t.geqrf(a.detach())),
    "ormqr": turned,
    "vecdot": lambda t, a: t.linalg.vecdot(a, a.flip(-1)),
}
SHAPES = [(3, 3), (2, 4, 4), (0, 0), (2, 0, 3, 3), (70, 70), (5, 3), (2, 3, 5), (0, 3), (80, 50)]


def numbers(t, shape, dtype, seed=0):
    generator = numpy.random.default_rng(seed)
    parts = [generator.standard_normal(shape or (1,)) for _ in range(2)]
    value = t.from_numpy(parts[0] + 1j * parts[1]).reshape(shape)
    return (value if "complex" in dtype else value.real.clone()).to(getattr(t, dtype))


def outcome(t, function, shape, dtype):
    """Values and the gradient of a weighted sum, or the error."""
    a = numbers(t, shape, dtype).requires_grad_()
    try:
        value = function(t, a)
        if not value.requires_grad or not value.numel():
            return [value.detach().numpy()]
        weight = numbers(t, tuple(value.shape), str(value.dtype).rpartition(".")[2], 5)
        (gradient,) = t.autograd.grad((value * weight).sum().abs(), a)
        return [value.detach().resolve_conj().numpy(), gradient.resolve_conj().numpy()]
    except Exception as error:
        return f"{type(error).__name__}: {words(str(error))}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["complex128", "float64", "complex64"])
@pytest.mark.parametrize("name", [*SQUARE, *ANY])
def test_values_and_gradients(name, dtype):
    for shape in SHAPES:
        if name in SQUARE and shape[-1] != shape[-2]:
            continue
        function = (SQUARE | ANY)[name]
        theirs, ours = outcome(torch, function, shape, dtype), outcome(wick, function, shape, dtype)
        if isinstance(theirs, str):
            assert ours == theirs
            continue
        assert not isinstance(ours, str) and len(ours) == len(theirs), (shape, ours)
        tolerance = 1e-8 if dtype != "complex64" else 5e-2 if max(shape) > 10 else 2e-3
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
            numpy.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * (1 + abs(b).max(initial=0)))


PHASES = {
    "eigh": lambda t, z: t.linalg.eigh(z + z.mH)[1].real.sum(),
    "svd U": lambda t, z: t.linalg.svd(z)[0].real.sum(),
    "svd V": lambda t, z: t.linalg.svd(z)[2].real.sum(),
    "eig": lambda t, z: t.linalg.eig(z)[1].real.sum(),
}


@pytest.mark.parametrize("name", PHASES)
def test_functions_of_a_phase_have_no_derivative(name):
    def error(t):
        z = numbers(t, (3, 3), "complex128").requires_grad_()
        with pytest.raises(RuntimeError) as caught:
            t.autograd.grad(PHASES[name](t, z), z)
        return str(caught.value)

    assert error(wick) == error(torch)


TRANSFORMS = {
    "vmap of eigh": lambda t, a: t.func.vmap(lambda m: t.linalg.eigh(hermitian(m))[0])(a),
    "vmap of svdvals": lambda t, a: t.func.vmap(t.linalg.svdvals)(a),
    "vmap of solve": lambda t, a: t.func.vmap(lambda m: t.linalg.solve(m, m.mT))(a),
    "vmap of matrix_exp": lambda t, a: t.func.vmap(t.linalg.matrix_exp)(a * 0.1),
    "jvp of svdvals": lambda t, a: t.func.jvp(t.linalg.svdvals, (a,), (a.mT.contiguous(),))[1],
    "jvp of eigh": lambda t, a: t.func.jvp(lambda m: t.linalg.eigh(hermitian(m))[0], (a,), (a.mT.contiguous(),))[1],
    "grad of eigh": lambda t, a: t.func.grad(lambda m: t.linalg.eigh(hermitian(m))[1].abs().pow(3).sum())(a),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_function_transforms(name):
    ours, theirs = (
        TRANSFORMS[name](t, numbers(t, (3, 4, 4), "complex128")).detach().resolve_conj() for t in (wick, torch)
    )
    numpy.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-8, atol=1e-8)


def test_second_derivatives():
    def run(t):
        a = numbers(t, (3, 4, 4), "complex128").requires_grad_()
        (g,) = t.autograd.grad(t.linalg.svdvals(a).pow(2).sum(), a, create_graph=True)
        r = numbers(t, (4, 4), "float64").requires_grad_()
        (h,) = t.autograd.grad(t.linalg.matrix_exp(r * 0.2).pow(2).sum(), r, create_graph=True)
        return [x.numpy() for x in (*t.autograd.grad(g.abs().sum(), a), *t.autograd.grad(h.pow(2).sum(), r))]

    for ours, theirs in zip(run(wick), run(torch), strict=True):
        numpy.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-8)

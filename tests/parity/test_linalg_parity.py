"""torch.linalg, torch.masked, torch.special and windows against PyTorch: values, gradients, error texts."""

import pytest
from compare import outcome, same, torch

import wick

VALUES = [
    "linalg.lu(a)", "linalg.lu(a[:2])", "linalg.lu(a.mT[:2])", "linalg.lu_factor(b)", "linalg.qr(a)", "linalg.qr(a, 'complete')",
    "linalg.qr(a[:2])", "linalg.qr(a, 'r')[1]", "geqrf(a)", "linalg.cholesky(s)", "linalg.cholesky(s, upper=True)",
    "cholesky_inverse(linalg.cholesky(s))", "linalg.eigvalsh(s)", "linalg.svdvals(a)", "linalg.solve(s, a)",
    "linalg.solve(s, a[:, 0])", "linalg.solve(s, a.mT, left=False)", "linalg.inv(b)", "linalg.det(b)", "linalg.slogdet(b)",
    "logdet(s)", "linalg.pinv(a)", "linalg.pinv(s, hermitian=True)", "linalg.matrix_rank(a)", "linalg.matrix_power(s, 3)",
    "linalg.matrix_power(s, -2)", "linalg.matrix_exp(s * 0.3)", "linalg.cond(s)", "linalg.cond(s, 1)", "linalg.norm(a, 'nuc')",
    "linalg.matrix_norm(b, -2)", "linalg.vander(a, N=3)", "linalg.multi_dot([a.mT, s, a])", "linalg.cross(b, b.mT)",
    "linalg.vecdot(a, a, dim=0)", "linalg.householder_product(*geqrf(a))", "linalg.lstsq(a, s, driver='gelsd')",
    "ormqr(*geqrf(a[:, :3]), s)", "triangular_solve(a, s)", "cov(a)", "corrcoef(a)", "histogram(a, 5)", "gradient(a)",
    "masked.var(a, 1, mask=a > 0)", "masked.softmin(a, 0, mask=a > -1)", "signal.windows.kaiser(7, beta=5.0)",
    "signal.windows.gaussian(6, sym=False)", "special.zeta(a.abs() + 1.5, a.abs())", "special.airy_ai(a * 4)",
    "linalg.ldl_factor(b + b.mT)", "linalg.ldl_solve(*linalg.ldl_factor(b + b.mT), b)", "linalg.ldl_factor_ex(zeros(2, 2))",
    "cholesky_solve(a, s)", "cholesky_solve(a, s, True)", "linalg.pinv(zeros(3, 2) * a[:3, :2])", "linalg.lstsq(a, s).solution",
    "linalg.lstsq(a, s, driver='gels')", "linalg.det(a[:3] * 0)", "linalg.norm(zeros(0, 3), 1)", "linalg.norm(zeros(5, 0), 2)",
    "frexp(a * 100)", "hann_window(7)", "hamming_window(7, False, 0.3, 0.6)", "blackman_window(6)", "bartlett_window(7)",
    "kaiser_window(6, True, 3.0, dtype=float64)", "histogramdd(a, 3)", "histogramdd(a.float(), [2, 3, 4], density=True)",
    "linspace(tensor(1.0), tensor(2.0), 5)", "addbmm(ones(3, 3).long(), b.long(), b.long(), beta=1.5)",
    "special.i1e(a * 9)", "special.bessel_y1(a.abs() * 9)", "special.gammaincc(a.abs(), a.abs() * 3)", "polygamma(2, a)",
]  # fmt: skip
COMPLEX = [
    "linalg.solve(z, z[:, :2])", "linalg.solve(z.mT, z[0], left=True)", "linalg.inv(z)", "linalg.inv(stack([z, z * 2j]))", "linalg.det(z)",
    "linalg.slogdet(z)", "logdet(z)", "linalg.solve(z.to(complex64), z.to(complex64))", "linalg.det(z * 0)", "linalg.inv(z * 0)",
]  # fmt: skip
ERRORS = [
    "linalg.inv(zeros(2, 2))", "linalg.solve(zeros(2, 2), zeros(2))", "linalg.cholesky(-eye(3))", "linalg.det(a[:2])",
    "linalg.eigh(zeros(3))", "linalg.norm(a, 3)", "linalg.matrix_norm(a, 'sum')", "linalg.cross(a, a[0])",
    "linalg.qr(a, 'half')", "linalg.inv(eye(2).half())", "linalg.solve(s, zeros(3, 1, dtype=float64))",
    "cov(zeros(1, 1, 1))", "histogram(a, 0)", "special.zeta(a.half(), a.half())", "special.gammainc(ones(2).long(), ones(2).long())",
    "linalg.ldl_factor(a)", "linalg.ldl_factor(ones(2, 2).long())", "linalg.ldl_solve(eye(3), ones(2).int(), a[:3])",
    "cholesky_solve(a[0], s)", "cholesky_solve(a[:2], s)", "ormqr(tensor(1.0), tensor(1.0), tensor(1.0))",
    "ormqr(a, a[:3, 0], s[:2])", "hann_window(-1)", "kaiser_window(3, dtype=int64)", "frexp(ones(2).long())",
    "histogramdd(a, [2])", "linspace(a[0], a[0], 3)", "logspace(1, a[0], 3)", "hstack(())", "vstack(())", "kthvalue(a[0], 9)",
    "masked_scatter(a, a, a)", "vsplit(a, 'abc')", "nn.functional.embedding(tensor([1]), a[0])",
    "nn.functional.adaptive_avg_pool3d(ones(1, 2, 3, 4), ())", "take(a, tensor([1, 2, 0]), out=a[0, :1].expand(3))",
    "a.clone().float().float_power_(2)",
    "signal.windows.hann(-1)", "signal.windows.gaussian(3, std=-1)", "masked.sum(a, (0, 0))", "mvlgamma(a, 0)",
]  # fmt: skip


def called(t, call):
    t.manual_seed(3)
    names = {name: getattr(t, name) for name in dir(t) if not name.startswith("_")}
    b = t.randn(2, 3, 3, dtype=t.float64)
    a = t.randn(3, 4, dtype=t.float64).mT if "[:, :3]" in call else t.randn(4, 3, dtype=t.float64)
    s = t.eye(a.shape[0], dtype=t.float64) * 3 + a @ a.mT if a.shape[0] > 2 else None
    import importlib

    names |= {
        name: importlib.import_module(f"{t.__name__}.{name}") for name in ("linalg", "masked", "special", "signal")
    }
    return eval(call, names | {n: getattr(t, n) for n in ("geqrf", "ormqr", "float64")} | {"a": a, "b": b, "s": s})


@pytest.mark.parametrize("call", VALUES)
def test_values(call):
    assert not str(outcome(lambda t: called(t, call), torch)[0]).startswith(("RuntimeError", "NameError", "TypeError"))
    same(lambda t: called(t, call), 1e-6 if "windows" in call else 1e-9)


@pytest.mark.parametrize("call", ERRORS)
def test_errors(call):
    theirs, ours = outcome(lambda t: called(t, call), torch)[0], outcome(lambda t: called(t, call), wick)[0]
    assert isinstance(theirs, str) and theirs == ours


@pytest.mark.parametrize("call", COMPLEX)
def test_complex(call):
    def function(t):
        parts = t.linspace(-1, 2, 18, dtype=t.float64).cos().view(2, 3, 3)
        names = {name: getattr(t, name) for name in ("linalg", "logdet", "stack", "complex64")}
        z = t.complex(parts[0], parts[1] * 3).mT + t.eye(3)
        result = eval(call, names | {"z": z})
        return [t.view_as_real(x).clone() if x.is_complex() else x for x in (result if isinstance(result, tuple) else [result])]

    same(function, tolerance=1e-5 if "complex64" in call else 1e-10)

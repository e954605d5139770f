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


MORE_ERRORS = """
linalg.lu_solve(eye(3),ones(3).int(),eye(3).double())
linalg.lu_solve(eye(3),ones(3),eye(3))
linalg.lu_solve(ones(2,3),ones(3).int(),eye(3))
linalg.lu_solve(eye(3),ones(2).int(),eye(3))
linalg.lu_solve(eye(3),ones(2,3).int(),eye(3))
linalg.lu_solve(eye(3),ones(3).int(),eye(2))
linalg.lu_solve(eye(3),ones(3).int(),ones(3))
linalg.lu_solve(eye(3),ones(3).int(),eye(2),left=False)
linalg.cond(ones(3))
linalg.cond(eye(3),3)
linalg.cond(zeros(2,2),1)
linalg.cond(eye(3).long())
linalg.pinv(ones(3))
linalg.pinv(eye(3).long())
linalg.matrix_rank(ones(3))
linalg.matrix_rank(eye(3).long())
linalg.matrix_rank(eye(3),atol=ones(2))
linalg.matrix_rank(eye(3).half())
linalg.svd(eye(3).half())
linalg.svd(eye(3).long())
linalg.svdvals(eye(3).long())
linalg.svdvals(ones(3))
linalg.eigh(eye(3),'X')
linalg.eigvalsh(eye(3).long())
linalg.eigvalsh(ones(2,3))
linalg.qr(eye(3).long())
linalg.qr(ones(3))
linalg.cholesky(ones(3))
linalg.cholesky(eye(3).long())
linalg.cholesky(eye(3).half())
linalg.cholesky_ex(-eye(3),check_errors=True)
linalg.cholesky(stack([eye(3),-eye(3)]))
linalg.inv(stack([eye(3),zeros(3,3)]))
linalg.inv_ex(zeros(3,3),check_errors=True)
linalg.inv(eye(3).long())
linalg.det(eye(3).long())
linalg.det(ones(3))
linalg.slogdet(eye(3).long())
linalg.solve_ex(zeros(3,3),eye(3),check_errors=True)
linalg.solve(eye(3),ones(2))
linalg.solve(eye(3),ones(2,2),left=False)
linalg.solve(eye(3),tensor(1.))
linalg.solve(eye(3).long(),eye(3).long())
linalg.solve_triangular(eye(3),ones(3),upper=True)
linalg.solve_triangular(eye(3),eye(3).double(),upper=True)
linalg.solve_triangular(eye(3),eye(2),upper=True,left=False)
linalg.solve_triangular(eye(3).long(),eye(3).long(),upper=True)
linalg.lstsq(ones(3),ones(3))
linalg.lstsq(eye(3),eye(3).double())
linalg.lstsq(eye(3).long(),eye(3).long())
linalg.lstsq(eye(3),eye(2))
linalg.lstsq(eye(3),tensor(1.))
linalg.ldl_factor(eye(3).half())
linalg.ldl_solve(eye(3),ones(3).int(),eye(3).double())
linalg.ldl_solve(eye(3),ones(3),eye(3))
linalg.ldl_solve(eye(3),ones(3).int(),ones(3))
linalg.householder_product(ones(2,3),ones(3))
linalg.householder_product(ones(3,2),ones(3))
linalg.householder_product(ones(3),ones(3))
linalg.householder_product(ones(3,2),ones(2).double())
linalg.householder_product(ones(3,2),ones(2,2))
linalg.matrix_exp(ones(2,3))
linalg.matrix_exp(ones(3))
linalg.matrix_exp(eye(3).long())
linalg.matrix_power(ones(2,3),2)
linalg.matrix_power(ones(3),2)
linalg.multi_dot([ones(3)])
linalg.multi_dot([ones(3,3),ones(2,2)])
linalg.vander(tensor(1.))
linalg.vander(ones(2),N=0)
linalg.tensorinv(ones(2,3),ind=1)
linalg.tensorinv(ones(2,2),ind=0)
linalg.tensorinv(zeros(2,2),ind=1)
linalg.vecdot(ones(3),ones(3).double())
linalg.lu(eye(3).long())
linalg.lu(ones(3))
linalg.lu_factor(ones(3))
lu_unpack(eye(3),ones(3))
logdet(eye(3).long())
triangular_solve(ones(3),eye(3))
triangular_solve(eye(3).double(),eye(3))
cholesky_solve(eye(3).double(),eye(3))
cholesky_inverse(ones(3))
cholesky_inverse(ones(2,3))
pinverse(ones(3))
geqrf(ones(3))
ormqr(eye(3),ones(2),eye(3))
qr(ones(3))
svd(ones(3))
inverse(ones(3))
inverse(ones(2,3))
linalg.eig(ones(2,3))
linalg.eig(eye(3).long())
linalg.eigvals(eye(3).half())
linalg.norm(eye(3),'x')
linalg.norm(ones(3),'fro')
linalg.matrix_norm(ones(3,3),3)
linalg.matrix_norm(ones(3,3).long())
linalg.matrix_norm(ones(3,3),'nuc',(0,))
linalg.cross(ones(3),ones(2))
linalg.svd(eye(3),driver='gesvd')
linalg.cholesky(eye(3),out=eye(3).long())
linalg.inv(eye(3),out=eye(3).cfloat())
linalg.eigh(eye(3),out=(ones(3),eye(3).long()))
linalg.svd(eye(3),out=(eye(3),ones(3)))
""".strip().splitlines()


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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", MORE_ERRORS)
def test_more_errors(call):
    import importlib

    def function(t):
        names = {name: getattr(t, name) for name in dir(t) if not name.startswith("_")}
        return eval(call, names | {"linalg": importlib.import_module(f"{t.__name__}.linalg"), "tensor": t.tensor})

    lazy = (
        "triangular_solve cholesky_solve cholesky_inverse pinverse geqrf ormqr qr svd inverse logdet lu_unpack".split()
    )
    assert all(hasattr(wick, name) for name in lazy)
    assert outcome(function, wick)[0] == outcome(function, torch)[0]


@pytest.mark.parametrize("call", COMPLEX)
def test_complex(call):
    def function(t):
        parts = t.linspace(-1, 2, 18, dtype=t.float64).cos().view(2, 3, 3)
        names = {name: getattr(t, name) for name in ("linalg", "logdet", "stack", "complex64")}
        z = t.complex(parts[0], parts[1] * 3).mT + t.eye(3)
        result = eval(call, names | {"z": z})
        return [
            t.view_as_real(x).clone() if x.is_complex() else x
            for x in (result if isinstance(result, tuple) else [result])
        ]

    same(function, tolerance=1e-5 if "complex64" in call else 1e-10)

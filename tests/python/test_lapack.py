"""Factorisations by wick's own routines and by a LAPACK that is found at run time: both fulfil LAPACK's own test ratios, such
as |A - U S V^H| / (|A| n eps) < 30, for every dtype, and WICK_LAPACK switches between them."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = r"""
import json, wick as torch
L, ratios = torch.linalg, {}

def norm(a):
    return float(L.matrix_norm(a.to(torch.complex128), 1)) if a.numel() else 0.0

def near(name, found, wanted, eps, size=None):
    n = max(max(wanted.shape), 1)
    scale = norm(wanted) if size is None else size
    ratios[name] = norm(found.to(torch.complex128) - wanted.to(torch.complex128)) / (max(scale, 1e-300) * n * eps)

def orthogonal(name, q, eps):
    n = q.shape[-1]
    near(name, q.mH @ q, torch.eye(n, dtype=q.dtype), eps)

for dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128):
    eps = torch.finfo(dtype).eps
    for m, n in ((7, 7), (120, 120), (130, 90), (90, 130)):
        torch.manual_seed(m + n)
        a = torch.randn(m, n, dtype=dtype)
        at = f"{dtype} {m}x{n} "
        for full in (True, False):
            u, s, vh = L.svd(a, full)
            k = min(m, n)
            near(at + f"svd {full}", (u[:, :k] * s) @ vh[:k], a, eps)
            orthogonal(at + f"svd {full} U", u, eps), orthogonal(at + f"svd {full} V", vh.mH, eps)
            assert bool((s[:-1] >= s[1:]).all() and (s >= 0).all()), s
        near(at + "svdvals", L.svdvals(a)[None], s[None], eps, float(s[0]))
        for mode in ("reduced", "complete"):
            q, r = L.qr(a, mode)
            near(at + "qr " + mode, q @ r, a, eps), orthogonal(at + "q " + mode, q, eps)
            assert bool((r.tril(-1) == 0).all())
        p, l, u = L.lu(a)
        near(at + "lu", p @ l @ u, a, eps)
        if m != n:
            continue
        h = a + a.mH
        for uplo in "LU":
            w, v = L.eigh(h.tril() if uplo == "L" else h.triu(), uplo)
            near(at + "eigh " + uplo, (v * w) @ v.mH, h, eps), orthogonal(at + "eigh V " + uplo, v, eps)
            assert bool((w[:-1] <= w[1:]).all())
        near(at + "eigvalsh", L.eigvalsh(h)[None], w[None], eps, float(w.abs().max()))
        w, v = L.eig(a)
        near(at + "eig", a.to(v.dtype) @ v, v * w, eps, norm(a) * norm(v))
        d = a @ a.mH + torch.eye(n, dtype=dtype)
        near(at + "cholesky", (lambda c: c @ c.mH)(L.cholesky(d)), d, eps)
        b = torch.randn(n, 5, dtype=dtype)
        x = L.solve(a, b)
        near(at + "solve", a @ x, b, eps, norm(a) * norm(x))
        t = a.triu() + n * torch.eye(n, dtype=dtype)
        x = L.solve_triangular(t, b, upper=True)
        near(at + "triangle", t @ x, b, eps, norm(t) * norm(x))
        x = L.solve_triangular(t.mT, b, upper=False, unitriangular=True)
        unit = t.mT.tril(-1) + torch.eye(n, dtype=dtype)
        near(at + "unit triangle", unit @ x, b, eps, norm(unit) * norm(x))
        sign, size = L.slogdet(d)
        near(at + "slogdet", (sign.real * size)[None, None], L.eigvalsh(d).double().log().sum()[None, None], eps, n)
    for hermitian in (True, False):
        s = torch.randn(40, 40, dtype=dtype)
        s = s + (s.mH if hermitian else s.mT)
        s[:9, :9] = 0
        b = torch.randn(40, 3, dtype=dtype)
        x = L.ldl_solve(*L.ldl_factor(s, hermitian=hermitian), b, hermitian=hermitian)
        near(f"{dtype} ldl {hermitian}", s @ x, b, eps, norm(s) * norm(x))
loaded = [line for line in open("/proc/self/maps") if "openblas" in line or "liblapack" in line]
print(json.dumps([bool(loaded), ratios]))
"""


def run(lapack, program=PROGRAM):
    env = {k: v for k, v in os.environ.items() if k != "WICK_LAPACK"}
    if lapack is not None:
        env["WICK_LAPACK"] = lapack
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)


def check(ratios):
    assert len(ratios) == 288
    assert {name: ratio for name, ratio in ratios.items() if not ratio < 30} == {}


def test_own_routines():
    loaded, ratios = json.loads(run("").stdout)
    assert not loaded
    check(ratios)


def test_a_library():
    spec = importlib.util.find_spec("numpy")
    folder = pathlib.Path(spec.origin).parent.parent / "numpy.libs" if spec else pathlib.Path("/nowhere")
    if not list(folder.glob("libscipy_openblas*")):
        pytest.skip("NumPy's wheel with its OpenBLAS is not here")
    loaded, ratios = json.loads(run(None).stdout)
    assert loaded
    check(ratios)


@pytest.mark.parametrize("path", ["/nowhere/liblapack.so", "libm.so.6"])
def test_a_wrong_library_is_said_once(path):
    done = run(
        path, "import wick as t; a = t.eye(200); t.linalg.svd(a); t.linalg.eigh(a); print(t.linalg.det(a).item())"
    )
    assert done.stdout == "1.0\n"
    assert done.stderr == f"[wick] WICK_LAPACK={path} cannot be used as LAPACK; wick's own routines are used\n"


def test_the_bits_do_not_depend_on_threads():
    program = """
import wick as t
t.manual_seed(0)
a = t.randn(100, 9, 7, dtype=t.complex64)
for n in (1, 4):
    t.set_num_threads(n)
    print(*(hash(str(x.tolist())) for x in (*t.linalg.svd(a), *t.linalg.qr(a))))
"""
    env = os.environ | {"WICK_LAPACK": "", "PYTHONHASHSEED": "0"}
    first, second = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert first == second

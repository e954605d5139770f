"""Complex tensors against an installed PyTorch: values, gradients, dtypes and errors of operators in both complex dtypes."""

import pytest

torch = pytest.importorskip("torch")
from compare import outcome  # noqa: E402

import wick  # noqa: E402

# Of complex a, b (3, 4), a complex vector v (4), a real tensor r (3, 4) and the library t.
UNARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh sinc "
    "sigmoid square neg abs angle sgn conj_physical"
).split()
VALUES = [f"a.{name}()" for name in UNARY] + [
    "a + b", "a - b", "a * b", "a / b", "a + r", "r - a", "a * r", "r / a", "a * 2", "2 - a", "1 / a", "a * 2j", "a - 1j", "(1 + 2j) / a",
    "r * 1j", "r + 2j", "a.add(b, alpha=2)", "a.sub(b, alpha=1 - 1j)", "a ** 2", "a ** 3", "a ** -1", "a ** 0.5", "a ** 1.5", "a ** b",
    "a ** r", "r.abs() ** a", "2 ** a", "(1j) ** a", "a ** (1 + 2j)", "t.addcmul(a, a, b, value=2j)", "t.addcdiv(a, b, a, value=0.5)",
    "t.lerp(a, b, 0.3)", "t.lerp(a, b, a)", "t.where(r > 0, a, b)", "t.where(r > 0, a, 1j)", "a.masked_fill(r > 0, 2 - 1j)",
    "t.complex(r, r * 2)", "t.polar(r.abs(), r)", "t.view_as_real(a)", "t.view_as_complex(t.stack([r, r + 1], -1))", "a.real", "a.imag",
    "a.conj()", "a.mH", "a.H", "a.adjoint()", "t.real(a)", "t.imag(a)", "a.sum()", "a.sum(1)", "a.mean()", "a.mean(0, keepdim=True)",
    "a.cumsum(1)", "a.prod()", "a.prod(1)", "a.cumprod(0)", "a.var()", "a.std(1)", "a.norm()", "t.linalg.vector_norm(a, dim=1)",
    "t.linalg.vector_norm(a, 3)", "t.linalg.vector_norm(a, 1, dim=0)", "t.linalg.vector_norm(a, float('inf'))", "a @ b.mT", "a @ v",
    "t.bmm(a[None], b.mT[None])", "t.dot(v, v)", "t.vdot(v, a[0])", "t.outer(v, a[0])", "t.einsum('ij,kj->ik', a, b)",
    "t.addmm(a @ b.mT, a, b.mT, beta=1j, alpha=2 - 1j)", "t.baddbmm(a[None] @ b.mT, a[None], b.mT[None], beta=2, alpha=1j)",
    "t.nn.functional.linear(a, b)", "t.nn.functional.linear(a, b, v[:3])", "t.kron(a, b)", "a[1]", "a[:, 1:3]", "a[[0, 2]]", "a[r > 0]",
    "a.flip(1)", "a.roll(1, 0)", "a.tril()", "a.triu(1)", "a.diagonal()", "t.cat([a, b])", "t.stack([a, b], 1)", "a.expand(2, 3, 4)",
    "t.nn.functional.pad(a, (1, 2))", "a.gather(1, (r > 0).long())", "a.index_select(0, t.tensor([2, 0]))", "a.index_add(0, t.tensor([1, 1, 0]), b)",
    "a.scatter_add(1, (r > 0).long(), b)", "a.index_put((t.tensor([0, 0]),), b[:2], accumulate=True)", "a.repeat(2, 1)", "a.T", "a.reshape(4, 3)",
    "a.clone()", "a.to(t.complex128)", "a.cfloat()", "r.cdouble()", "t.cumsum(a, 0).abs()", "(a * a.conj()).real",
    "a.float_power(2)", "t.logaddexp(a, b)", "a.unfold(1, 2, 1)", "a.trace()", "a.dist(b)",
    "a.masked_select(r > 0)", "t.cov(a)",
]  # fmt: skip
PLAIN = [
    "t.nn.functional.silu(a)", "t.nn.functional.embedding(t.tensor([0, 2]), a)",
    "a == b", "a != a", "a == 1j", "t.isnan(a / 0)", "t.isinf(a / 0)", "t.isfinite(a)", "t.isclose(a, a + 1e-9)", "t.allclose(a, a + 1e-9)",
    "t.equal(a, a)", "t.isreal(a)", "a.any()", "a.all(1)", "a.logical_not()", "a.logical_and(b)", "a.nonzero()", "a.count_nonzero()", "a.bool()",
    "a.is_complex()", "a.is_floating_point()", "a.resolve_conj() is a", "r.conj() is r", "a.tolist()", "a[0, 0].item()", "complex(a[0, 0])",
    "bool(a[0, 0])", "str(a)", "repr(a * 1e-5)", "t.promote_types(a.dtype, t.float64)", "t.result_type(r, 1j)", "t.result_type(a, 1.0)",
    "t.can_cast(a.dtype, t.float32)", "a.real.is_contiguous()", "a.real.stride()", "t.view_as_real(a).stride()", "t.full((2,), 1 + 2j)",
    "t.ones(2, dtype=a.dtype)", "t.eye(2, dtype=a.dtype)", "t.zeros_like(a)", "t.ones_like(a)", "t.full_like(a, 2j)", "a.new_full((2,), 3)",
    "t.scalar_tensor(1j, dtype=a.dtype)", "t.linspace(0, 1 + 1j, 3)", "t.tensor([1j, 2.0])", "t.as_tensor(1j)", "a.clone().fill_(1j)",
    "t.randn(3, dtype=a.dtype)", "t.randn(20, dtype=a.dtype)", "t.rand(3, dtype=a.dtype)", "t.sum(t.tensor([1, 2]), dtype=a.dtype)",
    "t.where(t.tensor([True, False]), 1j, 2)", "t.add(a, b, out=t.zeros(3, 4, dtype=t.complex128))", "t.abs(a, out=t.zeros(3, 4, dtype=a.real.dtype))",
    "a.clone().mul_(b)", "a.clone().add_(r)", "a.clone().div_(2j)", "a.clone().pow_(2)", "a.clone().exp_()", "a.clone().neg_()", "a.clone().conj_physical_()",
    "a.clone().index_fill(0, t.tensor([1]), 1j)", "t.zeros(3, 4, dtype=a.dtype).copy_(r)", "a[0, 0] == complex(a[0, 0])", "a.untyped_storage().nbytes()",
    "a.element_size()", "a.numpy().tolist()", "t.from_numpy(a.numpy() * 2)", "a.var(0, correction=0)", "t.tensor(1 + 0j) ** 0", "t.tensor(0j) ** 2.5",
]  # fmt: skip
ERRORS = [
    "a < b", "a >= 1", "a.max()", "a.min(1)", "a.amax()", "a.argmax()", "a.sort()", "a.topk(1)", "a.floor()", "a.ceil()", "a.round()", "a.trunc()",
    "a.sign()", "t.relu(a)", "a.clamp(0, 1)", "t.maximum(a, b)", "t.fmin(a, b)", "a % 2", "a // 2", "t.atan2(a, b)", "a.erf()", "a.lgamma()",
    "a.softmax(0)", "t.nn.functional.gelu(a)", "a.deg2rad()", "a.isposinf()", "a.signbit()", "t.heaviside(a, b)", "a.nansum()", "t.hypot(a, b)",
    "t.complex(a, b)", "t.complex(r, r.half())", "t.complex(r.long(), r.long())", "r.imag", "t.view_as_real(r)", "t.view_as_complex(t.ones(2, 3))",
    "t.view_as_complex(t.ones(2, 4)[:, ::2])", "float(a[0, 0])", "int(a[0, 0])", "r.clone().add_(a)", "t.add(a, b, out=r.clone())", "t.full((2,), 1j, dtype=t.float32)",
    "t.ones(2).fill_(2j)", "a.mode()", "t.gcd(a, b)", "a.clone().abs_()", "v.H", "v.mH", "t.nn.functional.mse_loss(a, b)", "r.float().masked_fill(r > 0, 1j)",
    "t.arange(3, dtype=a.dtype)", "t.tensor([1j], dtype=t.float32)", "(a * a.clone().requires_grad_()).sum().backward()", "a.clamp_min(1)", "t.quantile(a, 0.5)",
    "t.nn.functional.leaky_relu(a)", "a & b", "t.igamma(a, b)", "a.logit()",
]  # fmt: skip
DTYPES = ["complex64", "complex128"]


def operands(library, dtype):
    generator = torch.Generator().manual_seed(5)
    real = torch.float32 if dtype == "complex64" else torch.float64
    made = {
        "a": torch.randn(3, 4, dtype=getattr(torch, dtype), generator=generator),
        "b": torch.randn(3, 4, dtype=getattr(torch, dtype), generator=generator),
        "v": torch.randn(4, dtype=getattr(torch, dtype), generator=generator),
        "r": torch.randn(3, 4, dtype=real, generator=generator),
    }
    return {name: library.from_numpy(x.numpy().copy()) for name, x in made.items()} | {"t": library}


def close(ours, theirs, dtype):
    ours = torch.from_numpy(ours.detach().numpy().copy())
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    tolerance = 2e-4 if dtype == "complex64" else 1e-9
    torch.testing.assert_close(ours, theirs.detach().resolve_conj(), rtol=tolerance, atol=tolerance, equal_nan=True)


def value_and_gradients(library, dtype, expression):
    names = operands(library, dtype)
    leaves = [names[name].requires_grad_() for name in "abvr"]
    y = eval(expression, names)
    weight = library.arange(1, y.numel() + 1, dtype=library.float64).reshape(y.shape)
    loss = ((y.real * weight).sum() + (y.imag * weight * 0.7).sum()) if y.is_complex() else (y * weight).sum()
    if loss.requires_grad:
        loss.backward()
    return y, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expression", VALUES)
def test_values_and_gradients(expression, dtype):
    theirs, their_gradients = value_and_gradients(torch, dtype, expression)
    ours, our_gradients = value_and_gradients(wick, dtype, expression)
    close(ours, theirs, dtype)
    for ours, theirs in zip(our_gradients, their_gradients, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            close(ours, theirs, dtype)


def numbers(value):
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in numbers(item)]
    return [float(value)] if isinstance(value, (int, float)) else []


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expression", PLAIN)
def test_results(expression, dtype):
    theirs = eval(expression, operands(torch, dtype) | {"_": torch.manual_seed(3)})
    ours = eval(expression, operands(wick, dtype) | {"_": wick.manual_seed(3)})
    if isinstance(theirs, torch.Tensor):
        close(ours, theirs, dtype)
    elif isinstance(theirs, (list, complex)):
        assert numbers(ours) == pytest.approx(numbers(theirs), rel=1e-6)
    else:
        assert str(ours).replace("wick.", "torch.") == str(theirs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expression", ERRORS)
def test_errors(expression, dtype):
    theirs = outcome(lambda t: eval(expression, operands(t, dtype)), torch)[0]
    ours = outcome(lambda t: eval(expression, operands(t, dtype)), wick)[0]
    assert isinstance(theirs, str) and ours == theirs

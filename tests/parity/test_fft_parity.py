"""torch.fft against an installed PyTorch: values, gradients, strides, errors, lengths of every kind."""

import pytest

torch = pytest.importorskip("torch")
from compare import outcome  # noqa: E402

import wick  # noqa: E402

# Of complex z (4, 6, 5), a real tensor r of these sizes and the namespace f.
ONE = ["f.{name}({x})", "f.{name}({x}, 7)", "f.{name}({x}, 3, 0)", "f.{name}({x}, dim=1, norm='ortho')", "f.{name}({x}, 8, norm='forward')",
       "f.{name}({x}.transpose(0, 2), dim=1)", "f.{name}({x}[:, ::2], norm='backward')"]  # fmt: skip
MANY = ["f.{name}n({x})", "f.{name}n({x}, (3, 7))", "f.{name}n({x}, dim=(0, 2), norm='ortho')", "f.{name}n({x}, (5, -1), dim=(1, 0))", "f.{name}2({x})",
        "f.{name}2({x}, (8, 3), norm='forward')", "f.{name}2({x}, dim=(0, 1))"]  # fmt: skip
TAKES = {"fft": "zr", "ifft": "zr", "rfft": "r", "irfft": "zr", "hfft": "zr", "ihfft": "r"}
CASES = [case.format(name=name, x=x) for name, kinds in TAKES.items() for x in kinds for case in ONE + MANY]
OTHERS = [
    "f.fftfreq(5)", "f.fftfreq(6, d=0.5)", "f.rfftfreq(7)", "f.rfftfreq(8, 2.0, dtype=t.float64)", "f.fftfreq(0)", "f.fftshift(t.arange(7))",
    "f.fftshift(r, dim=1)", "f.ifftshift(r)", "f.ifftshift(t.arange(6), dim=(0,))", "f.fft(t.arange(4))", "f.fft(t.tensor([True, False]))",
    "f.irfft(t.ones(3))", "f.fftn(z, dim=())", "f.fft(z, out=t.empty(0, dtype=z.dtype))",
]  # fmt: skip
ERRORS = [
    "f.fft(r, 0)", "f.fft(r, norm='x')", "f.fft(r, dim=5)", "f.rfft(z)", "f.ihfft(z)", "f.fft(r.half())", "f.fft(r.bfloat16())", "f.irfft(z[..., :1])",
    "f.fftn(r, s=(2,), dim=(0, 1))", "f.fftn(r, dim=(0, 0))", "f.fftn(r, s=(2, 2, 2, 2))", "f.fft(t.tensor(1.0))", "f.fft(t.zeros(3, 0))",
    "f.fft2(t.ones(3))", "f.rfftn(z)", "f.irfftn(z, s=(2, 2, 0))",
]  # fmt: skip
DTYPES = ["complex64", "complex128"]
LENGTHS = [*range(1, 34), 49, 64, 97, 100, 121, 128, 169, 210, 251, 360, 512, 1000, 1009, 2047, 4096, 5000]


def operands(library, dtype):
    generator = torch.Generator().manual_seed(5)
    z = torch.randn(4, 6, 5, dtype=getattr(torch, dtype), generator=generator)
    made = {"z": z, "r": z.real.clone()}
    return {name: library.from_numpy(x.numpy().copy()) for name, x in made.items()} | {"t": library, "f": library.fft}


def close(ours, theirs, dtype, strides=True):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert not strides or tuple(ours.stride()) == tuple(theirs.stride())
    ours = torch.from_numpy(ours.detach().contiguous().numpy().copy())
    assert ours.dtype == theirs.dtype
    tolerance = 3e-5 if dtype == "complex64" else 1e-11
    torch.testing.assert_close(ours, theirs.detach().resolve_conj(), rtol=tolerance, atol=tolerance)


def value_and_gradients(library, dtype, case):
    names = operands(library, dtype)
    leaves = [names[name].requires_grad_() for name in "zr"]
    y = eval(case, names)
    weight = library.arange(1, y.numel() + 1, dtype=library.float64).reshape(y.shape) / y.numel()
    loss = ((y.real * weight).sum() + (y.imag * weight * 0.7).sum()) if y.is_complex() else (y * weight).sum()
    loss.backward()
    return y, [leaf.grad for leaf in leaves]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case, dtype):
    theirs, their_gradients = value_and_gradients(torch, dtype, case)
    ours, our_gradients = value_and_gradients(wick, dtype, case)
    close(ours, theirs, dtype)
    for ours, theirs in zip(our_gradients, their_gradients, strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            close(ours, theirs, dtype, False)


@pytest.mark.parametrize("case", OTHERS)
def test_other_functions(case):
    close(eval(case, operands(wick, "complex64")), eval(case, operands(torch, "complex64")), "complex64")


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    theirs = outcome(lambda t: eval(case, operands(t, "complex64")), torch)[0]
    assert isinstance(theirs, str)
    assert outcome(lambda t: eval(case, operands(t, "complex64")), wick)[0] == theirs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(n, dtype):
    x = torch.randn(3, n, dtype=getattr(torch, dtype), generator=torch.Generator().manual_seed(n))
    ours = wick.from_numpy(x.numpy())
    tolerance = {"rtol": 2e-5, "atol": 2e-5 * n**0.5} if dtype == "complex64" else {"rtol": 1e-11, "atol": 1e-12 * n}
    for name in ("fft", "ifft", "hfft", "irfft"):
        if n > 1 or name in ("fft", "ifft"):
            expected = getattr(torch.fft, name)(x)
            found = torch.from_numpy(getattr(wick.fft, name)(ours).numpy().copy())
            torch.testing.assert_close(found, expected, **tolerance)

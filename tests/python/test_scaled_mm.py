"""Products of float8 with scales: values against the formula, PyTorch's errors."""

import pytest

import wick

F = wick.nn.functional
KINDS = F.ScalingType


@pytest.fixture(params=[(wick.float8_e4m3fn, wick.float8_e4m3fn), (wick.float8_e5m2, wick.float8_e4m3fn)])
def matrices(request):
    wick.manual_seed(0)
    a, b = wick.randn(9, 24), wick.randn(7, 24)
    return a.to(request.param[0]), b.to(request.param[1]).t()


def formula(a, b, of_a, of_b, bias=0):
    return (a.double() @ b.double()) * of_a.double() * of_b.double() + bias


@pytest.mark.parametrize("dtype", [wick.bfloat16, wick.float16, wick.float32])
def test_a_scale_a_matrix(matrices, dtype):
    a, b = matrices
    scales, bias = (wick.tensor(0.5), wick.tensor([3.0])), wick.arange(7.0)
    y = wick._scaled_mm(a, b, *scales, bias=bias, out_dtype=dtype)
    assert y.dtype == dtype and y.shape == (9, 7)
    wick.testing.assert_close(y.double(), formula(a, b, *scales, bias), rtol=wick.finfo(dtype).eps, atol=1e-5)


def test_a_scale_a_row(matrices):
    a, b = matrices
    scales = wick.rand(9, 1) + 0.5, wick.rand(1, 7) + 0.5
    y = wick._scaled_mm(a, b, *scales, out_dtype=wick.float32)
    wick.testing.assert_close(y.double(), formula(a, b, *scales), rtol=1e-6, atol=1e-5)
    assert wick.equal(
        y, F.scaled_mm(a, b, scales[0], KINDS.RowWise, scales[1], KINDS.RowWise, output_dtype=wick.float32)
    )


def test_defaults(matrices):
    a, b = matrices
    one = wick.tensor(1.0)
    assert wick._scaled_mm(a, b, one, one).dtype == a.dtype
    assert F.scaled_mm(a, b, [one], [KINDS.TensorWise], one, KINDS.TensorWise).dtype == wick.bfloat16


def test_compiled(matrices):
    a, b = matrices
    one = wick.tensor(0.25)
    f = wick.compile(lambda a, b: wick._scaled_mm(a, b, one, one, out_dtype=wick.bfloat16).relu(), fullgraph=True)
    assert all(wick.equal(f(a, b), wick._scaled_mm(a, b, one, one, out_dtype=wick.bfloat16).relu()) for _ in range(3))


def test_errors(matrices):
    a, b = matrices
    one = wick.tensor(1.0)
    for args, message in (
        ((a[0], b, one, one), "mat1 must be a matrix"),
        ((a, b[:, 0], one, one), "mat2 must be a matrix"),
        ((a, b[:8], one, one), r"mat1 and mat2 shapes cannot be multiplied \(9x24 and 8x7\)"),
        ((a, b, one, one, wick.ones(6)), "Bias must be size 7 but got 6"),
    ):
        with pytest.raises(RuntimeError, match=message):
            wick._scaled_mm(*args)
    for args in ((a.float(), b, one, one), (a, b, one.double(), one), (a, b, wick.ones(3, 1), wick.ones(1, 7))):
        with pytest.raises(ValueError, match="Invalid scaling configuration"):
            wick._scaled_mm(*args)
    with pytest.raises(NotImplementedError, match="scales of blocks"):
        F.scaled_mm(a, b, one, KINDS.BlockWise1x128, one, KINDS.BlockWise128x128)

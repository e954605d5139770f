"""autocast on the CPU: which dtypes operators compute in, what is on the tape, and that compiled code follows."""

import pytest

import wick
from wick import bfloat16, float16, float32


def test_products_and_their_dtypes():
    x, w = wick.randn(3, 4), wick.randn(4, 5)
    with wick.autocast("cpu"):
        assert (x @ w).dtype == bfloat16 and wick.mm(x, w).dtype == bfloat16
        assert wick.nn.functional.linear(x, w.t()).dtype == bfloat16
        assert (x.double() @ w.double()).dtype == wick.float64
        assert (x + 1).dtype == float32
        assert wick.cat([x, x.bfloat16()]).dtype == float32
        assert wick.nn.functional.mse_loss(x.bfloat16(), x.bfloat16()).dtype == float32
        with wick.autocast("cpu", enabled=False):
            assert (x @ w).dtype == float32
        with wick.autocast("cpu", dtype=float16):
            assert (x @ w).dtype == float16
        assert wick.mm(x, w, out=wick.empty(3, 5)).dtype == float32
    assert (x @ w).dtype == float32
    wick.testing.assert_close(wick.mm(x.bfloat16(), w.bfloat16()), wick.autocast("cpu")(wick.mm)(x, w))


def test_convolutions_and_their_gradients():
    x, w = wick.randn(2, 3, 6, 6), wick.randn(4, 3, 3, 3, requires_grad=True)
    f = wick.nn.functional
    with wick.autocast("cpu"):
        y = f.conv2d(x, w)
        others = f.conv2d(x, w, padding="same"), f.conv1d(x[:, :, 0], w[:, :, 0]), f.conv_transpose2d(x, w[:3])
        assert f.conv2d(x.double(), w.double()).dtype == wick.float64
    assert {t.dtype for t in (y, *others)} == {bfloat16}
    assert wick.equal(y, f.conv2d(x.bfloat16(), w.bfloat16()))
    y.sum().backward()
    assert w.grad.dtype == float32


def test_gradients_have_the_parameters_dtype():
    layer, x = wick.nn.Linear(4, 3), wick.randn(2, 4)
    with wick.autocast("cpu"):
        loss = layer(x).sum()
    loss.backward()
    assert layer.weight.grad.dtype == float32 and loss.dtype == bfloat16


def test_state():
    assert not wick.is_autocast_enabled("cpu") and wick.get_autocast_dtype("cpu") == bfloat16
    with wick.autocast("cpu", dtype=float16):
        assert wick.is_autocast_enabled("cpu") and wick.is_autocast_cpu_enabled()
        assert wick.get_autocast_cpu_dtype() == float16 and not wick.is_autocast_enabled()
    assert not wick.is_autocast_cpu_enabled() and wick.get_autocast_cpu_dtype() == bfloat16
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not wick.autocast("cuda")._enabled
    with pytest.raises(RuntimeError, match="unsupported autocast device_type"):
        wick.autocast("abacus")


def test_compiled_code_follows():
    w = wick.randn(4, 4)
    compiled = wick.compile(lambda x: x @ w)
    x = wick.randn(2, 4)
    assert compiled(x).dtype == float32
    with wick.autocast("cpu"):
        assert compiled(x).dtype == bfloat16
        assert wick.equal(compiled(x), x @ w)
    assert compiled(x).dtype == float32


def test_grad_scaler_leaves_out_steps_with_infinities():
    p = wick.nn.Parameter(wick.ones(2))
    optimizer = wick.optim.SGD([p], lr=1.0)
    scaler = wick.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    scaler.scale((p * 0.5).sum()).backward()
    assert p.grad.tolist() == [2, 2]
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5, 0.5] and scaler.get_scale() == 8
    p.grad = wick.tensor([float("inf"), 1.0])
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5, 0.5] and scaler.get_scale() == 4

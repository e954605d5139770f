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


def dtypes_of(calls, device="cpu"):
    """The dtypes of results for float32 and for bfloat16 arguments, under autocast."""
    found = {}
    for name, call in calls.items():
        with wick.autocast(device, bfloat16):
            found[name] = call(lambda t: t.to(device)).dtype, call(lambda t: t.to(device, bfloat16)).dtype
    return found


F = wick.nn.functional
ROWS, IMAGES, VOLUMES = wick.rand(3, 4) + 0.1, wick.rand(2, 4, 6, 6), wick.rand(1, 2, 4, 4, 4)


def test_convolutions_compute_in_the_small_dtype():
    lines = wick.rand(2, 4, 8)
    calls = {
        "1d": lambda to: F.conv1d(to(lines), to(wick.rand(3, 4, 3))),
        "2d": lambda to: F.conv2d(to(IMAGES), to(wick.rand(3, 4, 3, 3)), to(wick.rand(3))),
        "same": lambda to: F.conv2d(to(IMAGES), to(wick.rand(3, 4, 3, 3)), padding="same"),
        "3d": lambda to: F.conv3d(to(VOLUMES), to(wick.rand(3, 2, 3, 3, 3))),
        "transposed": lambda to: F.conv_transpose2d(to(IMAGES), to(wick.rand(4, 3, 3, 3))),
    }
    assert set(dtypes_of(calls).values()) == {(bfloat16, bfloat16)}
    net = wick.nn.Sequential(wick.nn.Conv2d(4, 3, 3), wick.nn.BatchNorm2d(3), wick.nn.ReLU())
    compiled = wick.compile(net)
    for f in (net, compiled, compiled):
        with wick.autocast("cpu", bfloat16):
            y = f(IMAGES)
        y.float().sum().backward()
        assert y.dtype == bfloat16 and net[0].weight.grad.dtype == float32


def test_recurrent_layers_compute_in_the_small_dtype():
    for layer in (wick.nn.LSTM(4, 5, 2), wick.nn.GRU(4, 5), wick.nn.RNN(4, 5, bidirectional=True)):
        for x in (wick.rand(3, 2, 4), wick.rand(3, 2, 4).bfloat16()):
            with wick.autocast("cpu", bfloat16):
                y, state = layer(x)
            y.float().sum().backward()
            assert y.dtype == bfloat16 and layer.weight_ih_l0.grad.dtype == float32
    with pytest.raises(ValueError, match="does not match weight dtype"):
        layer(x)


def test_what_needs_digits_is_float32():
    calls = {
        "avg_pool3d": lambda to: F.avg_pool3d(to(VOLUMES), 2),
        "max_pool3d": lambda to: F.max_pool3d(to(VOLUMES), 2),
        "nll": lambda to: F.nll_loss(to(ROWS), wick.tensor([0, 1, 2])),
        "bce": lambda to: F.binary_cross_entropy(to(ROWS).sigmoid(), to(ROWS).sigmoid()),
        "quantile": lambda to: wick.quantile(to(ROWS), 0.5),
    }
    assert set(dtypes_of(calls).values()) == {(float32, float32)}
    with wick.autocast("cpu", bfloat16):
        assert (
            wick.fft.fft(ROWS.bfloat16()).dtype == wick.polar(ROWS.bfloat16(), ROWS.bfloat16()).dtype == wick.complex64
        )


@pytest.mark.parametrize("name", ["margin_ranking_loss", "cosine_embedding_loss", "triplet_margin_loss"])
def test_losses_of_three_tensors_are_wide(name):
    a, b = wick.randn(4, 3).bfloat16(), wick.randn(4, 3).bfloat16()
    target = {"margin_ranking_loss": wick.ones(4, 3), "cosine_embedding_loss": wick.ones(4)}.get(name, -a)
    loss = getattr(F, name)
    with wick.autocast("cpu", dtype=wick.bfloat16):
        assert wick.equal(loss(a, b, target), loss(a.float(), b.float(), target.float()))
    assert wick.compile(loss, fullgraph=True)(a.float(), b.float(), target.float()).dtype == wick.float32


def test_factorisations_are_wide():
    x = wick.randn(4, 4)
    with wick.autocast("cpu", dtype=wick.bfloat16):
        product = x @ x.mT + wick.eye(4).bfloat16()
        assert product.dtype == wick.bfloat16
        wide = product.float()
        for f in (wick.linalg.qr, wick.linalg.svd, wick.linalg.eigh, wick.linalg.inv, wick.linalg.cond, wick.pinverse):
            given, wanted = f(product), f(wide)
            for a, b in zip(*((t,) if isinstance(t, wick.Tensor) else t for t in (given, wanted)), strict=True):
                assert a.dtype == wick.float32 and wick.equal(a, b)
        assert wick.linalg.lstsq(product, x).solution.dtype == wick.float32
        assert wick.svd_lowrank(x, 2)[1].dtype == wick.float32


def test_what_stays_as_it_is():
    x, v = wick.randn(4, 4), wick.randn(4)
    with wick.autocast("cpu", dtype=wick.bfloat16):
        assert wick.mv(x, v).dtype == wick.inner(v, v).dtype == wick.float32
        assert wick.mv(x.bfloat16(), v.bfloat16()).dtype == wick.bfloat16
    image = x.reshape(1, 1, 4, 4).bfloat16()
    grid = wick.zeros(1, 2, 2, 2).bfloat16()
    with wick.autocast("cpu", dtype=wick.bfloat16):
        assert F.grid_sample(image, grid, align_corners=False).dtype == wick.float32
        pooled, places = F.max_pool2d(image, 2, return_indices=True)
        assert pooled.dtype == wick.bfloat16 and F.max_unpool2d(pooled, places, 2).dtype == wick.float32

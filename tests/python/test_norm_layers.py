"""Normalisation layers: running statistics, lazy sizes, layouts, derivatives, capture. Values: tests/parity/."""

import copy
import os
import pickle
import re
import subprocess
import sys

import pytest

import wick
from wick import nn
from wick.nn import functional as F


def images(*shape):
    wick.manual_seed(0)
    return wick.randn(shape)


def test_running_statistics():
    norm, x = nn.BatchNorm2d(2, momentum=0.5), images(3, 2, 4, 4) * 3 + 1
    y = norm(x)
    flat = x.transpose(0, 1).reshape(2, -1)
    assert wick.allclose(norm.running_mean, 0.5 * flat.mean(1), atol=1e-6)
    assert wick.allclose(norm.running_var, 0.5 + 0.5 * flat.var(1), atol=1e-5)
    assert wick.allclose(y.mean((0, 2, 3)), wick.zeros(2), atol=1e-6)
    norm.eval()
    before = norm.running_mean.clone()
    norm(x)
    assert wick.equal(norm.running_mean, before)
    assert norm.num_batches_tracked.item() == 1


def test_average_over_all_batches():
    norm, batches = nn.BatchNorm1d(3, momentum=None), [images(5, 3) + i for i in range(3)]
    for batch in batches:
        norm(batch)
    assert wick.allclose(norm.running_mean, sum(b.mean(0) for b in batches) / 3, atol=1e-6)


def test_state_dict_names():
    assert list(nn.BatchNorm1d(2).state_dict()) == [
        "weight",
        "bias",
        "running_mean",
        "running_var",
        "num_batches_tracked",
    ]
    assert list(nn.BatchNorm1d(2, affine=False, track_running_stats=False).state_dict()) == []
    assert nn.BatchNorm1d(2).state_dict()._metadata == {"": {"version": 2}}


def test_layout_is_kept():
    x = images(2, 4, 3, 3).to(memory_format=wick.channels_last)
    for layer in (nn.BatchNorm2d(4), nn.GroupNorm(2, 4)):
        assert layer(x).is_contiguous(memory_format=wick.channels_last)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, w: F.instance_norm(x, weight=w, bias=w),
        lambda x, w: F.group_norm(x, 2, w, w),
        lambda x, w: F.rms_norm(x.transpose(1, 2), (4,), w),
        lambda x, w: F.local_response_norm(x * w[:, None], 3, alpha=0.5),
        lambda x, w: nn.CrossMapLRN2d(3, alpha=0.5)((x * w[:, None])[..., None]),
    ],
)
def test_derivatives(f):
    x, w = images(2, 4, 3).double().requires_grad_(), wick.ones(4, dtype=wick.float64).requires_grad_()
    assert wick.autograd.gradcheck(f, (x, w))
    assert wick.autograd.gradgradcheck(f, (x, w))


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm2d(4), nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.GroupNorm(2, 4),
     nn.LocalResponseNorm(3)],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
def test_compiled_steps_have_eager_bits(layer):
    other = copy.deepcopy(layer)
    compiled = wick.compile(other, fullgraph=True)
    for step in range(3):
        x, again = images(2, 4, 3, 3).requires_grad_(), images(2, 4, 3, 3).requires_grad_()
        a, b = layer(x + step), compiled(again + step)
        (a * a).sum().backward()
        (b * b).sum().backward()
        assert wick.equal(a, b)
        assert wick.equal(x.grad, again.grad)
    for mine, theirs in zip(layer.state_dict().values(), other.state_dict().values(), strict=True):
        assert wick.equal(mine, theirs)


def test_shapes_on_meta():
    assert nn.BatchNorm2d(4, device="meta")(wick.ones(2, 4, 3, 3, device="meta")).shape == (2, 4, 3, 3)
    assert F.instance_norm(wick.ones(2, 4, 3, device="meta")).shape == (2, 4, 3)


def test_convert_to_sync_batch_norm():
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    model[1][0](images(4, 3))
    state = {k: v.clone() for k, v in model.state_dict().items()}
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    assert type(model[1][0]) is nn.SyncBatchNorm
    assert all(wick.equal(v, state[k]) for k, v in model.state_dict().items())
    assert model(images(4, 2)).shape == (4, 3)


def test_lazy_layers_become_plain_ones():
    for lazy, plain, shape in (
        (nn.LazyBatchNorm1d, nn.BatchNorm1d, (5, 3)),
        (nn.LazyBatchNorm3d, nn.BatchNorm3d, (5, 3, 2, 2, 2)),
        (nn.LazyInstanceNorm2d, nn.InstanceNorm2d, (5, 3, 2, 2)),
    ):
        layer = lazy()
        assert type(layer.weight) is nn.UninitializedParameter
        assert nn.parameter.is_lazy(layer.running_mean)
        layer(images(*shape))
        assert type(layer) is plain
        assert layer.num_features == 3
        assert type(layer.weight) is nn.Parameter
        assert len(layer._forward_pre_hooks) == len(layer._load_state_dict_pre_hooks) == 0
        assert layer.weight.grad_fn is None


def test_lazy_layers_are_copied_saved_and_converted():
    layer = nn.LazyLinear(2)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert nn.parameter.is_lazy(other.weight)
        assert other(wick.ones(1, 3)).shape == (1, 2)
    assert layer.double().weight.dtype == wick.float64
    assert layer(wick.ones(1, 3, dtype=wick.float64)).dtype == wick.float64
    assert [p.shape for p in layer.parameters()] == [(2, 3), (2,)]


def test_a_parameter_without_a_size_cannot_be_used():
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        nn.LazyLinear(2).weight + 1


def test_native_group_norm_of_other_sizes():
    """N, C and HxW say how the input's elements are grouped; the input keeps its shape."""
    x = wick.arange(24.0).view(2, 4, 3).sin().requires_grad_()
    y, mean, inverse = wick.native_group_norm(x, None, None, 1, 4, 6, 2, 1e-5)
    expected = wick.nn.functional.group_norm(x.view(1, 4, 6), 2).view(2, 4, 3)
    assert wick.equal(y, expected) and mean.shape == inverse.shape == (1, 2)
    wick.testing.assert_close(mean, x.view(1, 2, 12).mean(-1))
    with pytest.raises(RuntimeError, match=r"Expected X.numel\(\) == N \* C \* HxW to be true, but got false"):
        wick.native_group_norm(x, None, None, 3, 4, 3, 2, 1e-5)


def test_statistics_of_native_group_norm_have_derivatives():
    x = wick.arange(12.0, dtype=wick.float64).view(1, 4, 3).cos().requires_grad_()
    assert wick.autograd.gradcheck(lambda t: wick.native_group_norm(t, None, None, 1, 4, 3, 2, 1e-5), (x,))


def test_statistics_of_small_floats_beside_float_parameters():
    for dtype, parameters, expected in (
        (wick.bfloat16, wick.float32, wick.float32), (wick.bfloat16, wick.bfloat16, wick.bfloat16),
    ):  # fmt: skip
        w = wick.ones(4, dtype=parameters)
        results = wick.native_layer_norm(wick.ones(3, 4, dtype=dtype), (4,), w, w, 1e-5)
        assert [t.dtype for t in results] == [dtype, expected, expected]


def test_batch_norm_takes_parameters_of_any_shape():
    x = wick.arange(24.0).view(4, 3, 2).sin()
    w, b = wick.tensor([1.0, 2.0, 3.0]), wick.tensor([0.5, -1.0, 0.0])
    expected = wick.batch_norm(x, w, b, None, None, True, 0.1, 1e-5, False)
    assert wick.equal(wick.batch_norm(x, w, b.view(1, 3), None, None, True, 0.1, 1e-5, False), expected)


def test_rms_norm_of_too_few_dims():
    with pytest.raises(ValueError, match="Input tensor must have at least 2 dimensions, but got 1"):
        wick.nn.functional.rms_norm(wick.ones(3), (2, 3))


def nests_of(program):
    """The nests that an eager program runs, by operator, in order."""
    program = "import wick as torch\nF = torch.nn.functional\n" + program
    environment = dict(os.environ, WICK_LOGS="loop")
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    blocks = done.stderr[done.stderr.index("begin") :].split("[wick:loop] ")[1:]
    return {name: text for name, _, text in (block.partition("\n") for block in blocks)}


def test_rms_norm_is_one_nest_and_its_derivative_two():
    """Also of small floats, with a weight of that dtype or of float."""
    for kinds in (("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "float32")):
        program = """
import sys
x, w = (torch.empty(8, 16, dtype=torch.{}), torch.empty(16, dtype=torch.{}))
g = torch.empty_like(x)
x.requires_grad_(), w.requires_grad_()
print("begin", file=sys.stderr)
F.rms_norm(x, (16,), w).backward(g)
"""
        expected = ["_fused_rms_norm", "_rms_norm_backward_input", "_rms_norm_backward_weight"]
        assert list(nests_of(program.format(*kinds))) == expected


@pytest.mark.parametrize("layout", ["contiguous_format", "channels_last"])
@pytest.mark.parametrize("layer", ["BatchNorm2d(6)", "GroupNorm(2, 6)", "InstanceNorm2d(6, affine=True)"])
def test_images_of_small_floats_are_read_and_written_as_they_are(layer, layout):
    """In training, with parameters of float: no kernel goes over an image of floats, or makes one."""
    nests = nests_of(f"""
import sys
layer, x = torch.nn.{layer}, torch.ones(4, 6, 5, 5, dtype=torch.bfloat16).to(memory_format=torch.{layout})
g = torch.empty_like(x)
x.requires_grad_()
print("begin", file=sys.stderr)
layer(x).backward(g)
""")
    assert "_to_copy" not in nests
    maps = nests["_native_group_norm" if "Group" in layer else "_native_batch_norm"], nests["_channel_line"]
    for text in maps:
        assert re.search(r"bfloat16\[\d\] written", text) and not re.search(r"float32\[\d\] written", text)
    assert nests["_channel_sums"].count(": bfloat16[") == 2 and nests["_channel_moments"].count(": bfloat16[") == 1


@pytest.mark.parametrize("sizes", [(0, 4, 3), (0, 4, 0), (2, 4, 0)])
def test_group_norm_of_no_elements(sizes):
    x = wick.randn(sizes, requires_grad=True)
    y, mean, inverse = wick.native_group_norm(x, wick.ones(4), wick.zeros(4), sizes[0], 4, sizes[2], 2, 1e-5)
    assert y.shape == x.shape and mean.shape == inverse.shape == (sizes[0], 2)
    y.sum().backward()
    assert x.grad.shape == x.shape

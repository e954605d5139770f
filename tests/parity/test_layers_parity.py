"""Layers of nn against PyTorch: weights from a seed, state dicts, printed forms, outputs, gradients, errors."""

import pytest
from compare import same

TOLERANCE = 2e-5  # f32 sums in another order


def trained(t, layer, *inputs, steps=2):
    """Runs a layer in training and in evaluation: outputs, gradients, its state and its printed form."""
    seen = [repr(layer)]
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    for step in range(steps + 1):
        layer.train(step < steps)
        result = layer(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        sum((r * t.linspace(-1, 1, r.numel()).view(r.shape)).sum() for r in results).backward()
        seen += [results, [x.grad for x in inputs], [p.grad for p in layer.parameters()]]
    return seen, list(layer.state_dict()), layer.state_dict(), t.rand(1)


def case(make, *shapes):
    return pytest.param(make, shapes, id=f"{make} {shapes}")


NORMS = [
    case("BatchNorm1d(4)", (3, 4)),
    case("BatchNorm1d(4, momentum=None)", (3, 4, 5)),
    case("BatchNorm1d(4, affine=False)", (3, 4, 5)),
    case("BatchNorm1d(4, track_running_stats=False)", (3, 4, 5)),
    case("BatchNorm1d(4, bias=False, eps=0.1)", (3, 4, 5)),
    case("BatchNorm2d(3)", (2, 3, 4, 5)),
    case("BatchNorm3d(3)", (2, 3, 4, 5, 2)),
    case("SyncBatchNorm(4)", (3, 4, 5)),
    case("InstanceNorm1d(4, affine=True, track_running_stats=True)", (3, 4, 5)),
    case("InstanceNorm1d(4)", (4, 5)),
    case("InstanceNorm2d(4, track_running_stats=True, momentum=0.3)", (3, 4, 5, 2)),
    case("InstanceNorm3d(4, affine=True, bias=False)", (4, 5, 2, 2)),
    case("GroupNorm(2, 4)", (3, 4, 5)),
    case("LocalResponseNorm(3, alpha=0.3)", (3, 4, 5)),
    case("LazyBatchNorm2d()", (3, 4, 5, 2)),
    case("LazyInstanceNorm1d()", (3, 4, 5)),
    case("LazyLinear(3)", (3, 4, 5)),
]


@pytest.mark.parametrize(("make", "shapes"), NORMS)
def test_normalisations(make, shapes):
    def run(t):
        layer = eval(f"nn.{make}", {"nn": t.nn})
        return trained(t, layer, *(t.randn(shape) for shape in shapes))

    same(run, tolerance=TOLERANCE)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_cross_map_response(size):
    """Values alone: PyTorch's backward of this layer is not its derivative."""
    same(lambda t: t.nn.CrossMapLRN2d(size, alpha=0.3)(t.rand(2, 7, 3, 2)), tolerance=TOLERANCE)


def without(t, layer, *names):
    state = layer.state_dict()
    for name in names:
        del state[name]
    return layer.load_state_dict(state)


ERRORS = {
    "rank 1": lambda t: t.nn.BatchNorm1d(3)(t.ones(3)),
    "rank 2": lambda t: t.nn.BatchNorm2d(3)(t.ones(2, 3)),
    "rank 3": lambda t: t.nn.BatchNorm3d(3)(t.ones(2)),
    "sync rank": lambda t: t.nn.SyncBatchNorm(3)(t.ones(3)),
    "channels": lambda t: t.nn.BatchNorm1d(3)(t.ones(2, 4)),
    "counter is missing": lambda t: without(t, t.nn.BatchNorm1d(3), "num_batches_tracked"),
    "instance rank": lambda t: t.nn.InstanceNorm1d(3)(t.ones(5)),
    "instance one": lambda t: t.nn.InstanceNorm1d(3)(t.ones(2, 3, 1)),
    "instance channels": lambda t: t.nn.InstanceNorm1d(3, affine=True)(t.ones(2, 4, 5)),
    "instance channels unused": lambda t: t.nn.InstanceNorm1d(3)(t.ones(2, 4, 5)),
    "instance without statistics": lambda t: t.nn.functional.instance_norm(t.ones(2, 3, 4), use_input_stats=False),
    "instance statistics": lambda t: t.nn.InstanceNorm1d(3).load_state_dict(
        dict(t.nn.InstanceNorm1d(3, track_running_stats=True).state_dict())
    ),
    "groups": lambda t: t.nn.functional.group_norm(t.ones(2, 4, 3), 3),
    "no groups": lambda t: t.group_norm(t.ones(2, 4, 3), 0),
    "group weight": lambda t: t.group_norm(t.ones(2, 4, 3), 2, t.ones(3)),
    "rms shape": lambda t: t.rms_norm(t.ones(2, 4, 3), (4,)),
    "rms no shape": lambda t: t.rms_norm(t.ones(2, 4, 3), ()),
    "response rank": lambda t: t.nn.LocalResponseNorm(2)(t.ones(3, 3)),
    "cross map rank": lambda t: t.nn.CrossMapLRN2d(2)(t.ones(3, 3)),
    "lazy shape": lambda t: t.nn.LazyLinear(3).weight.shape,
    "lazy rank": lambda t: t.nn.LazyBatchNorm1d()(t.ones(3)),
    "lazy into plain": lambda t: t.nn.Linear(2, 3).load_state_dict(t.nn.LazyLinear(3).state_dict()),
    "lazy shared": lambda t: t.nn.LazyLinear(3).share_memory(),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    same(ERRORS[name])


def test_lazy_modules_take_sizes_from_a_state_dict():
    def run(t):
        layer = t.nn.LazyLinear(3)
        before = repr(layer), repr(layer.weight), layer.has_uninitialized_params()
        loaded = layer.load_state_dict(t.nn.Linear(2, 3).state_dict())
        return before, loaded, layer, layer.weight, layer(t.ones(1, 2)).shape, layer

    same(lambda t: repr(run(t)))


def test_state_dicts_of_the_first_version():
    def run(t):
        norm = t.nn.BatchNorm1d(2)
        norm.num_batches_tracked.fill_(7)
        state = {k: v + 1 for k, v in norm.state_dict().items() if k != "num_batches_tracked"}
        return norm.load_state_dict(state), norm.state_dict()

    same(run)

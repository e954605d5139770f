"""nn: attribute and call path, registration, hooks, state dicts, containers, layers, initialisation."""

import copy
import gc
import inspect
import math
import pickle
import weakref
from collections import OrderedDict

import pytest

import wick
from wick import nn
from wick.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("count", wick.zeros(1))
        self.register_buffer("scratch", wick.zeros(1), persistent=False)

    def forward(self, x, *, scale=1):
        return self.layer(x) * scale


# ---- attributes ----


def test_registered_names_are_attributes():
    net = Net()
    assert net.layer is net._modules["layer"]
    assert net.layer.weight is net.layer._parameters["weight"]
    assert net.count is net._buffers["count"]
    assert "layer" not in net.__dict__
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nope'"):
        _ = net.nope


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (lambda: nn.Parameter(wick.ones(1)), "cannot assign parameters before Module.__init__"),
        (lambda: nn.ReLU(), "cannot assign module before Module.__init__"),
    ],
)
def test_assignment_before_init(value, text):
    class Early(nn.Module):
        def __init__(self):
            self.plain = 1
            self.x = value()

    with pytest.raises(AttributeError, match=text):
        Early()


def test_assignment_moves_a_name_between_kinds():
    net = Net()
    net.x = 1
    net.x = nn.Parameter(wick.ones(1))
    assert "x" in net._parameters and "x" not in net.__dict__
    net.x = None
    assert net._parameters["x"] is None
    with pytest.raises(TypeError, match=r"as parameter 'x' \(torch.nn.Parameter or None expected\)"):
        net.x = 3
    net.count = wick.ones(2)
    assert net._buffers["count"].shape == (2,)
    with pytest.raises(TypeError, match="as buffer 'count'"):
        net.count = "text"
    with pytest.raises(TypeError, match="as child module 'layer'"):
        net.layer = 3
    net.scratch = nn.ReLU()
    assert "scratch" not in net._buffers and "scratch" not in net._non_persistent_buffers_set
    del net.scratch
    assert not hasattr(net, "scratch")


def test_object_setattr_goes_round_registration():
    net = Net()
    object.__setattr__(net, "hidden", nn.ReLU())
    assert "hidden" not in net._modules and isinstance(net.hidden, nn.ReLU)


def test_own_getattr_and_setattr():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

        def __setattr__(self, name, value):
            super().__setattr__(name, value)

    wrapper = Wrapper(nn.Linear(3, 2))
    assert wrapper.in_features == 3
    assert wrapper.weight is wrapper.inner.weight
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nope'"):
        _ = wrapper.nope


def test_properties_and_class_changes_are_seen():
    class Changing(nn.Module):
        @property
        def size(self):
            raise AttributeError("from inside")

    module = Changing()
    with pytest.raises(AttributeError, match="from inside"):
        _ = module.size
    Changing.size = 4
    assert module.size == 4
    del Changing.size
    module.size = nn.Parameter(wick.ones(1))
    assert isinstance(module.size, nn.Parameter)


def test_init_arguments():
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        nn.Module(1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'a'"):
        nn.Module(a=1)

    class Mixin:
        def __init__(self, **kwargs):
            self.got = kwargs

    class Both(nn.Module, Mixin):
        call_super_init = True

    assert Both(a=1).got == {"a": 1}


# ---- calls and hooks ----


def test_call_passes_everything_on():
    class Echo(nn.Module):
        def forward(self, *args, key=0, **kwargs):
            return args, key, kwargs

    echo = Echo()
    assert echo() == ((), 0, {})
    assert echo(*range(12), key=3, z=4) == (tuple(range(12)), 3, {"z": 4})


def test_call_sees_replacements():
    class Plain(nn.Module):
        def forward(self, x):
            return x

    module = Plain()
    assert module(1) == 1
    Plain.__call__ = lambda self, x: "call"
    assert module(1) == "call"
    del Plain.__call__
    Plain.forward = lambda self, x: "class"
    assert module(1) == "class"
    module.forward = lambda x: "instance"
    assert module(1) == "instance"
    Plain._call_impl = lambda self, x: "impl"
    assert module(1) == "impl"
    with pytest.raises(NotImplementedError, match='missing the required "forward" function'):
        nn.Module()(1)


def test_hooks_run_in_order():
    log = []
    net = Net()
    net.register_forward_pre_hook(lambda m, args: log.append("pre"))
    net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"scale": 3}), with_kwargs=True, prepend=True)
    net.register_forward_hook(lambda m, args, kwargs, out: log.append(kwargs), with_kwargs=True)
    handle = net.register_forward_hook(lambda m, args, out: out * 2, prepend=True)
    x = wick.ones(1, 3)
    assert wick.equal(net(x), net.layer(x) * 3 * 2)
    assert log == ["pre", {"scale": 3}]
    handle.remove()
    assert wick.equal(net(x), net.layer(x) * 3)


def test_always_called_hook():
    log = []
    net = Net()
    net.register_forward_hook(lambda m, args, out: log.append(out), always_call=True)
    with pytest.raises(Exception):  # noqa: B017  whatever the layer raises
        net("no tensor")
    assert log == [None]


def test_global_hooks():
    seen = []
    with nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
        Net()(wick.ones(1, 3))
    assert seen == ["Linear", "Net"]
    Net()(wick.ones(1, 3))
    assert len(seen) == 2


def test_marks_of_global_hooks_are_not_those_of_a_modules_own():
    model, seen = nn.Linear(2, 2), []
    everywhere = nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append("all"))
    own = model.register_forward_hook(lambda m, args, kwargs, out: seen.append("own"), with_kwargs=True)
    model(wick.ones(2))
    everywhere.remove()
    own.remove()
    assert seen == ["all", "own"]


def test_a_handle_that_was_used_takes_no_other_hook():
    model, seen = nn.Linear(2, 2), []
    first = model.register_forward_hook(lambda *args: seen.append(1))
    first.remove()
    model.register_forward_hook(lambda *args: seen.append(2))
    first.remove()
    model(wick.ones(2))
    assert seen == [2]


def test_registration_hooks():
    names = []
    register = nn.modules.module.register_module_parameter_registration_hook
    with register(lambda module, name, value: names.append(name)):
        nn.Linear(2, 2)
    assert names == ["weight", "bias"]


def test_full_backward_hooks():
    seen = []
    layer = nn.Linear(3, 2)
    layer.register_full_backward_pre_hook(lambda m, grad_out: (grad_out[0] * 2,))
    layer.register_full_backward_hook(lambda m, grad_in, grad_out: seen.append((grad_in[0], grad_out[0])))
    layer.register_full_backward_hook(lambda m, grad_in, grad_out: (grad_in[0] * 10,))
    x = wick.ones(1, 3, requires_grad=True)
    layer(x).sum().backward()
    grad_in, grad_out = seen[0]
    assert wick.equal(grad_out, wick.full((1, 2), 2.0))
    assert wick.equal(x.grad, grad_in * 10)
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        layer.register_backward_hook(lambda *a: None)


def test_full_backward_hook_without_input_gradients():
    seen = []
    layer = nn.Linear(3, 2)
    layer.register_full_backward_hook(lambda m, grad_in, grad_out: seen.append(grad_in))
    layer(wick.ones(1, 3)).sum().backward()
    assert seen == [(None,)]


# ---- lifetime ----


def test_collected_weakly_referenced_copied_pickled():
    net = Net()
    net.circle = [net]
    reference = weakref.ref(net)
    del net
    gc.collect()
    assert reference() is None

    net = Net()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert wick.equal(other.layer.weight, net.layer.weight)
        assert other.layer.weight is not net.layer.weight
        assert isinstance(other.layer.weight, nn.Parameter)
    assert copy.copy(net).layer is net.layer


def test_classes_are_collected():
    class Local(nn.Module):
        def forward(self, x):
            return x

    Local()(1)
    reference = weakref.ref(Local)
    del Local
    gc.collect()
    assert reference() is None


# ---- traversal, conversion, state ----


def test_names():
    net = nn.Sequential(Net(), nn.Linear(2, 2))
    assert [n for n, _ in net.named_parameters()] == ["0.layer.weight", "0.layer.bias", "1.weight", "1.bias"]
    assert [n for n, _ in net.named_buffers()] == ["0.count", "0.scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "0", "0.layer", "1"]
    assert net.get_parameter("0.layer.bias") is net[0].layer.bias
    assert net.get_submodule("0.layer") is net[0].layer
    with pytest.raises(AttributeError, match="has no attribute `nope`"):
        net.get_submodule("0.nope")
    shared = nn.ModuleList([net[1], net[1]])
    assert len(list(shared.parameters())) == 2
    assert len(list(shared.named_parameters(remove_duplicate=False))) == 4


def test_conversion_keeps_parameters():
    net = Net()
    weight = net.layer.weight
    net.layer(wick.ones(1, 3)).sum().backward()
    net.double()
    assert net.layer.weight is weight
    assert weight.dtype == weight.grad.dtype == net.count.dtype == wick.float64
    with pytest.raises(TypeError, match="only accepts floating point"):
        net.to(wick.int64)


def test_train_and_gradients():
    net = Net()
    assert not net.eval().layer.training and net.train().layer.training
    net.layer(wick.ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert wick.equal(net.layer.bias.grad, wick.zeros(2))
    net.zero_grad()
    assert net.layer.bias.grad is None
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


def test_state_dict_round_trip():
    net, other = Net(), Net()
    state = net.state_dict()
    assert list(state) == ["count", "layer.weight", "layer.bias"]
    assert isinstance(state, OrderedDict) and state._metadata == {"": {"version": 1}, "layer": {"version": 1}}
    assert not state["layer.weight"].requires_grad
    assert str(other.load_state_dict(state)) == "<All keys matched successfully>"
    assert wick.equal(other.layer.weight, net.layer.weight)
    other.load_state_dict(net.state_dict(keep_vars=True), assign=True)
    assert other.layer.weight is net.layer.weight


def test_load_state_dict_errors():
    net = Net()
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict({"layer.weight": wick.ones(1), "count": wick.zeros(1), "more.x": wick.ones(1)})
    assert str(caught.value) == (
        'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "layer.bias". '
        '\n\tUnexpected key(s) in state_dict: "more.x". '
        "\n\tsize mismatch for layer.weight: copying a param with shape torch.Size([1]) from checkpoint, "
        "the shape in current model is torch.Size([2, 3])."
    )
    result = net.load_state_dict({"more": wick.ones(1)}, strict=False)
    assert result.unexpected_keys == ["more"] and "layer.bias" in result.missing_keys


def test_state_dict_hooks_and_extra_state():
    class Extra(nn.Module):
        def get_extra_state(self):
            return {"a": 1}

        def set_extra_state(self, state):
            self.got = state

    net = nn.Sequential(Extra())
    net.register_state_dict_post_hook(lambda module, state, prefix, metadata: state.update(more=1))
    net.register_load_state_dict_pre_hook(lambda module, state, *rest: state.pop("more"))
    state = net.state_dict()
    assert state == {"0._extra_state": {"a": 1}, "more": 1}
    net.load_state_dict(state)
    assert net[0].got == {"a": 1}


# ---- containers ----


def test_sequential():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(net) == 3 and isinstance(net[-1], nn.Linear) and len(net[:2]) == 2
    del net[1]
    assert list(net._modules) == ["0", "1"]
    net.insert(1, nn.Tanh()).append(nn.ReLU())
    assert [type(m).__name__ for m in net] == ["Linear", "Tanh", "Linear", "ReLU"]
    assert isinstance(net.pop(-1), nn.ReLU)
    assert len(net + net) == 6 and len(net * 2) == 6
    named = nn.Sequential(OrderedDict(first=nn.ReLU()))
    assert isinstance(named.first, nn.ReLU)


def test_lists_and_dicts():
    modules = nn.ModuleList([nn.ReLU()])
    modules += [nn.Tanh(), nn.Tanh()]
    assert repr(modules) == "ModuleList(\n  (0): ReLU()\n  (1-2): 2 x Tanh()\n)"
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Tanh()
    assert list(table) == ["a", "b"] and "a" in table and isinstance(table.pop("a"), nn.ReLU)
    values = nn.ParameterList([wick.ones(2), 3])
    assert isinstance(values[0], nn.Parameter) and values[1] == 3 and len(list(values.parameters())) == 1
    named = nn.ParameterDict({"b": wick.ones(1), "a": wick.ones(1)})
    assert list(named) == ["a", "b"] and set(named.state_dict()) == {"a", "b"}
    assert list((named | {"c": wick.ones(1)}).keys()) == ["a", "b", "c"]


def test_repr():
    assert repr(nn.Sequential(Net())) == (
        "Sequential(\n  (0): Net(\n    (layer): Linear(in_features=3, out_features=2, bias=True)\n  )\n)"
    )


# ---- parameters ----


def test_parameter():
    parameter = nn.Parameter(wick.ones(2))
    assert parameter.requires_grad and parameter.is_leaf and isinstance(parameter, wick.Tensor)
    assert type(parameter + 1) is wick.Tensor
    assert repr(parameter) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert isinstance(copy.deepcopy(parameter), nn.Parameter)
    assert not nn.Parameter(wick.ones(2), False).requires_grad


def test_buffer():
    net = nn.Module()
    net.kept = nn.Buffer(wick.ones(1))
    net.lost = nn.Buffer(wick.ones(1), persistent=False)
    assert list(net.state_dict()) == ["kept"] and list(dict(net.named_buffers())) == ["kept", "lost"]


# ---- layers and functions ----


def test_rows_that_are_looked_up_get_a_bounded_norm():
    """Values of PyTorch 2.13; one write, whichever rows are looked up how often."""
    expected = {
        wick.float32: [0.10945741087198257, 0.919438898563385, -0.4597194492816925, 0.3502620458602905],
        wick.bfloat16: [0.109375, 0.91796875, -0.458984375, 0.349609375],
    }
    for dtype, row in expected.items():
        weight = ((wick.arange(40.0) * 0.37 % 1 * 4 - 2).reshape(8, 5)).to(dtype)
        before, version = weight.clone(), weight._version
        looked_up = F.embedding(wick.tensor([[1, 3, 3], [0, 7, 1]]), weight, max_norm=1.5)
        assert weight[3].tolist()[:4] == row
        assert wick.equal(looked_up[0, 1], weight[3])
        assert weight._version == version + 1
        assert wick.equal(weight[2], before[2])
    with pytest.raises(IndexError):
        F.embedding(wick.tensor([9]), wick.ones(3, 2), max_norm=1.0)


def test_linear_and_embedding():
    layer = nn.Linear(3, 2)
    x = wick.randn(5, 3)
    assert wick.allclose(layer(x), x @ layer.weight.t() + layer.bias)
    assert layer.weight.abs().max() <= 1 / math.sqrt(3)
    table = nn.Embedding(4, 2, padding_idx=-1)
    assert table.padding_idx == 3 and wick.equal(table.weight[3], wick.zeros(2))
    assert table(wick.tensor([[0, 3]])).shape == (1, 2, 2)
    assert not nn.Embedding.from_pretrained(wick.ones(2, 2)).weight.requires_grad


def test_dropout():
    x = wick.ones(1000)
    assert F.dropout(x, 0.5, training=False) is x or wick.equal(F.dropout(x, 0.5, training=False), x)
    y = nn.Dropout(0.25)(x)
    kept = y != 0
    assert 650 < kept.sum() < 850 and wick.allclose(y[kept], wick.tensor(1 / 0.75))
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


def test_normalisation():
    x = wick.randn(4, 8)
    y = nn.LayerNorm(8)(x)
    assert wick.allclose(y.mean(-1), wick.zeros(4), atol=1e-6)
    assert wick.allclose(nn.RMSNorm(8)(x).pow(2).mean(-1), wick.ones(4), atol=1e-4)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_losses(reduction):
    x, y = wick.randn(4, 5), wick.randn(4, 5)
    distance = (x - y).abs()
    expected = {"none": lambda t: t, "mean": lambda t: t.mean(), "sum": lambda t: t.sum()}[reduction]
    assert wick.allclose(nn.MSELoss(reduction=reduction)(x, y), expected(distance * distance))
    assert wick.allclose(nn.L1Loss(reduction=reduction)(x, y), expected(distance))
    classes = wick.tensor([1, 0, 4, 2])
    log = x.log_softmax(1)
    picked = -wick.stack([log[i, c] for i, c in enumerate(classes.tolist())])
    assert wick.allclose(nn.CrossEntropyLoss(reduction=reduction)(x, classes), expected(picked))
    assert wick.allclose(nn.NLLLoss(reduction=reduction)(log, classes), expected(picked))


def test_loss_checks():
    with pytest.raises(ValueError, match="foo is not a valid value for reduction"):
        F.mse_loss(wick.ones(1), wick.ones(1), reduction="foo")
    with pytest.warns(UserWarning, match="Using a target size"):
        F.mse_loss(wick.ones(2), wick.ones(1))
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert F.l1_loss(wick.ones(2), wick.zeros(2), size_average=False) == 2


def test_init():
    w = wick.empty(200, 100)
    nn.init.kaiming_normal_(w, nonlinearity="relu")
    assert abs(w.std().item() - math.sqrt(2 / 100)) < 0.01
    nn.init.xavier_uniform_(w)
    assert w.abs().max() <= math.sqrt(6 / 300)
    nn.init.trunc_normal_(w, std=2.0, a=-1.0, b=1.0)
    assert w.abs().max() <= 1
    assert nn.init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    assert wick.equal(nn.init.eye_(wick.empty(2, 3)), wick.tensor([[1.0, 0, 0], [0, 1, 0]]))


def test_clipping():
    a, b = nn.Parameter(wick.zeros(2)), nn.Parameter(wick.zeros(1))
    a.grad, b.grad = wick.tensor([3.0, 0.0]), wick.tensor([4.0])
    assert nn.utils.clip_grad_norm_([a, b], 1.0) == 5
    assert wick.allclose(nn.utils.get_total_norm([a.grad, b.grad]), wick.tensor(1.0))
    nn.utils.clip_grad_value_([a, b], 0.5)
    assert a.grad.max() == 0.5
    vector = nn.utils.parameters_to_vector([a, b])
    nn.utils.vector_to_parameters(vector + 1, [a, b])
    assert wick.equal(b.data, wick.ones(1))


def test_missing_names_say_so():
    with pytest.raises(AttributeError, match="torch.nn.intrinsic exists in PyTorch 2.13 but wick does not have it"):
        _ = nn.intrinsic
    with pytest.raises(AttributeError, match="module 'wick.nn' has no attribute 'Lineer'"):
        _ = nn.Lineer


# (dim, values, gradients): PyTorch 2.13, rounded.
COSINES = [
    (
        -2,
        [[0.85749, 0.91914, 0.94868]] * 2,
        [[[0.24212, 0.13583, 0.08433], [-0.06053, -0.05433, -0.04216]]],
        [[[0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]]],
    ),
    (
        -1,
        [[0.8528, 0.94805], [0.71429, 0.8528]],
        [[[0.28509, 0.07127, -0.14255], [0.07574, 0.00891, -0.05792]]],
        [[[-0.05792, 0.00891, 0.07574]], [[-0.14255, 0.07127, 0.28509]]],
    ),
    (
        0,
        [[0.94868, 0.91914, 0.85749]] * 2,
        [[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]],
        [[[-0.04216, -0.05433, -0.06053]], [[0.08433, 0.13583, 0.24212]]],
    ),
]


@pytest.mark.parametrize(("dim", "values", "first", "second"), COSINES)
def test_cosine_similarity_of_broadcast_operands(dim, values, first, second):
    a = wick.arange(1.0, 7).reshape(1, 2, 3).requires_grad_()
    b = wick.arange(6.0, 0, -1).reshape(2, 1, 3).requires_grad_()
    similarity = nn.functional.cosine_similarity(a, b, dim=dim)
    similarity.sum().backward()
    for found, wanted in ((similarity, values), (a.grad, first), (b.grad, second)):
        assert wick.allclose(found, wick.tensor(wanted), atol=1e-5)


def test_cosine_similarity_of_other_ranks_and_dtypes():
    similarity = nn.functional.cosine_similarity
    assert wick.allclose(similarity(wick.ones(3, 1), wick.full((1, 3), 2.0)), wick.ones(3))
    assert similarity(wick.zeros(2, 3), wick.ones(3), dim=1).tolist() == [0, 0]
    assert similarity(wick.ones(3), wick.ones(2, 2, 3), dim=-3).shape == (2, 3)
    assert similarity(wick.ones(3).double(), wick.ones(3), dim=0).dtype == wick.float64
    assert similarity(wick.ones(3), wick.tensor([1, 2, 3]), dim=0).item() == pytest.approx(0.92582)
    with pytest.raises(RuntimeError, match="expected common dtype to be floating point, yet common dtype is Long"):
        similarity(wick.ones(3, dtype=wick.int64), wick.ones(3, dtype=wick.int64), dim=0)
    x, w = wick.zeros(2, 3, requires_grad=True), wick.ones(3, requires_grad=True)
    similarity(x, w).sum().backward()
    assert wick.allclose(x.grad, wick.full((2, 3), 57735028.0)) and w.grad.tolist() == [0, 0, 0]


# ---- small floats are rounded once, at the end ----


def small_float(*sizes, dtype):
    return (wick.arange(math.prod(sizes)) * 37 % 101 / 33 - 1.3).view(sizes).to(dtype)


@pytest.mark.parametrize("dtype", [wick.bfloat16, wick.float16])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "truths", "scale", "heads", "three", "gradient of mask"])
def test_attention_of_small_floats_rounds_once(dtype, kind):
    q, k, v = (small_float(2, 4, 13, 8, dtype=dtype).roll(n) for n in (0, 3, 5))
    mask, options = small_float(13, 13, dtype=dtype), {}
    if kind == "causal":
        options["is_causal"] = True
    elif kind == "mask":
        options["attn_mask"] = mask
    elif kind == "truths":
        options["attn_mask"] = mask > 0
    elif kind == "scale":
        options["scale"] = 0.3
    elif kind == "heads":
        k, v, options["enable_gqa"] = k[:, :2], v[:, :2], True
    elif kind == "three":
        q, k, v = q[0], k[0], v[0]
    else:
        options["attn_mask"] = mask.requires_grad_() if "mask" in kind else None
    wide = {n: o.detach().float() if hasattr(o, "dtype") and o.dtype == dtype else o for n, o in options.items()}
    attention = nn.functional.scaled_dot_product_attention
    if "gradient" in kind:
        wide["attn_mask"].requires_grad_()

    def call(q, k, v):
        return attention(q, k, v, **options)

    expected = attention(q.float(), k.float(), v.float(), **wide).to(dtype)
    assert wick.equal(call(q, k, v), expected)
    compiled = wick.compile(call, options={"wait": True})
    for _ in range(2):
        assert wick.equal(compiled(q, k, v), expected)
    leaves = [t.detach().clone().requires_grad_() for t in (q, k, v)]
    exact = [t.detach().float().requires_grad_() for t in (q, k, v)]
    call(*leaves).float().square().sum().backward()
    attention(*exact, **wide).to(dtype).float().square().sum().backward()
    for found, wanted in zip(leaves, exact, strict=True):
        assert wick.equal(found.grad, wanted.grad.to(dtype))


@pytest.mark.parametrize("dtype", [wick.bfloat16, wick.float16])
def test_norms_of_small_floats_round_once(dtype):
    x, w, b = small_float(3, 6, 5, dtype=dtype), small_float(6, dtype=dtype), small_float(6, dtype=dtype) + 1
    functional = nn.functional
    calls = [
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        lambda x, w, b: functional.group_norm(x, 3, w),
        lambda x, w, b: functional.group_norm(x, 3, w.float(), b.float()),
        lambda x, w, b: functional.rms_norm(x.transpose(1, 2), (6,), w, eps=1e-5),
        lambda x, w, b: x.norm(2, 1),
        lambda x, w, b: x.norm(3, 1),
        lambda x, w, b: x.std(1),
        lambda x, w, b: x.std(),
    ]
    for call in calls:
        expected = call(x.float(), w.float(), b.float()).to(dtype)
        compiled = wick.compile(call, options={"wait": True})
        for result in (call(x, w, b), compiled(x, w, b), compiled(x, w, b)):
            assert result.dtype == dtype and wick.equal(result, expected)
    with pytest.raises(RuntimeError, match=r"mixed dtype \(CPU\): expect parameter to have scalar type of Float"):
        functional.group_norm(x, 2, w.double(), b.double())
    tiny = wick.tensor([1e-3, 2e-3, 3e-3, 0.0]).to(dtype)
    assert wick.allclose(functional.rms_norm(tiny, (4,)).float(), wick.tensor([0.525, 1.05, 1.5775, 0]), rtol=4e-3)


# ---- odd inputs of functions ----


def test_group_norm_of_nothing_and_its_checks():
    assert F.group_norm(wick.ones(0, 2), 1).shape == (0, 2)
    assert F.group_norm(wick.ones(0, 2, 3), 1, wick.ones(2), wick.ones(2)).shape == (0, 2, 3)
    assert F.group_norm(wick.ones(2, 0, 3), 1).shape == (2, 0, 3)
    channels = "Expected weight to be a vector of size equal to the number of channels in input, but got weight of "
    for arguments, words in (
        ((wick.ones(2, 4), 2, wick.ones(3)), channels + "shape [3] and input of shape [2, 4]"),
        ((wick.ones(2, 4), -1), "Expected num groups to be greater than 0, got -1"),
        ((wick.ones(0, 4), 3), "but got input of shape [0, 4] and num_groups=3"),
    ):
        with pytest.raises(RuntimeError) as error:
            F.group_norm(*arguments)
        assert words in str(error.value)


def test_classes_as_bytes():
    log_p = wick.arange(6.0).view(2, 3).log_softmax(1).requires_grad_()
    target = wick.tensor([0, 1], dtype=wick.uint8)
    loss = F.nll_loss(log_p, target)
    assert loss.item() == pytest.approx(1.90761, abs=1e-5)
    assert F.cross_entropy(log_p, target).item() == pytest.approx(1.90761, abs=1e-5)
    loss.backward()
    assert log_p.grad.tolist() == [[-0.5, 0, 0], [0, -0.5, 0]]
    with pytest.raises(IndexError, match="Target 3 is out of bounds."):
        F.nll_loss(log_p, target * 3)
    with pytest.raises(RuntimeError, match="expected scalar type Long but found Byte"):
        F.nll_loss(wick.ones(2, 3, 2), wick.ones(2, 2, dtype=wick.uint8))
    with pytest.raises(RuntimeError, match="expected target dtype to be Long or Byte, but got Int"):
        F.nll_loss(log_p, target.int())


def test_weights_of_binary_cross_entropy_are_broadcast():
    p, target = wick.full((2, 3), 0.3), wick.ones(2, 3)
    assert F.binary_cross_entropy(p, target, weight=wick.tensor([1.0, 2, 3])).item() == pytest.approx(2.40795, abs=1e-5)
    loss = F.binary_cross_entropy(p, target, weight=wick.full((2, 1), 3.0), reduction="none")
    assert wick.allclose(loss, wick.full((2, 3), 3.61192))
    with pytest.raises(RuntimeError) as error:
        F.binary_cross_entropy(p, target, weight=wick.ones(4))
    with pytest.raises(
        RuntimeError, match="'binary_cross_entropy' is not differentiable with respect to argument 'weight'"
    ):
        F.binary_cross_entropy(p, target, weight=wick.ones(3, requires_grad=True))
    assert str(error.value) == (
        "Attempting to broadcast a dimension of length 4 at -1! Mismatching argument at index 1 had torch.Size([4]); "
        "but expected shape should be broadcastable to [2, 3]"
    )


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ((2, 3), [1.14796, -0.21859, -1.62308, -0.69083, -1.86177, -0.23787]),
        ((3, 2), [1.06991, -0.33986, -1.51272, 0.68037, -0.75298, -1.84976]),
        ((2, 2, 2), [1.12307, -0.21385, -1.58788, 0.41427, -0.78120, -1.53620, -0.08174, 1.01150]),
    ],
)
def test_orthogonal(shape, values):
    wick.manual_seed(0)
    t = wick.empty(shape)
    assert nn.init.orthogonal_(t, 2.0) is t
    assert wick.allclose(t.reshape(-1), wick.tensor(values), atol=2e-5)


def test_orthogonal_rows_of_a_larger_matrix():
    q = nn.init.orthogonal_(wick.empty(60, 97))
    assert wick.allclose(q @ q.t(), wick.eye(60), atol=1e-5)


@pytest.mark.parametrize(
    "p, t, loss, by_p, by_t",
    [
        (0.0, 1.0, 100.0, -1e12, float("inf")),
        (1.0, 0.0, 100.0, 1e12, float("-inf")),
        (1e-30, 0.5, 34.5388, -5e11, 69.0776),
        (0.3, 0.7, 0.94978, -1.90476, 0.84730),
    ],
)
def test_binary_cross_entropy_and_its_gradients_at_the_ends(p, t, loss, by_p, by_t):
    x, target = wick.tensor([p], requires_grad=True), wick.tensor([t], requires_grad=True)
    value = F.binary_cross_entropy(x, target)
    assert value.item() == pytest.approx(loss, rel=1e-5)
    assert value.grad_fn.name() == "BinaryCrossEntropyBackward0"
    given = [g.item() for g in wick.autograd.grad(value, (x, target))]
    assert given == [pytest.approx(by_p, rel=1e-5), pytest.approx(by_t, rel=1e-5)]


def test_binary_cross_entropy_is_of_one_dtype():
    with pytest.raises(RuntimeError, match="Found dtype Double but expected Float"):
        F.binary_cross_entropy(wick.rand(3), wick.rand(3).double())


def test_one_hot_of_a_known_number_of_classes_does_not_end_a_graph():
    def ten_classes(x):
        return F.one_hot(x + 1, 10) * 2

    explained = wick._dynamo.explain(ten_classes)(wick.tensor([3, 5]))
    assert explained.graph_count == 1
    compiled = wick.compile(ten_classes)
    assert compiled(wick.tensor([0, 8])).argmax(-1).tolist() == [1, 9]
    for bad, words in ((9, "Class values must be smaller than num_classes."), (-2, "must be non-negative.")):
        with pytest.raises(RuntimeError, match=words):
            compiled(wick.tensor([0, bad]))


def test_glu_is_one_node_and_rounds_once():
    x = wick.tensor([1.5, -0.375], dtype=wick.bfloat16, requires_grad=True)
    y = F.glu(x)
    assert (y.grad_fn.name(), y.item()) == ("GluBackward0", 0.609375)
    with pytest.raises(NotImplementedError, match="\"glu_cpu\" not implemented for 'Long'"):
        F.glu(wick.arange(4))


def test_rows_that_are_looked_up_are_scaled_down():
    table = wick.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
    assert wick.embedding_renorm_(table, wick.tensor([2, 1, 2]), 1.0, 2.0) is table
    assert wick.allclose(table, wick.tensor([[3.0, 4.0], [0.3, 0.4], [0.6, 0.8]]))
    with pytest.raises(IndexError, match="index out of range in self"):
        wick.embedding_renorm_(table, wick.tensor([3]), 1.0, 2.0)


def test_tensors_that_do_not_broadcast():
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(4\) must match the size of tensor b \(5\)"):
        wick.broadcast_tensors(wick.ones(3, 4), wick.ones(3, 5))
    assert [t.shape for t in wick.broadcast_tensors(wick.ones(3, 1), wick.ones(4))] == [(3, 4)] * 2
    assert wick.broadcast_tensors() == ()


def test_signatures():
    """What a module's call takes, and what makes one."""

    class Own(nn.Module):
        def __call__(self, a, b=2):
            return a

    assert str(inspect.signature(nn.Linear(2, 2))) == "(*args, **kwargs)"
    assert str(inspect.signature(Own())) == "(a, b=2)"
    assert list(inspect.signature(nn.Dropout).parameters) == ["p", "inplace"] and not hasattr(
        nn.Dropout, "__signature__"
    )


@pytest.mark.parametrize(("keys", "values"), [(2, 4), (4, 2), (1, 2)])
def test_attention_with_heads_of_keys_and_values_that_differ(keys, values):
    q, k, v = (wick.randn(2, heads, 3, 8) for heads in (4, keys, values))
    whole = [t.repeat_interleave(4 // t.shape[1], 1) for t in (k, v)]
    attention = F.scaled_dot_product_attention
    wick.testing.assert_close(attention(q, k, v, enable_gqa=True), attention(q, *whole))


def test_attention_with_heads_that_do_not_divide():
    q, k, v = (wick.randn(1, heads, 3, 8) for heads in (4, 3, 4))
    with pytest.raises(RuntimeError, match="Number of heads in key and value must divide the number of heads in"):
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

"""nn against PyTorch: errors, printed forms, weights from a seed, outputs, hooks."""

import warnings

import pytest
from compare import same


def linear(t):
    return t.nn.Linear(2, 2)


def assigned_early(value):
    def run(t):
        class Early(t.nn.Module):
            def __init__(self):
                value(t, self)

        return Early()

    return run


ERRORS = {
    "early parameter": assigned_early(lambda t, m: setattr(m, "x", t.nn.Parameter(t.ones(1)))),
    "early module": assigned_early(lambda t, m: setattr(m, "x", linear(t))),
    "early buffer": assigned_early(lambda t, m: m.register_buffer("x", None)),
    "early register": assigned_early(lambda t, m: m.register_parameter("x", None)),
    "not a parameter": lambda t: setattr(linear(t), "weight", t.ones(2)),
    "not a module": lambda t: setattr(t.nn.Sequential(t.nn.ReLU()), "0", 3),
    "argument": lambda t: t.nn.Module(3),
    "keyword": lambda t: t.nn.Module(a=3),
    "no forward": lambda t: t.nn.Module()(1),
    "no attribute": lambda t: linear(t).nope,
    "delete": lambda t: delattr(linear(t), "nope"),
    **{
        f"{method} {name!r} {value}": lambda t, method=method, name=name, value=value: getattr(linear(t), method)(
            name, value
        )
        for method in ("register_parameter", "register_buffer", "add_module")
        for name, value in (("a.b", None), ("", None), (3, None), ("forward", None), ("weight", None), ("x", 3))
    },
    "not a leaf": lambda t: linear(t).register_parameter("x", t.ones(1, requires_grad=True) * 2),
    "submodule": lambda t: linear(t).get_submodule("a.b"),
    "submodule is parameter": lambda t: linear(t).get_submodule("weight"),
    "parameter": lambda t: linear(t).get_parameter("nope"),
    "parameter is method": lambda t: t.nn.Sequential(linear(t)).get_parameter("0.forward"),
    "buffer": lambda t: linear(t).get_buffer("weight"),
    "set nothing": lambda t: linear(t).set_submodule("", t.nn.ReLU()),
    "set no module": lambda t: linear(t).set_submodule("a", 3),
    "set strict": lambda t: linear(t).set_submodule("a", t.nn.ReLU(), strict=True),
    "set deep": lambda t: linear(t).set_submodule("a.b", t.nn.ReLU()),
    "load empty": lambda t: linear(t).load_state_dict({}),
    "load number": lambda t: linear(t).load_state_dict(3),
    "load sizes": lambda t: linear(t).load_state_dict({"weight": t.ones(3), "x": 1, "a.b": 2}),
    "load loose": lambda t: linear(t).load_state_dict({"q": 3}, strict=False),
    "train": lambda t: linear(t).train(3),
    "to": lambda t: linear(t).to(t.int32),
    "index": lambda t: t.nn.Sequential()[0],
    "add": lambda t: t.nn.Sequential() + 3,
    "times": lambda t: t.nn.Sequential() * 0,
    "insert": lambda t: t.nn.Sequential().insert(5, linear(t)),
    "list": lambda t: t.nn.ModuleList(3),
    "dict": lambda t: t.nn.ModuleDict([1]),
    "dict length": lambda t: t.nn.ModuleDict([(1, 2, 3)]),
    "parameter dict": lambda t: t.nn.ParameterDict()[3],
    "parameter list": lambda t: t.nn.ParameterList(3),
    "dropout": lambda t: t.nn.Dropout(2),
    "groups": lambda t: t.nn.GroupNorm(2, 3),
    "padding": lambda t: t.nn.Embedding(3, 2, 5),
    "unflatten": lambda t: t.nn.Unflatten(1, 3),
    "bilinear": lambda t: t.nn.Bilinear(0, 1, 2),
    "reduction": lambda t: t.nn.functional.mse_loss(t.ones(1), t.ones(1), reduction="foo"),
    "bce size": lambda t: t.nn.functional.binary_cross_entropy(t.rand(2), t.rand(3)),
    "bce logits size": lambda t: t.nn.functional.binary_cross_entropy_with_logits(t.rand(2), t.rand(3)),
    "gain": lambda t: t.nn.init.calculate_gain("x"),
    "slope": lambda t: t.nn.init.calculate_gain("leaky_relu", "x"),
    "fan": lambda t: t.nn.init.xavier_uniform_(t.ones(2)),
    "mode": lambda t: t.nn.init.kaiming_uniform_(t.ones(2, 2), mode="x"),
    "eye": lambda t: t.nn.init.eye_(t.ones(2)),
    "vector": lambda t: t.nn.utils.vector_to_parameters(3, []),
    "nan norm": lambda t: t.nn.utils.get_total_norm([t.tensor([float("nan")])], error_if_nonfinite=True),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    same(ERRORS[name])


PRINTED = {
    "nested": lambda t: t.nn.Sequential(linear(t), t.nn.Sequential(t.nn.ReLU()), t.nn.Module()),
    "list": lambda t: t.nn.ModuleList([linear(t), linear(t), t.nn.ReLU()]),
    "dict": lambda t: t.nn.ModuleDict({"a": linear(t)}),
    "parameters": lambda t: t.nn.ParameterList([t.ones(2, 3), 3]),
    "named": lambda t: t.nn.ParameterDict({"b": t.ones(2), "a": t.nn.Parameter(t.ones(1))}),
    "parameter": lambda t: t.nn.Parameter(t.ones(2)),
    "keys": lambda t: t.nn.IncompatibleKeys if False else linear(t).load_state_dict(linear(t).state_dict()),
    "state": lambda t: list(t.nn.Module().__dict__),
    "slice": lambda t: t.nn.Sequential(*[linear(t) for _ in range(5)])[1:3],
    **{
        text: lambda t, text=text: eval(f"nn.{text}", {"nn": t.nn})
        for text in (
            "Identity(3, a=1)",
            "Linear(2, 3, bias=False)",
            "Bilinear(1, 2, 3)",
            "Embedding(3, 4, 1, norm_type=3.0, sparse=True)",
            "LayerNorm(3)",
            "LayerNorm((2, 3), bias=False)",
            "RMSNorm(3)",
            "GroupNorm(1, 2)",
            "Dropout(0.1, True)",
            "Flatten()",
            "Unflatten(1, (2, 3))",
            "ReLU(True)",
            "ReLU6()",
            "Hardtanh(inplace=True)",
            "GELU('tanh')",
            "ELU(inplace=True)",
            "LeakyReLU()",
            "Softplus()",
            "Softmax(1)",
            "LogSoftmax(1)",
            "Softmin(1)",
            "Hardswish(True)",
            "Mish(True)",
            "SiLU()",
            "Threshold(1, 2, True)",
            "PReLU()",
            "CELU()",
            "SELU(True)",
            "GLU()",
            "CrossEntropyLoss()",
            "BCEWithLogitsLoss()",
        )
    },
}


@pytest.mark.parametrize("name", PRINTED)
def test_printed(name):
    same(lambda t: repr(PRINTED[name](t)))


@pytest.mark.parametrize(
    "make",
    [
        linear,
        lambda t: t.nn.Bilinear(2, 3, 4),
        lambda t: t.nn.Embedding(5, 3, padding_idx=-1),
        lambda t: t.nn.LayerNorm(3),
        lambda t: t.nn.PReLU(3),
        lambda t: t.nn.Sequential(t.nn.Linear(30, 20), t.nn.Embedding(40, 5), t.nn.Linear(7, 9, bias=False)),
    ],
)
def test_weights_from_a_seed(make):
    same(lambda t: (make(t).state_dict(), t.rand(1)))


@pytest.mark.parametrize(
    "call",
    [
        "uniform_(x, -1, 2)",
        "normal_(x, 1, 2)",
        "trunc_normal_(x)",
        "trunc_normal_(x, 0.0, 1.0, 2.0, 2.5)",
        "ones_(x)",
        "zeros_(x)",
        "eye_(x)",
        "xavier_uniform_(x)",
        "xavier_normal_(x, 2.0)",
        "kaiming_uniform_(x, 1)",
        "kaiming_normal_(x, mode='fan_out', nonlinearity='relu')",
        "dirac_(x.view(6, 2, 2), 2)",
        "sparse_(x, 0.3)",
    ],
)
def test_init(call):
    same(lambda t: (eval(f"init.{call}", {"init": t.nn.init, "x": t.empty(6, 4)}), t.rand(1)))


CALLS = (
    "relu(x)",
    "relu6(x)",
    "hardtanh(x)",
    "elu(x)",
    "celu(x)",
    "selu(x)",
    "leaky_relu(x)",
    "silu(x)",
    "mish(x)",
    "hardsigmoid(x)",
    "hardswish(x)",
    "sigmoid(x)",
    "tanh(x)",
    "tanhshrink(x)",
    "softsign(x)",
    "glu(x)",
    "softmax(x)",
    "softmin(x)",
    "log_softmax(x, -1)",
    "softmax(x, 1, dtype=t.float64)",
    "logsigmoid(x)",
    "gelu(x)",
    "gelu(x, approximate='tanh')",
    "softplus(x)",
    "normalize(x)",
    "threshold(x, 0.1, 2.0)",
    "prelu(x, p[0])",
    "dropout(x)",
    "dropout(x, 0.1, inplace=True)",
    "alpha_dropout(x, 0.3, True)",
    "dropout1d(x)",
    "dropout2d(x[None])",
    "dropout3d(x[None, None])",
    "gumbel_softmax(x, hard=True)",
    "mse_loss(x, y)",
    "mse_loss(x, y[:1])",
    "mse_loss(x, y, weight=p)",
    "l1_loss(x, y, size_average=False)",
    "smooth_l1_loss(x, y)",
    "smooth_l1_loss(x, y, beta=0.0)",
    "huber_loss(x, y, weight=p, reduction='none')",
    "cross_entropy(x, c, label_smoothing=0.1)",
    "cross_entropy(x, c, w, reduction='sum')",
    "cross_entropy(x, p)",
    "cross_entropy(x, c, ignore_index=1)",
    "nll_loss(x, c)",
    "binary_cross_entropy(p, q, weight=w)",
    "binary_cross_entropy_with_logits(x, q, pos_weight=w.detach())",
    "kl_div(x, p)",
    "kl_div(x, p, reduction='batchmean')",
    "kl_div(x, y, log_target=True)",
    "layer_norm(x, (6,), w)",
    "rms_norm(x, (6,))",
    "group_norm(x, 2)",
    "embedding(c, y)",
    "embedding(c, y.clone(), max_norm=0.5, padding_idx=-1)",
    "one_hot(c)",
    "cosine_similarity(x, y)",
    "linear(x, y, w[:4])",
    "bilinear(x, y, b)",
    "scaled_dot_product_attention(x[None], y[None], y[None], is_causal=True)",
)


@pytest.mark.parametrize("call", CALLS)
def test_functions_and_gradients(call):
    def run(t):
        x, y, p, q, w, b = t.randn(4, 6), t.randn(4, 6), t.rand(4, 6), t.rand(4, 6), t.rand(6), t.randn(3, 6, 6)
        c = t.tensor([1, 0, 3, 2])
        leaves = [v.requires_grad_() for v in (x, y, w)]
        if "inplace" in call:
            x = x * 1
        names = {"t": t, "x": x, "y": y, "p": p, "q": q, "w": w, "b": b, "c": c}
        result = eval(f"F.{call}", {"F": t.nn.functional, **names})
        if result.requires_grad:
            (result * t.arange(1.0, result.numel() + 1).view(result.shape)).sum().backward()
        return result, [v.grad for v in leaves]

    same(run, tolerance=2e-5)  # f32 sums in another order, of terms weighted by up to 24 that partly cancel


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize("weight", [None, "float32", "bfloat16", "float64"])
@pytest.mark.parametrize("dims", [1, 2])
def test_rms_norm(dtype, weight, dims):
    """Values, dtypes, first and second derivatives, tangents and batches, of mixed dtypes too."""

    def run(t):
        x = t.randn(2, 3, 8).to(getattr(t, dtype)).requires_grad_()
        w = t.randn(x.shape[-dims:]).to(getattr(t, weight)).requires_grad_() if weight else None
        leaves = [x, *([w] if weight else [])]
        found = []
        warnings.simplefilter("ignore")  # PyTorch warns of mixed dtypes, which it does not fuse
        for eps in (None, 0.25):
            f = lambda x, eps=eps: t.nn.functional.rms_norm(x, x.shape[-dims:], w, eps)  # noqa: E731
            y = f(x)
            g = t.randn(y.shape).to(y.dtype).requires_grad_()
            first = t.autograd.grad(y, leaves, g, create_graph=True)
            again = t.autograd.grad(first, [*leaves, g], [t.ones_like(v) for v in first])
            tangent = t.func.jvp(f, (x.detach(),), (t.ones_like(x),))[1]
            batch = t.func.vmap(t.func.grad(lambda x, f=f: f(x).float().pow(3).sum()))(x.detach())
            found += [y, *first, *again, tangent, batch]
        return found

    small = "float16" in (dtype, weight) or "bfloat16" in (dtype, weight)
    same(
        run, tolerance=0.05 if small else 1e-5
    )  # small floats are rounded once, in PyTorch at each step of a derivative


def test_hooks():
    def run(t):
        log = []

        class Net(t.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = t.nn.Linear(2, 2)

            def forward(self, x, *, k=1):
                log.append(("forward", k))
                return self.layer(x) * k

        net = Net()
        with t.no_grad():  # numbers whose products and sums are exact, in whatever order a CPU adds them
            net.layer.weight.copy_(t.tensor([[0.5, -0.25], [1.0, 0.75]]))
            net.layer.bias.fill_(0.125)
        net.register_forward_pre_hook(lambda m, a: log.append("pre"))
        net.register_forward_pre_hook(lambda m, a, k: (a, {"k": 3}), with_kwargs=True, prepend=True)
        net.register_forward_hook(lambda m, a, o: log.append("post"))
        net.register_forward_hook(lambda m, a, k, o: o * 2, with_kwargs=True, prepend=True)
        net.register_forward_hook(lambda m, a, o: log.append("always"), always_call=True)
        net.register_full_backward_pre_hook(lambda m, g: (log.append(plain_gradients(g)), (g[0] * 2,))[1])
        net.register_full_backward_hook(lambda m, i, o: log.append((plain_gradients(i), plain_gradients(o))))
        net.layer.register_full_backward_hook(lambda m, i, o: (i[0] * 5,))
        with t.nn.modules.module.register_module_forward_hook(lambda m, a, o: log.append("global")):
            x = t.ones(1, 2, requires_grad=True)
            net(x).sum().backward()
        try:
            net("bad")
        except TypeError:
            log.append("error")
        return log, x.grad

    def plain_gradients(gradients):
        return [None if g is None else g.tolist() for g in gradients]

    same(run)

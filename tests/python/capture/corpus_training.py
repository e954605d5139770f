"""Modules, optimizers, autograd inside and across the region, randomness, grad modes."""

# ruff: noqa: E741

from capture_harness import ARGUMENTS, Corpus, Net, loud, module_of, numbers

import wick
from wick import nn
from wick.nn import functional as F

case = Corpus()

G = {}


def reset():
    G.clear()
    G.update(net=module_of(0), seen=[])


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.gain = nn.Parameter(wick.ones(4))
        self.calls = 0

    def forward(self, x, *, scale=1.0):
        for layer in self.layers:
            x = x + F.relu(layer(x)) * scale
        return x * self.gain


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("total", wick.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.total += x.sum(0)
        return x * self.calls


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4, bias=False)
        self.b = nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


def seeded(make):
    def inputs(k):
        wick.manual_seed(k)
        return numbers(k, 3, 4), make()

    return inputs


# ==== modules ====


@case(captures=2, again=False)
def module_call(x, m):
    return m(x)


@case(captures=2, again=False)
def module_forward(x, m):
    return m.forward(x) + m.scale


@case(captures=2, again=False)
def module_parts(x, m):
    return F.linear(x, m.first.weight, m.first.bias), m.seen + 1, [n for n, _ in m.named_parameters()]


@case(captures=2, again=False)
def module_parameters(m):
    return sum(p.sum() for p in m.parameters())


@case(captures=2, again=False)
def module_buffer_written(x, m):
    m.seen += x.sum()
    m.seen.mul_(2)
    return m.seen * 1


@case(captures=2, again=False)
def module_attribute_written(x, m):
    m.scale = 3.0
    return m(x)


@case(captures=3, again=False, inputs=seeded(Counts))
def module_counts(x, m):
    return m(x)


@case(captures=2, again=False, inputs=seeded(Residual))
def module_list(x, m):
    return m(x, scale=0.5)


@case(captures=2, again=False, inputs=seeded(Tied))
def tied_weights(x, m):
    return m(x).sum()


@case(captures=2, again=False, inputs=seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))))
def sequential(x, m):
    return m(x)


@case(
    captures=2,
    again=False,
    inputs=seeded(lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4), nn.GELU(), nn.Dropout(0.5))),
)
def normed_with_dropout(x, m):
    return m(x)


@case(captures=2, again=False, inputs=seeded(lambda: nn.Dropout(0.5).eval()))
def dropout_in_eval(x, m):
    return m(x)


@case(
    captures=2,
    again=False,
    inputs=lambda k: ((wick.arange(6).reshape(2, 3) + k) % 5, seeded(lambda: nn.Embedding(5, 4))(k)[1]),
)
def embedding(i, m):
    return m(i)


@case
def module_in_global(x):
    return G["net"](x)


@case(captures=2, again=False)
def module_mode(x, m):
    return x * (2 if m.training else 3), m.training


@case(captures=2, again=False)
def module_switched(x, m):
    m.eval()
    return m(x), m.training


@case(captures=2, again=False, inputs=seeded(lambda: nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})))
def module_dict(x, m):
    for key in ("a", "b"):
        x = m[key](x)
    return x, "a" in m, len(m)


@case(captures=2, again=False, inputs=seeded(lambda: nn.ParameterList([nn.Parameter(wick.ones(4)) for _ in range(2)])))
def parameter_list(x, m):
    for p in m:
        x = x * p
    return x


@case(makes=True)
def forward_hook():
    m = module_of(0)
    m.register_forward_hook(lambda module, args, out: out * 2)

    def forward_hook(x):
        return m(x)

    return forward_hook


@case
def losses(x, y, i):
    return F.mse_loss(x, y), F.cross_entropy(x, i), F.l1_loss(x, y, reduction="sum"), F.nll_loss(F.log_softmax(x, 1), i)


@case
def attention(x):
    q = x.view(1, 1, *x.shape)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True)


# ==== autograd ====


@case
def grad_flows_out(g, w):
    return (g @ w).tanh()


@case
def grad_flows_out_of_two(g, w):
    y = g @ w
    return y.sum(), (y * 2).relu()


@case
def some_need_grad(g, x):
    return g * 2, x * 2, g.detach() * 3


@case(captures=2, again=False)
def backward_inside(g):
    (g * 2).sum().backward()


@case(captures=2, again=False)
def backward_and_read(g, w):
    loss = (g @ w).pow(2).mean()
    loss.backward()
    return loss.detach(), w.grad * 1


@case(captures=2, again=False)
def backward_twice(w):
    (w * 2).sum().backward()
    (w * 3).sum().backward()
    return w.grad


@case
def grad_set_to_none(w):
    w.grad = None
    (w * w).sum().backward()
    return w.grad


@case(captures=2, again=False)
def grad_zeroed(w):
    if w.grad is not None:
        w.grad.zero_()
    (w * w).sum().backward()
    return w.grad.sum()


@case(captures=2, again=False)
def grad_clipped(w, g):
    (g @ w).pow(2).sum().backward()
    total = nn.utils.clip_grad_norm_([w, g], 0.5)
    return total, w.grad.norm()


@case
def autograd_grad(g, w):
    loss = (g @ w).sum()
    a, b = wick.autograd.grad(loss, [g, w])
    return a, b


@case
def own_leaf_detached(x):
    y = x.detach() * 2
    return y.requires_grad, y


@case
def own_leaf(x):
    y = (x * 2).requires_grad_()
    (y * y).sum().backward()
    return y.grad


@case
def says_again_that_it_requires_grad(g):
    y = g * 2
    y.requires_grad = True
    z = g.detach() * 3
    z.requires_grad = False
    return y.requires_grad_(), z.requires_grad_(False), y.requires_grad, z.requires_grad


@case
def leaf_by_its_flag(x):
    y = (x * 2).relu()
    y.requires_grad = True
    (y * y).sum().backward()
    return y.grad


@case
def views_with_grad(g):
    a = g[0]
    b = g.t()
    return a * 2, b.sum(), g.view(-1)


@case(captures=2, breaks=2, unkept=3)
def view_written_behind_a_break(g, x):
    row = x[0]
    loud("row")
    row += g[0]
    return x


@case
def in_place_with_grad(g):
    y = g * 2
    y.add_(1)
    y[0].mul_(3)
    return y


@case
def parameter_updated(p, v):
    loss = (p * v).sum()
    loss.backward()
    with wick.no_grad():
        p -= 0.1 * p.grad
    p.grad = None
    return loss.detach()


@case(captures=2, again=False, grads=False)
def retained_graph(w):
    y = (w * w).sum()
    y.backward(retain_graph=True)
    y.backward()
    return w.grad


@case
def second_order(w):
    (a,) = wick.autograd.grad((w**3).sum(), w, create_graph=True)
    return a.sum()


@case(captures=2, breaks=1)
def grad_across_break(g, w):
    y = g @ w
    loud("between")
    return (y * 2).sum()


@case(captures=3, breaks=2)
def backward_across_break(g, w):
    loss = (g @ w).sum()
    loud("between")
    loss.backward()
    return w.grad.sum()


@case(captures=3, breaks=2)
def backward_before_break(g, w):
    loss = (g @ w).sum()
    loss.backward()
    loud(float(2.0))
    return w.grad * 2


class Double(wick.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 + x * 0


@case
def custom_function(g):
    return Double.apply(g).sum()


@case
def tensor_hook(g):
    y = g * 2
    y.register_hook(lambda slope: slope * 3)
    return y.sum()


@case
def requires_grad_read(g, x):
    return g.requires_grad, x.requires_grad, (g * x).requires_grad, g.is_leaf, (g + 1).is_leaf


@case
def grad_fn_read(g):
    y = g * 2
    return type(y.grad_fn).__name__, y


# ==== grad modes ====


@case
def no_grad(g):
    with wick.no_grad():
        y = g * 2
    return y, g * 3


@case
def enable_grad(g):
    with wick.no_grad():
        with wick.enable_grad():
            y = g * 2
        z = g * 3
    return y, z, wick.is_grad_enabled()


@case
def set_grad_enabled(g, flag):
    with wick.set_grad_enabled(not flag):
        y = g * 2
    return y


@case
def no_grad_decorator(g):
    @wick.no_grad()
    def f(y):
        return y * 2

    return f(g), g * 2


@case
def no_grad_raises(g):
    try:
        with wick.no_grad():
            raise ValueError
    except ValueError:
        pass
    return g * 2, wick.is_grad_enabled()


@case
def grad_mode_left_changed(g):
    wick.set_grad_enabled(False)
    return g * 2


@case
def inference_mode(x):
    with wick.inference_mode():
        y = x * 2
    return y + 1


@case(captures=2, breaks=1, makes=True)
def no_grad_object_of_caller():
    mode = wick.no_grad()

    def no_grad_object_of_caller(g):
        with mode:
            y = g * 2
        return y, g * 3

    return no_grad_object_of_caller


# ==== randomness ====


@case
def random_numbers(x):
    return wick.rand(3), wick.randn(2, 2), x + wick.rand_like(x)


@case
def random_integers(x):
    return wick.randint(5, (3,)), wick.randperm(4), x * 1


@case
def dropout(x):
    return F.dropout(x, 0.5), F.dropout(x, 0.5, training=False)


@case
def random_in_place(x):
    x.uniform_()
    y = wick.empty(3).normal_()
    return x.bernoulli_(0.5), y


@case
def random_in_loop(x):
    for _ in range(3):
        x = x + wick.rand_like(x)
    return x


@case
def random_unused(x):
    wick.rand(5)
    return x + 1


@case(captures=2, breaks=1)
def random_across_break(x):
    a = wick.rand(2)
    loud("between")
    return a, wick.rand(2), x


@case(captures=2, breaks=1)
def seed_inside(x):
    wick.manual_seed(3)
    return wick.rand(2) + x[0, :2]


@case
def multinomial(x):
    return wick.multinomial(x.abs() + 0.1, 2, replacement=True)


# ==== optimizers ====


def with_optimizer(make):
    def inputs(k):
        m = module_of(0)
        return numbers(k, 3, 4), numbers(k, 3, 4, salt=1), m, make(m.parameters())

    return inputs


def step(x, y, m, optimizer):
    loss = F.mse_loss(m(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


@case(captures=3, inputs=with_optimizer(lambda p: wick.optim.SGD(p, lr=0.1)), again=False)
def sgd_step(x, y, m, optimizer):
    return step(x, y, m, optimizer)


@case(captures=2, again=False)
def zero_grad_both_ways(x, m):
    m(x).sum().backward()
    m.zero_grad(set_to_none=False)
    m(x).mean().backward()
    m.zero_grad()
    return [p.grad for p in m.parameters()]


@case
def state_kept(x):
    G["seen"].append((x * 2).sum())
    return G["seen"][-1] + 1


@case(captures=2, again=False, inputs=lambda k: (ARGUMENTS["x"](k), Net()))
def module_made_outside_is_read(x, m):
    return x * m.scale, m.first.in_features


# ==== the data of a tensor are set ====


@case
def step_by_data(w, x):
    loss = (x @ w).relu().sum()
    loss.backward()
    w.data = w.data - 0.1 * w.grad
    w.grad = None
    return loss.detach()


@case(captures=3, again=False)
def steps_of_a_module_by_data(m, x):
    m(x).sum().backward()
    for p in m.parameters():
        p.data = p.data.add(p.grad, alpha=-0.1)
        p.grad.zero_()


@case
def data_of_another(x, y, o):
    o.value.data = y[0]
    x.data = y
    y.mul_(2)
    return x + 1, x.shape, o.value * 2, y


@case(captures=2)
def data_of_other_sizes(x, q, v):
    before = x.sum()
    x.data = (q * 2)[:2].long()
    v.data = v.data.unsqueeze(0)
    return before, x.dtype, x.shape, x.sum(), v.T + 1


@case(unkept=3, captures=0)
def data_that_somebody_looks_at(x, q):
    x.data = q * 2
    return x[0]


@case
def differentiated_outside(w, x, q):
    loss = (x @ w).relu().pow(2).sum() + (w * q).sum()
    w.data = w.data * 2
    return loss


@case(captures=2, breaks=1, unkept=1)
def used_behind_that(w, x, q):
    loss = (x @ w).sum()
    w.data = w.data * q
    return loss + (w * 2).sum()


@case
def data_set_again(v, s):
    for _ in range(3):
        v.data = v.data * 2 + s
    s.data = v.sum()
    return v.mean()


@case
def data_set_behind_a_write(x, y):
    z = x[0]
    x.mul_(2)
    x.data = y * x
    z.add_(1)
    return z, x.sum()


@case(captures=2, breaks=1)
def written_behind_that(x, y):
    x.data = y * 2
    x.add_(1)
    return x


@case(captures=2, breaks=1)
def data_of_what_is_made(x, y):
    z = x * 2
    z.data = y + 1
    return z * 3


@case(captures=0, raises=True)
def data_that_cannot_be_set(w):
    w.data = w.data.long()


# ==== parameters and layers that are made inside ====


@case(captures=3, again=False)
def replaces_a_layer(m, x):
    before = m.first
    m.first = nn.Linear(4, 4, bias=False)
    with wick.no_grad():
        return m(x), before is m.first, before(x)


@case(captures=3, again=False)
def replaces_a_parameter(m, x):
    m.first.weight = nn.Parameter(m.first.weight.detach() * 2)
    m.first.bias = None
    m.scale = nn.Parameter(x.sum(), requires_grad=False)
    return m.scale * 2, len(list(m.first.parameters()))


@case(captures=4, breaks=3, unkept=1, again=False)
def replaces_a_layer_and_goes_on_with_it(m, x):
    m.first = nn.Linear(4, 4)
    return m(x).sum()


@case(captures=3, again=False)
def registers_others(m, x):
    m.seen = nn.Parameter(x[0] * 2)
    m.scale = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    m.second = None
    m.extra = nn.ParameterList([x[0] + 1, x[1]])
    return x, [name for name, _ in m.named_parameters()]


@case
def parameters_leave(x, o, l):
    first, second = nn.Parameter(x * 2), nn.Parameter(x, requires_grad=False)
    third = nn.Parameter(nn.Parameter(x[0]))
    o.child.rate = third
    l.append(first)
    with wick.no_grad():
        first.mul_(3)
    first.name = "first"
    return first, second, (first.detach() + second), first.grad_fn


@case
def parameters_leave_with_gradients(x, y):
    weight = nn.Parameter(x * 2)
    (weight * y).sum().backward()
    (weight * 2).sum().backward()
    return weight, weight.grad


@case
def a_layer_is_trained_inside(x):
    layer = nn.Linear(4, 2)
    for _ in range(2):
        layer(x).pow(2).sum().backward()
        with wick.no_grad():
            for p in (layer.weight, layer.bias):
                p -= 0.1 * p.grad
                p.grad = None
    return layer, layer(x).detach()


@case
def a_layer_made_inside(x):
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 1))
    with wick.no_grad():
        return net(x)


@case(captures=2, breaks=1, unkept=1, again=False)
def a_leaf_made_inside_is_used_outside(g, x):
    weight = nn.Parameter(x * 2)
    return (g * weight).sum() * 2, weight

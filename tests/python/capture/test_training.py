"""Whole training steps are one graph, and give the bits that they give plainly."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(__file__))

import wick  # noqa: E402
from wick import nn  # noqa: E402
from wick._C import Compiled  # noqa: E402
from wick.nn import functional as F  # noqa: E402

STEPS = 10


class Attention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.drop(self.out(y.transpose(1, 2).reshape(b, t, c)))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.after = nn.LayerNorm(width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.wide(self.after(x))


class Characters(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.token = nn.Embedding(11, 16)
        self.place = nn.Embedding(8, 16)
        self.blocks = nn.ModuleList([Block(16, 2, dropout) for _ in range(2)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 11, bias=False)
        self.head.weight = self.token.weight

    def forward(self, i):
        x = self.token(i) + self.place(wick.arange(i.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Recall(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 8)
        self.x = nn.Linear(8, 32)
        self.h = nn.Linear(8, 32, bias=False)
        self.head = nn.Linear(8, 8)

    def cell(self, x, h, c):
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, dim=1)
        c = wick.sigmoid(f) * c + wick.sigmoid(i) * wick.tanh(g)
        return wick.sigmoid(o) * wick.tanh(c), c

    def forward(self, symbols):
        h = c = wick.zeros(symbols.shape[0], 8)
        for t in range(symbols.shape[1]):
            h, c = self.cell(self.embedding(symbols[:, t]), h, c)
        return self.head(h)


def perceptron():
    layers = [nn.Linear(2, 16), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(16, 16), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(16, 2))


def points(k):
    return wick.randn(8, 2), wick.randint(2, (8,))


def text(k):
    i = wick.randint(11, (2, 9))
    return i[:, :-1].contiguous(), i[:, 1:].contiguous()


def symbols(k):
    x = wick.randint(8, (4, 32))
    return x, x[:, 0].contiguous()


OPTIMIZERS = {
    "sgd": lambda p: wick.optim.SGD(p, lr=0.05),
    "momentum": lambda p: wick.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: wick.optim.Adam(p, lr=0.005),
    "adamw": lambda p: wick.optim.AdamW(p, lr=0.005, weight_decay=0.1),
}


def logits_loss(out, y):
    return F.cross_entropy(out.view(-1, out.shape[-1]), y.reshape(-1))


def plain_step(model, optimizer, x, y):
    loss = logits_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def kept_grads(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=False)
    loss = logits_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def clipped(model, optimizer, x, y):
    loss = logits_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    return loss.detach() + norm * 0


def accumulated(model, optimizer, x, y):
    optimizer.zero_grad()
    total = 0
    for part, aim in zip(x.chunk(2), y.chunk(2), strict=True):
        loss = logits_loss(model(part), aim) / 2
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total


MODELS = {
    "perceptron": (perceptron, points),
    "characters": (Characters, text),
    "dropout": (lambda: Characters(0.2), text),
    "recall": (Recall, symbols),
}


def train(step, model_name, optimizer_name, wrap, change=None):
    make, batch = MODELS[model_name]
    wick.manual_seed(3)
    model = make()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    batches = [batch(k) for k in range(STEPS + 2)]
    losses = [step(model, optimizer, *batches[k]) for k in range(2)]  # the optimizer makes its state
    wrapped = wrap(step)
    for k in range(STEPS):
        if change:
            change(k, optimizer)
        losses.append(wrapped(model, optimizer, *batches[k + 2]))
    parameters = [p.detach().numpy().tobytes() for p in model.parameters()]
    return [loss.item() for loss in losses], parameters, wick.rand(3).tolist(), getattr(wrapped, "captures", None)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_is_one_graph(model, optimizer):
    plain = train(plain_step, model, optimizer, lambda f: f)
    captured = train(plain_step, model, optimizer, lambda f: Compiled(f, fullgraph=True))
    assert captured[:3] == plain[:3]
    assert captured[3] == 1


@pytest.mark.parametrize("step", [kept_grads, clipped, accumulated], ids=lambda f: f.__name__)
@pytest.mark.parametrize("model", ["perceptron", "dropout"])
def test_kinds_of_steps(model, step):
    plain = train(step, model, "adamw", lambda f: f)
    captured = train(step, model, "adamw", lambda f: Compiled(f, fullgraph=True))
    assert captured[:3] == plain[:3]
    assert captured[3] == 1


@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_the_rate_changes(optimizer):
    def change(k, o):
        o.param_groups[0]["lr"] = 0.01 / (k + 1)

    plain = train(plain_step, "perceptron", optimizer, lambda f: f, change)
    captured = train(plain_step, "perceptron", optimizer, lambda f: Compiled(f, fullgraph=True), change)
    assert captured[:3] == plain[:3]
    assert captured[3] <= 2


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_from_the_first_step_on(optimizer):
    def run(wrap):
        wick.manual_seed(3)
        model = perceptron()
        step, state = wrap(plain_step), OPTIMIZERS[optimizer](model.parameters())
        losses = [step(model, state, *points(k)) for k in range(STEPS)]
        return [loss.item() for loss in losses], [p.tolist() for p in model.parameters()]

    assert run(Compiled) == run(lambda f: f)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", ["perceptron", "characters"])
def test_the_step_that_makes_the_state_is_one_graph(model, optimizer):
    """The first step fills `optimizer.state`, a defaultdict, and is as whole as those behind it."""

    def run(wrap):
        make, batch = MODELS[model]
        wick.manual_seed(3)
        network = make()
        state, step = OPTIMIZERS[optimizer](network.parameters()), wrap(plain_step)
        losses = [step(network, state, *batch(k)) for k in range(STEPS)]
        values = [p.detach().numpy().tobytes() for p in network.parameters()]
        return [loss.item() for loss in losses], values, wick.rand(3).tolist(), getattr(step, "captures", None)

    plain, captured = run(lambda f: f), run(lambda f: Compiled(f, fullgraph=True))
    assert captured[:3] == plain[:3]
    assert captured[3] <= 2  # without gradients and state, and with both


def test_a_leaf_that_is_written_and_used_behind_that():
    """The graph's values would lead back to what was there before the write: a segment ends in between."""

    def f(x, w):
        with wick.no_grad():
            w.cos_()
        return (x * w).sin() + 1

    x, w, v = wick.ones(3), *(wick.arange(3.0).requires_grad_() for _ in range(2))
    compiled = Compiled(f)
    for _ in range(5):
        a, b = f(x, w), compiled(x, v)
        (a * a).sum().backward()
        (b * b).sum().backward()
        assert (a.tolist(), w.tolist(), w.grad.tolist()) == (b.tolist(), v.tolist(), v.grad.tolist())
    assert (compiled.captures, compiled.unkept) == (2, 1)
    assert sorted(segment["end"] for segment in compiled.report()) == ["break", "return"]
    assert all(segment["hits"] >= 2 for segment in compiled.report())


def test_a_step_with_breaks():
    def step(model, optimizer, x, y):
        loss = logits_loss(model(x), y)
        if loss.item() > 100:
            return loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    assert train(step, "perceptron", "adamw", Compiled)[:3] == train(step, "perceptron", "adamw", lambda f: f)[:3]


def test_evaluation_between_steps():
    def run(wrap):
        wick.manual_seed(3)
        model = Characters(0.2)
        optimizer = OPTIMIZERS["adamw"](model.parameters())
        out = []

        def evaluate(x):
            with wick.no_grad():
                return model(x).mean()

        step, check = wrap(plain_step), wrap(evaluate)
        for k in range(6):
            x, y = text(k)
            model.train()
            out.append(step(model, optimizer, x, y).item())
            model.eval()
            out.append(check(x).item())
        return out, getattr(check, "captures", 1)

    (plain, _), (captured, captures) = run(lambda f: f), run(Compiled)
    assert captured == plain and captures == 1


def test_views_that_outlive_their_segment_follow_writes():
    """A view and what it looks at leave a segment; a later write through one gives both a history."""

    def run(x):
        y = x.detach().sin()
        view, part = y.t(), y[0]
        view.sub_(0.25)
        int(x.sum())  # the segment ends
        y += x * 2
        part.mul_(3)
        return y, view, part

    compiled = wick.compile(run)
    for _ in range(3):
        results = []
        for function in (run, compiled):
            x = wick.arange(9.0).view(3, 3).requires_grad_()
            made = function(x)
            assert all(t.requires_grad for t in made)
            assert made[1]._base is made[0] and made[2]._base is made[0]
            sum(t.sum() for t in made).backward()
            results.append([t.detach() for t in made] + [x.grad])
        assert all(wick.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_an_input_used_twice_are_added_as_in_eager(create_graph):
    """Behind a compiled node an input gets a gradient for each use: (other + first) + second, not other + (both)."""

    def run(v, w):
        return wick.addcmul(v, v, w, value=0.5).tanh()

    def gradient(function):
        wick.manual_seed(0)
        x = wick.randn(16, 16).requires_grad_()
        v = x * 1.0
        y = function(v, wick.randn(16, 16))
        ends = [v.double().exp().sum(), y.double().exp().sum()]  # v's other gradient comes first
        return wick.autograd.grad(ends, [x], create_graph=create_graph)[0]

    compiled = wick.compile(run)
    for _ in range(3):
        assert wick.equal(gradient(compiled), gradient(run))


def written_through_detach(x):
    total = x.sum()
    x.detach().mul_(2)
    return x * x - total


def part_written_under_no_grad(x):
    total = x.sum()
    with wick.no_grad():
        x[1:].mul_(2)
    return x[:2] * 3 - total


def view_of_what_was_written(x):
    part, total = x[1:], x.sum()
    with wick.no_grad():
        x.mul_(2)
    return part * part - total


def result_written_through_detach(x):
    y = x * 1
    total = y.sum()
    y.detach().mul_(2)
    return y * 3 - total


@pytest.mark.parametrize(
    "run",
    [written_through_detach, part_written_under_no_grad, view_of_what_was_written, result_written_through_detach],
)
def test_what_is_written_behind_the_tape_keeps_its_gradient(run):
    """The graph's new value does not lead back to the tensor, whose history is the old one, before the write and after."""

    def gradient(function):
        x = wick.arange(1.0, 5.0).requires_grad_()
        function(x).sum().backward()
        return x.grad

    compiled = wick.compile(run)
    for _ in range(3):
        assert wick.equal(gradient(compiled), gradient(run))


def test_a_backward_of_tens_of_thousands_of_operators():
    """Fused window by window: what has to run before what is not asked of all of them at once."""
    step = Compiled(lambda x: x.cumprod(0))
    gradients = []
    for function in (lambda x: x.cumprod(0), step, step):
        wick.manual_seed(0)
        x = (wick.rand(20000) + 0.5).requires_grad_()
        function(x).sum().backward()
        gradients.append(x.grad)
    assert all(wick.equal(g, gradients[0]) for g in gradients)

"""Operators of programs (torch.library) in compiled code: one node of the graph, whose Python code runs with it."""

import typing

import pytest

import wick
from wick import library
from wick._dynamo import explain
from wick.fx.experimental.proxy_tensor import make_fx

Tensor = wick.Tensor


@pytest.fixture(autouse=True)
def no_operators(monkeypatch):
    monkeypatch.setattr(library, "_operators", {})


def opaque_sine(calls):
    """An operator whose code no graph could hold: it asks for the values."""
    import math

    @library.custom_op("mylib::sine", mutates_args=())
    def sine(x: Tensor) -> Tensor:
        calls.append(tuple(x.shape))
        return wick.tensor([math.sin(v) for v in x.flatten().tolist()]).reshape(x.shape)

    sine.register_fake(lambda x: wick.empty_like(x))
    sine.register_autograd(
        lambda ctx, g: g * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    return sine


def test_one_node_whose_code_runs_with_the_graph():
    calls = []
    opaque_sine(calls)
    f = wick.compile(lambda x: wick.ops.mylib.sine(x + 1) * 3, fullgraph=True)
    x = wick.arange(6.0).reshape(2, 3)
    for _ in range(3):
        wick.testing.assert_close(f(x), (x + 1).sin() * 3)
    assert calls == [(2, 3)] * 3
    for n in (4, 5, 6):
        assert f(wick.ones(n, 3)).shape == (n, 3)
    assert calls[3:] == [(4, 3), (5, 3), (6, 3)]
    assert explain(lambda x: wick.ops.mylib.sine(x) + 1)(x).graph_break_count == 0


@pytest.mark.parametrize("inside", [True, False])
def test_training_is_as_in_eager_mode(inside):
    opaque_sine([])

    def losses(compiled):
        wick.manual_seed(0)
        model = wick.nn.Linear(4, 4)
        optimizer = wick.optim.SGD(model.parameters(), lr=0.1)
        loss_of = lambda x: wick.ops.mylib.sine(model(x)).pow(2).sum()  # noqa: E731
        if compiled and not inside:
            loss_of = wick.compile(loss_of, fullgraph=True)

        def step(x):
            optimizer.zero_grad()
            loss = loss_of(x)
            loss.backward()
            optimizer.step()
            return loss

        if compiled and inside:
            step = wick.compile(step, fullgraph=True)
        return [step(wick.ones(2, 4)).item() for _ in range(4)]

    assert losses(True) == losses(False)


def test_names_in_graphs():
    opaque_sine([])

    @library.custom_op("mylib::fill", mutates_args=("x",))
    def fill(x: Tensor, v: int) -> None:
        x.fill_(v)

    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module

    def f(x):
        y = wick.ops.mylib.sine(x)
        fill(y, 7)
        return y + x

    assert wick.compile(f, backend=backend)(wick.ones(2)).tolist() == [8.0, 8.0]
    assert "torch.ops.mylib.sine(" in graphs[0].code and "torch.ops.mylib.fill_functional(" in graphs[0].code
    assert "torch.ops.mylib.sine(" in make_fx(lambda x: wick.ops.mylib.sine(x) + 1)(wick.ones(2)).code


def test_arguments_that_are_written():
    @library.custom_op("mylib::fill", mutates_args=("x",))
    def fill(x: Tensor, v: int) -> None:
        x.fill_(v)

    def f(x):
        fill(x, v=7)
        return x + 1

    compiled = wick.compile(f, fullgraph=True)
    for x in (wick.ones(2), wick.zeros(2)):
        assert compiled(x).tolist() == [8.0, 8.0] and x.tolist() == [7.0, 7.0]
    leaf = wick.ones(2, requires_grad=True)
    fill(leaf, 3)
    assert leaf.tolist() == [3.0, 3.0] and leaf.grad_fn is None


def test_lists_and_what_may_be_missing():
    @library.custom_op("mylib::both", mutates_args=())
    def both(xs: typing.List[Tensor], y: typing.Optional[Tensor], n: int = 2) -> typing.Tuple[Tensor, Tensor]:  # noqa: UP006,UP045
        return sum(xs) * n, y.clone() if y is not None else xs[0] * 0

    @library.custom_op("mylib::parts", mutates_args=())
    def parts(x: Tensor) -> typing.List[Tensor]:  # noqa: UP006
        return [x * 1, x * 2, x * 3]

    both.register_fake(lambda xs, y, n=2: (wick.empty_like(xs[0]), wick.empty_like(xs[0])))
    both.register_autograd(
        lambda ctx, g, h: ([g * ctx.n] * 2, h if ctx.has else None, None),
        setup_context=lambda ctx, inputs, output: (
            setattr(ctx, "n", inputs[2]),
            setattr(ctx, "has", inputs[1] is not None),
        ),
    )
    parts.register_fake(lambda x: [wick.empty_like(x) for _ in range(3)])
    parts.register_autograd(lambda ctx, gs: gs[0] + 2 * gs[1] + 3 * gs[2])

    def f(a, b):
        p, q = both([a, b], None)
        r, s = both([a, b], b, n=3)
        return p + q + r + s + parts(a)[2] + parts(b)[0]

    a, b = wick.ones(2, requires_grad=True), wick.ones(2, requires_grad=True)
    f(a, b).sum().backward()
    wanted = a.grad.tolist(), b.grad.tolist()
    assert wanted == ([8.0, 8.0], [7.0, 7.0])
    a.grad = b.grad = None
    compiled = wick.compile(f, fullgraph=True)(a, b)
    assert compiled.tolist() == f(a, b).tolist()
    compiled.sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == wanted


def test_results_of_other_strides_are_copied_and_of_another_shape_refused():
    @library.custom_op("mylib::transposed", mutates_args=())
    def transposed(x: Tensor) -> Tensor:
        return x.t().contiguous().t() * 1.0

    @library.custom_op("mylib::summed", mutates_args=())
    def summed(x: Tensor) -> Tensor:
        return x.sum()

    for operator in (transposed, summed):
        operator.register_fake(lambda x: wick.empty_like(x))
    x = wick.arange(6.0).reshape(2, 3)
    f = wick.compile(lambda x: transposed(x).view(-1) + 1, fullgraph=True)
    for _ in range(3):
        assert f(x).tolist() == [1, 2, 3, 4, 5, 6]
    with pytest.raises(RuntimeError, match="mylib::summed gave a result of another shape or dtype"):
        wick.compile(lambda x: summed(x) + 1)(x)


def test_errors_of_its_code():
    @library.custom_op("mylib::raising", mutates_args=())
    def raising(x: Tensor) -> Tensor:
        raise KeyError("no")

    raising.register_fake(lambda x: wick.empty_like(x))
    f = wick.compile(lambda x: raising(x) + 1)
    for _ in range(2):
        with pytest.raises(KeyError, match="no"):
            f(wick.ones(2))
    raising.register_fake(lambda x: {}["missing"])
    with pytest.raises(KeyError, match="missing"):
        wick.compile(lambda x: raising(x) + 2)(wick.ones(2))


def test_a_tensor_given_twice_stays_on_its_device():
    @library.custom_op("mylib::pair", mutates_args=())
    def pair(xs: typing.List[Tensor], y: Tensor) -> Tensor:  # noqa: UP006
        return xs[0] + y

    pair.register_fake(lambda xs, y: wick.empty_like(y))

    def f(x):
        y = x + 1
        return pair([x, y], y) * y

    assert wick.compile(f, fullgraph=True)(wick.ones(2)).tolist() == [6.0, 6.0]


def test_without_a_fake_its_code_is_captured():
    @library.custom_op("mylib::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    assert wick.compile(lambda x: twice(x) + 1, fullgraph=True)(wick.ones(2)).tolist() == [3.0, 3.0]

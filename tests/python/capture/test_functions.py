"""Programs' own derivatives (autograd.Function) in graphs whose histories go on outside."""

import pytest

import wick as torch
from wick.autograd import Function
from wick.autograd.function import once_differentiable


class Square(Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad * ctx.k, None


class KeepsResult(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y


class KeepsBetween(Function):
    @staticmethod
    def forward(ctx, x, w):
        inner = x @ w
        mask = inner > 0
        ctx.save_for_backward(x, w, mask)
        return torch.where(mask, inner, 0.1 * inner)

    @staticmethod
    def backward(ctx, grad):
        x, w, mask = ctx.saved_tensors
        grad = torch.where(mask, grad, 0.1 * grad)
        return grad @ w.t(), x.t() @ grad


class TwoResults(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        count = (x > 0).sum()
        ctx.mark_non_differentiable(count)
        return x.sin(), count, x.cos()

    @staticmethod
    def backward(ctx, of_sin, of_count, of_cos):
        (x,) = ctx.saved_tensors
        return of_sin * x.cos() - of_cos * x.sin()


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class OnceOnly(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return 3 * ctx.saved_tensors[0] ** 2 * grad


class Needs(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y if ctx.needs_input_grad[0] else None, grad * x if ctx.needs_input_grad[1] else None


class ByContext(Function):
    @staticmethod
    def forward(x, scale):
        return x.tanh() * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * (ctx.scale - y * y / ctx.scale), None


def leaf(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(len(sizes))).requires_grad_()


CASES = {
    "saves an input": (lambda x: Square.apply(x, 3.0).relu() + 1, (4, 5)),
    "saves its result": (lambda x: KeepsResult.apply(x * 0.5).sum(1), (4, 5)),
    "saves what lies between": (lambda x: KeepsBetween.apply(x, x.t()).sin(), (4, 4)),
    "two results": (lambda x: (lambda a, n, b: a * b + n)(*TwoResults.apply(x)), (4, 5)),
    "one of two results": (lambda x: TwoResults.apply(x)[2], (4, 5)),
    "gradient as it is": (lambda x: StraightThrough.apply(x * 3) * x, (4, 5)),
    "once": (lambda x: OnceOnly.apply(x).mean(), (4, 5)),
    "one behind the other": (lambda x: KeepsResult.apply(Square.apply(x.sigmoid(), 2.0)), (4, 5)),
    "the same twice": (lambda x: Square.apply(x, 1.0) * Square.apply(x + 1, 2.0), (4, 5)),
    "asks what is needed": (lambda x: Needs.apply(x, x.detach() + 1), (4, 5)),
    "setup_context": (lambda x: ByContext.apply(x, 2.0), (4, 5)),
    "written behind it": (lambda x: KeepsBetween.apply(x, x.t()).add_(1).mul(2), (4, 4)),
}


def gradients(function, x, loss=lambda y: (y * y).sum()):
    x = x.detach().clone().requires_grad_()
    y = function(x)
    loss(y).backward()
    return y.detach(), x.grad


def equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_history_goes_on_outside(name):
    function, sizes = CASES[name]
    compiled = torch.compile(function, fullgraph=True)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(*sizes)
        for got, expected in zip(gradients(compiled, x), gradients(function, x), strict=True):
            assert equal(got, expected)


@pytest.mark.parametrize("name", CASES)
def test_backward_in_the_region(name):
    function, sizes = CASES[name]

    def step(x):
        y = function(x)
        (y * y).sum().backward()
        grad = x.grad
        x.grad = None
        return y.detach(), grad

    compiled = torch.compile(step, fullgraph=True)
    x = leaf(*sizes)
    for _ in range(3):
        for got, expected in zip(compiled(x), step(x), strict=True):
            assert equal(got, expected)


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("once", "gradient as it is", "asks what is needed")])
def test_second_derivatives(name):
    function, sizes = CASES[name]

    def second(f, x):
        x = x.detach().clone().requires_grad_()
        (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first * first).sum(), x)[0]

    compiled = torch.compile(function, fullgraph=True)
    x = leaf(*sizes)
    for _ in range(3):
        assert equal(second(compiled, x), second(function, x))


def test_once_differentiable_refuses_the_second_derivative():
    compiled = torch.compile(lambda x: OnceOnly.apply(x).sum(), fullgraph=True)
    for _ in range(3):
        x = leaf(3)
        y = compiled(x)
        (first,) = torch.autograd.grad(y * y, x, create_graph=True)
        assert torch.equal(first, 3 * x.detach() ** 2 * (2 * y.detach()))
        with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with"):
            first.sum().backward()


def test_module():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(6, 4), torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.second(Square.apply(self.first(x), 0.5))

    torch.manual_seed(0)
    plain = Model()
    other = Model()
    other.load_state_dict(plain.state_dict())
    compiled = torch.compile(other, fullgraph=True)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (plain, other)]
    for _ in range(5):
        x = torch.randn(3, 6)
        for model, optimizer in zip((plain, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        for a, b in zip(plain.parameters(), other.parameters(), strict=True):
            assert torch.equal(a, b)


def test_no_gradient_is_wanted():
    compiled = torch.compile(lambda x: Square.apply(x, 2.0) + 1, fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0))
        with torch.no_grad():
            assert not compiled(leaf(3)).requires_grad


def test_backward_runs_as_often_as_in_eager():
    """One that does more than to compute is called by the tape alone."""
    calls = []

    class Counts(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            calls.append(grad.shape)
            return grad * 2

    compiled = torch.compile(lambda x: Counts.apply(x) + 1)
    for k in range(1, 5):
        x = leaf(3)
        compiled(x).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 2.0))
        assert len(calls) == k


def test_backward_that_draws_numbers():
    class Noisy(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.rand_like(grad)

    compiled = torch.compile(lambda x: Noisy.apply(x) + torch.rand(3))

    def run(f):
        torch.manual_seed(3)
        out = []
        for _ in range(3):
            x = leaf(3)
            y = f(x)
            y.sum().backward()
            out += [y.detach(), x.grad]
        return out

    for a, b in zip(run(compiled), run(lambda x: Noisy.apply(x) + torch.rand(3)), strict=True):
        assert torch.equal(a, b)


def test_backward_that_looks_at_values():
    class Looks(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * (3 if grad.sum().item() > 0 else 5)

    compiled = torch.compile(lambda x: Looks.apply(x) + 1)
    for sign in (1, -1, 1, -1):
        x = leaf(3)
        (sign * compiled(x)).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 3.0 if sign > 0 else -5.0))


def test_backward_that_sets_attributes_of_ctx():
    class Remembers(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.times = 0
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            ctx.times += 1
            return grad * ctx.times

    compiled = torch.compile(lambda x: Remembers.apply(x) + 1)
    for _ in range(4):
        x = leaf(3)
        y = compiled(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert torch.equal(x.grad, torch.full((3,), 3.0))


def test_backward_under_a_grad_mode_of_its_own():
    class Detached(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            with torch.no_grad():
                return 2 * ctx.saved_tensors[0] * grad

    compiled = torch.compile(lambda x: Detached.apply(x).sum())
    for _ in range(3):
        x = leaf(3)
        (first,) = torch.autograd.grad(compiled(x), x, create_graph=True)
        assert not first.requires_grad


def test_gradients_that_do_not_arrive():
    class Pair(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            assert b is not None
            return 2 * a + 3 * b

    class OrNone(Pair):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 if b is None else a * 2 + b * 3

    for pair in (Pair, OrNone):
        compiled = torch.compile(lambda x, pair=pair: pair.apply(x)[0] + 1, fullgraph=True)
        for _ in range(3):
            x = leaf(3)
            compiled(x).sum().backward()
            assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_changing_sizes():
    class Total(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.sum()

        @staticmethod
        def backward(ctx, grad):
            return grad.expand(ctx.shape)

    for dynamic in (None, True, False):
        compiled = torch.compile(
            lambda x: Total.apply(x * 2) + Square.apply(x, 2.0).sum(), fullgraph=True, dynamic=dynamic
        )
        for n in (3, 4, 5, 6, 4, 7):
            x = leaf(n, 2)
            compiled(x).backward()
            assert torch.equal(x.grad, 2 + 4 * x.detach())


def test_mark_dirty_and_views_are_as_before():
    class InPlace(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    class Reshaped(Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(-1)

        @staticmethod
        def backward(ctx, grad):
            return grad.view(2, 2)

    compiled = torch.compile(lambda x: InPlace.apply(x + 1) + Reshaped.apply(x).sum(), fullgraph=True)
    for _ in range(3):
        x = leaf(2, 2)
        compiled(x).sum().backward()
        assert torch.equal(x.grad, torch.full((2, 2), 6.0))
    written = torch.compile(lambda x: (InPlace.apply(x), x), fullgraph=True)
    for _ in range(3):
        x = leaf(2, 2)
        y = x + 0
        result, same = written(y)
        assert result is y and same is y and torch.equal(y, 2 * x) and y.grad_fn.name() == "InPlaceBackward"
        y.sum().backward()
        assert torch.equal(x.grad, torch.full((2, 2), 2.0))


def test_results_without_gradients():
    class Sorted(Function):
        @staticmethod
        def forward(ctx, x):
            values, order = x.sort()
            signs = x.sign()
            ctx.mark_non_differentiable(order, signs)
            ctx.save_for_backward(order)
            return values, order, signs

        @staticmethod
        def backward(ctx, grad, of_order, of_signs):
            (order,) = ctx.saved_tensors
            return torch.zeros_like(grad).index_add(0, order, grad)

    compiled = torch.compile(lambda x: Sorted.apply(x), fullgraph=True)
    for _ in range(3):
        x = torch.tensor([3.0, -1.0, 2.0], requires_grad=True)
        values, order, signs = compiled(x)
        assert [t.requires_grad for t in (values, order, signs)] == [True, False, False] and signs.is_leaf
        (values * torch.tensor([1.0, 2.0, 3.0]) + signs).sum().backward()
        assert x.grad.tolist() == [3.0, 1.0, 2.0] and order.tolist() == [1, 2, 0]
    assert compiled.captures == 1


def test_graph_text_names_the_function():
    seen = []

    def backend(module, inputs):
        seen.append(str(module.graph))
        return module

    compiled = torch.compile(lambda x: Square.apply(x, 2.0) + 1, backend=backend)
    x = leaf(3)
    compiled(x).sum().backward()
    assert torch.equal(x.grad, 4 * x.detach())
    assert any("SquareBackward" in text for text in seen)


def test_what_backward_changes_is_changed_by_backward_alone():
    class Counts(Function):
        @staticmethod
        def forward(ctx, x, items):
            ctx.items = items
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            ctx.items.append(1)
            return grad * len(ctx.items), None

    def f(x):
        items = []
        return Counts.apply(x, items), items

    compiled = torch.compile(f)
    for _ in range(3):
        x = leaf(3)
        y, items = compiled(x)
        assert items == []
        y.sum().backward()
        assert items == [1] and torch.equal(x.grad, torch.ones(3))


@pytest.mark.parametrize("of_input", [True, False])
def test_a_result_that_is_a_view_is_in_the_graph(of_input):
    class Reversed(Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            return grad.neg() * ctx.scale, None

    def f(x):
        y = x if of_input else x * 2
        return Reversed.apply(y, 0.5) * y + x

    compiled = torch.compile(f, fullgraph=True)
    for k in range(3):
        x, y = leaf(3), leaf(3)
        (f(x) * k).sum().backward()
        (compiled(y) * k).sum().backward()
        assert torch.equal(x.grad, y.grad)
    assert compiled.captures == 1


def test_what_the_region_gives_away_may_change_behind_apply():
    class Keeps:
        pass

    keeps = Keeps()

    def f(x):
        keeps.seen = []
        for _ in range(3):
            x = Square.apply(x, 2.0)
            keeps.seen.append(x.detach())
        return x

    compiled = torch.compile(f, fullgraph=True)
    for _ in range(3):
        x, y = leaf(3), leaf(3)
        f(x).sum().backward()
        compiled(y).sum().backward()
        assert torch.equal(x.grad, y.grad) and len(keeps.seen) == 3
    assert compiled.captures == 1

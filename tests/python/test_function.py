"""autograd.Function in all its forms: what ctx offers, what backward may return, who keeps whom alive."""

import gc
import weakref

import pytest

import wick
from wick.autograd import Function, grad, gradcheck, gradgradcheck
from wick.autograd.function import once_differentiable


def leaf(*values):
    return wick.tensor(values, dtype=wick.float64).requires_grad_()


def close(tensor, expected):
    got = tensor.detach().reshape(-1).tolist()
    expected = expected if isinstance(expected, list) else [expected]
    assert got == pytest.approx(expected, abs=1e-12), (got, expected)
    return True


def function(forward, backward=lambda ctx, *g: g[0], **attributes):
    """A Function class named F."""
    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(Function)("F", (Function,), body | attributes)


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Mul(Function):
    """With setup_context, a number, and a default."""

    @staticmethod
    def forward(x, w, factor=1):
        return x * w * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.factor = inputs
        ctx.save_for_backward(x, w)
        assert not wick.is_grad_enabled()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w * ctx.factor, g * x * ctx.factor, None


def test_gradients():
    x, w = leaf(0.5, 1.0), leaf(2.0, 3.0)
    y = Exp.apply(x)
    assert repr(y.grad_fn).startswith("<torch.autograd.function.ExpBackward object at 0x")
    assert y.grad_fn.name() == "ExpBackward" and y.grad_fn is y.grad_fn and "grad_fn=<ExpBackward>" in repr(y)
    assert [n.name() for n, _ in y.grad_fn.next_functions] == ["torch::autograd::AccumulateGrad"]
    y.sum().backward()
    close(x.grad, x.exp().tolist())
    assert gradcheck(Exp.apply, (x,)) and gradgradcheck(Exp.apply, (x,))
    assert gradcheck(Mul.apply, (x, w)) and gradgradcheck(lambda a, b: Mul.apply(a, b, 3), (x, w))
    dx, dw = grad(Mul.apply(x, w=w, factor=2).sum(), (x, w))
    assert close(dx, [4.0, 6.0]) and close(dw, [1.0, 2.0])


def test_needs_input_grad_and_none():
    seen = []
    F = function(
        lambda ctx, x, k, w: x * k + w, lambda ctx, g: (seen.append(ctx.needs_input_grad), g * 3, None, None)[1:]
    )
    x, w = leaf(1.0), wick.ones(1, dtype=wick.float64)
    y = F.apply(x, 3, w)
    y.backward()
    assert seen == [(True, False, False)] and close(x.grad, 3.0) and w.grad is None
    assert not F.apply(w, 3, w).requires_grad
    with wick.no_grad():
        assert not F.apply(x, 3, w).requires_grad


def test_nothing_is_recorded_in_forward():
    modes = []
    F = function(lambda ctx, x: (modes.append(wick.is_grad_enabled()), x * 2)[1], lambda ctx, g: g * 2)
    x = leaf(1.0)
    F.apply(x)
    assert modes == [False] and wick.is_grad_enabled()

    def fail(ctx, x):
        raise KeyError("no")

    with pytest.raises(KeyError):
        function(fail).apply(x)
    assert wick.is_grad_enabled()


def test_several_results():
    grads = []

    def backward(ctx, *g):
        grads.append(g)
        return g[0] * 2 if g[2] is None else g[0] * 2 + g[2] * 3

    x = leaf(1.0, 2.0)
    F = function(lambda ctx, x: (x * 2, "text", x * 3), backward)
    a, text, b = F.apply(x)
    assert text == "text" and a.output_nr == 0 and b.output_nr == 2 and a.grad_fn is b.grad_fn
    (a.sum() + b.sum()).backward()
    close(x.grad, [5.0, 5.0])
    F.apply(x)[0].sum().backward()  # the other gradient is made of zeros
    assert grads[1][1] is None and close(grads[1][2], [0.0, 0.0]) and close(x.grad, [7.0, 7.0])

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, None, x * 3

    function(forward, backward).apply(x)[0].sum().backward()
    assert grads[2][1:] == (None, None)


def test_non_differentiable_results():
    def forward(ctx, x):
        index = (x > 1).to(wick.int64)
        mask = x * 0
        ctx.mark_non_differentiable(mask)
        return x * 2, index, mask

    y, index, mask = function(forward, lambda ctx, *g: g[0] * 2).apply(leaf(1.0, 2.0))
    assert y.requires_grad and not index.requires_grad and not mask.requires_grad and mask.grad_fn is None


def test_input_as_result():
    x = leaf(1.0)
    y = function(lambda ctx, x: x, lambda ctx, g: g * 5).apply(x)
    assert y is not x and y.data_ptr() == x.data_ptr() and x.is_leaf and y.grad_fn.name() == "FBackward"
    y.backward()
    close(x.grad, 5.0)
    with pytest.raises(
        RuntimeError, match="Output 0 of F is a view and is being modified inplace. This view was created"
    ):
        y.add_(1)
    a, b = function(lambda ctx, x: (x[:1], x[1:])).apply(leaf(1.0, 2.0))
    with pytest.raises(RuntimeError, match="This view is the output of a function that returns multiple views."):
        b.add_(1)
    plain = wick.ones(1)
    assert function(lambda ctx, x: x).apply(plain) is not plain


def test_mark_dirty():
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    F = function(forward, lambda ctx, g: g * 2)
    x = leaf(1.0, 2.0)
    y = x * 3
    version = y._version
    assert F.apply(y) is y and y.grad_fn.name() == "FBackward" and y._version > version
    y.sum().backward()
    close(x.grad, [6.0, 6.0])
    base = leaf(1.0, 2.0) * 1
    F.apply(base[0])
    assert base.grad_fn.name() == "torch::autograd::CopySlices"
    with pytest.raises(
        RuntimeError, match="a leaf Variable that requires grad has been used in an in-place operation."
    ):
        F.apply(x)

    def copies(ctx, x):
        ctx.mark_dirty(x)
        return x.clone()

    with pytest.raises(RuntimeError, match="Some elements marked as dirty during the forward method were not returned"):
        function(copies).apply(x * 1)


def test_dirty_view_has_the_right_gradient():
    def forward(ctx, v):
        v.mul_(5)
        ctx.mark_dirty(v)
        return v

    x = leaf(1.0, 2.0)
    base = x * 3
    function(forward, lambda ctx, g: g * 5).apply(base[1:])
    (base * base).sum().backward()
    close(x.grad, [2 * 3 * 3, 2 * 30 * 5 * 3])


@pytest.mark.parametrize("count", [64, 100, 1000])
def test_a_dirty_view_beside_many_inputs(count):
    def forward(ctx, v, *others):
        v.mul_(2)
        ctx.mark_dirty(v)
        return v

    base, others = leaf(1.0, 2.0) * 1, [leaf(float(k)) for k in range(count)]
    function(forward, lambda ctx, g: (g * 2, *(g[:1] * k for k in range(count)))).apply(base[1:], *others)
    base.sum().backward()
    assert [o.grad.tolist() for o in others] == [[float(k)] for k in range(count)]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ((None,), r"function FBackward returned an incorrect number of gradients \(expected 2, got 1\)"),
        ((None, None, 1), r"returned an incorrect number of gradients \(expected 2, got 3\)"),
        (wick.ones(3), r"returned an incorrect number of gradients \(expected 2, got 1\)"),
        ((None, 1), "function FBackward returned a gradient different than None at position 2, but the corresponding"),
        ((1, None), r"expected Variable or None \(got int\)"),
        (
            (wick.ones(2), None),
            r"Function FBackward returned an invalid gradient at index 0 - got \[2\] but expected shape compatible with \[3\]",
        ),
    ],
)
def test_wrong_gradients(result, text):
    F = function(lambda ctx, x, k: x * k, lambda ctx, g: result)
    with pytest.raises(RuntimeError, match=text):
        F.apply(leaf(1.0, 2.0, 3.0), 2).sum().backward()


def test_gradients_are_fitted():
    F = function(lambda ctx, x: x * 1, lambda ctx, g: (wick.ones(2, 3), None, None))
    x = leaf(1.0, 2.0, 3.0)
    F.apply(x).sum().backward()  # broadcast and single precision
    assert close(x.grad, [2.0, 2.0, 2.0]) and x.grad.dtype is wick.float64


@pytest.mark.parametrize(
    ("forward", "kind", "text"),
    [
        (
            lambda ctx, x: (ctx.save_for_backward(3), x * 1)[1],
            TypeError,
            "can only save variables, but argument 0 is of type int",
        ),
        (lambda ctx, x: (ctx.mark_dirty(3), x * 1)[1], RuntimeError, "mark_dirty can only accept variables"),
        (
            lambda ctx, x: (ctx.mark_non_differentiable(3), x * 1)[1],
            RuntimeError,
            "mark_non_differentiable only accepts",
        ),
    ],
)
def test_wrong_marks(forward, kind, text):
    with pytest.raises(kind, match=text):
        function(forward).apply(leaf(1.0))


def test_saved_tensors():
    def forward(ctx, x, w):
        y = x * w
        ctx.save_for_backward(x, None, y)
        return y

    F = function(forward, lambda ctx, g: (ctx.saved_tensors[2], None))
    x, w = leaf(2.0), leaf(3.0)
    y = F.apply(x, w)
    a, none, b = y.grad_fn.saved_tensors
    assert a is x and none is None and close(b, 6.0) and b.grad_fn is y.grad_fn
    y.backward(retain_graph=True)
    y.backward()
    assert close(x.grad, 12.0)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        _ = y.grad_fn.saved_tensors
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    z = x * 1
    y = F.apply(z, w)
    z.add_(1)
    with pytest.raises(RuntimeError, match=r"which is output 0 of Add, is at version 1; expected version 0 instead"):
        y.backward()
    y = F.apply(x, w)
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"which is output 0 of F, is at version 1; expected version 0 instead"):
        y.backward()


def test_function_without_saved_tensors_runs_again():
    x = leaf(1.0)
    y = function(lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(x)
    y.backward()
    y.backward()
    close(x.grad, 4.0)


def test_backward_sees_zeros_when_nothing_came():
    first = function(lambda ctx, x: x * 1, lambda ctx, g: (seen.append(g), g)[1])
    second = function(lambda ctx, x: x * 1, lambda ctx, g: None)
    seen = []
    x = leaf(1.0)
    second.apply(first.apply(x)).backward()
    assert close(seen[0], 0.0)


def test_once_differentiable():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x * 2

    x = leaf(3.0)
    (dx,) = grad(Square.apply(x), x)
    close(dx, 6.0)
    w = leaf(1.0)
    (dx,) = grad(Square.apply(x) * w, x, create_graph=True)
    with pytest.raises(RuntimeError, match="trying to differentiate twice a function that was marked with"):
        dx.backward()


def test_vjp_and_missing_methods():
    class Vjp(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = leaf(1.0)
    Vjp.apply(x).backward()
    close(x.grad, 2.0)

    class Neither(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    with pytest.raises(NotImplementedError, match="You must implement either the backward or vjp method"):
        Neither.apply(x).backward()
    with pytest.raises(NotImplementedError, match="You must implement the forward function"):
        Function.apply(x)
    with pytest.raises(TypeError, match=r"forward\(\) got an unexpected keyword argument 'k'"):
        Exp.apply(x, k=3)
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(RuntimeError, match="Legacy autograd function with non-static"),
    ):
        Exp()(x)


def test_backward_inside_backward():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x * x).detach()

    def backward(ctx, g):
        with wick.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            y = x * x * x
        y.backward(g)
        return x.grad

    x = leaf(2.0)
    function(forward, backward).apply(x).backward()
    close(x.grad, 12.0)


def test_backward_that_raises():
    def backward(ctx, g):
        raise KeyError("no")

    x = leaf(1.0)
    with pytest.raises(KeyError, match="no"):
        function(lambda ctx, x: x * 1, backward).apply(x).backward()
    assert x.grad is None and wick.is_grad_enabled()


def test_hooks_of_function_nodes():
    x = leaf(1.0)
    y = function(lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(x)
    y.grad_fn.register_prehook(lambda g: (g[0] * 10,))
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] + 1,))
    y.register_hook(lambda g: g * 3)
    y.backward()
    close(x.grad, 61.0)


# ---- lifetimes ----


def test_nothing_outlives_the_results():
    gc.disable()
    try:
        for save in ("input", "result"):

            def forward(ctx, x, save=save):
                y = x * 2
                ctx.save_for_backward(x if save == "input" else y)
                return y

            x = leaf(1.0)
            y = function(forward).apply(x * 1)
            context, result = weakref.ref(y.grad_fn), weakref.ref(y)
            del y
            assert context() is None and result() is None
    finally:
        gc.enable()


def test_context_after_its_node_is_gone():
    y = Exp.apply(leaf(1.0))
    context = y.grad_fn
    del y
    with pytest.raises(RuntimeError, match="Attribute 'next_functions' is invalid for this instance"):
        _ = context.next_functions
    assert close(context.saved_tensors[0], 2.718281828459045)


def test_cycles_are_collected():
    def forward(ctx, x):
        y = x * 2
        ctx.result = y  # y -> node -> ctx -> y
        return y

    y = function(forward).apply(leaf(1.0))
    context = weakref.ref(y.grad_fn)
    del y
    gc.collect()
    assert context() is None


def test_long_chain():
    x = leaf(1.0)
    F = function(lambda ctx, x: x * 1)
    y = x
    for _ in range(20_000):
        y = F.apply(y)
    y.backward()
    close(x.grad, 1.0)
    del y

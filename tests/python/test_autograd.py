"""Gradients through Python: backward and grad, hooks, in-place writes, grad modes, gradcheck."""

import contextlib
import gc
import math
import sys
import threading
import warnings
import weakref

import pytest

import wick
from wick.autograd import grad, gradcheck, gradgradcheck
from wick.nn import functional as F


def leaf(*values):
    return wick.tensor(values, dtype=wick.float64).requires_grad_()


def close(tensor, expected):
    got = tensor.detach().reshape(-1).tolist()
    expected = expected if isinstance(expected, list) else [expected]
    assert got == pytest.approx(expected, abs=1e-12), (got, expected)
    return True


# ---- backward and grad ----


def test_long_chain():
    x = leaf(2.0)
    y = x
    for _ in range(100_000):
        y = y + 1
    y.backward()
    close(x.grad, 1.0)


def test_backward_adds_to_grad():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    (x * x).sum().backward()
    close(x.grad, [4.0, 8.0])
    x.grad = None
    assert x.grad is None
    (x * x).backward(wick.tensor([1.0, 10.0], dtype=wick.float64))
    close(x.grad, [2.0, 40.0])


def test_several_outputs_and_inputs():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    dx, dw = grad([(x * w).sum(), (x * x).sum()], [x, w])
    assert close(dx, [5.0, 8.0]) and close(dw, [1.0, 2.0])
    assert x.grad is None and w.grad is None
    by_name = grad((x * w).sum(), {"x": x, "w": w})
    assert list(by_name) == ["x", "w"] and close(by_name["w"], [1.0, 2.0])
    wick.autograd.backward([(x * w).sum(), x * x], [None, wick.ones(2, dtype=wick.float64)], inputs=[x])
    assert close(x.grad, [5.0, 8.0]) and w.grad is None


def test_unused_inputs():
    x, w = leaf(1.0), leaf(2.0)
    with pytest.raises(RuntimeError, match="The differentiated Tensor at index 1 appears to not have been used"):
        grad((x * 2).sum(), [x, w])
    dx, dw = grad((x * 2).sum(), [x, w], allow_unused=True)
    assert close(dx, 2.0) and dw is None
    dx, dw = grad((x * 2).sum(), [x, w], materialize_grads=True)
    assert close(dw, 0.0)
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
        grad((x * 2).sum(), [x, w], materialize_grads=True, allow_unused=False)


def test_retain_graph():
    x = leaf(3.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    close(x.grad, 12.0)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    z = (x + 1).sum()  # saves nothing, so nothing is gone
    z.backward()
    z.backward()


def test_higher_derivatives():
    x = leaf(2.0, 3.0)
    (first,) = grad((x**4).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x, create_graph=True)
    (third,) = grad(second.sum(), x)
    assert close(first, [32.0, 108.0]) and close(second, [48.0, 108.0]) and close(third, [48.0, 72.0])
    (x * x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    (again,) = grad(x.grad.sum(), x)
    close(again, [12.0, 18.0])
    x.grad = None


def test_gradient_of_an_intermediate_whose_graph_is_gone():
    x = leaf(1.0)
    h = x.exp()
    h.sum().backward()
    (dh,) = grad((h * h).sum(), h)
    close(dh, 2 * h.item())


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            lambda x: wick.ones(1).backward(),
            RuntimeError,
            "element 0 of tensors does not require grad and does not have",
        ),
        (lambda x: (x * 2).backward(), RuntimeError, "grad can be implicitly created only for scalar outputs"),
        (
            lambda x: (x * 2).backward(wick.ones(2)),
            RuntimeError,
            r"Mismatch in shape: grad_output\[0\] has a shape of torch.Size\(\[2\]\) and output\[0\] has a shape of "
            r"torch.Size\(\[3\]\)\.",
        ),
        (
            lambda x: grad((x * 2).sum(), wick.ones(3)),
            RuntimeError,
            "One of the differentiated Tensors does not require grad",
        ),
        (lambda x: grad(x.sum(), []), RuntimeError, r"`inputs` argument to `grad\(\)` cannot be empty."),
        (lambda x: x.sum().backward(inputs=[]), RuntimeError, r"`inputs` argument to `backward\(\)` cannot be empty."),
        (
            lambda x: x.sum().backward(inputs=[3]),
            RuntimeError,
            "all inputs have to be Tensors or GradientEdges, but got int",
        ),
        (
            lambda x: x.add_(1),
            RuntimeError,
            "a leaf Variable that requires grad is being used in an in-place operation.",
        ),
        (
            lambda x: x[0].add_(1),
            RuntimeError,
            "a view of a leaf Variable that requires grad is being used in an in-place",
        ),
        (
            lambda x: (x * 2).requires_grad_(False),
            RuntimeError,
            "you can only change requires_grad flags of leaf variables",
        ),
        (lambda x: x.requires_grad_(3), TypeError, "argument 'requires_grad' .position 1. must be bool, not int"),
        (lambda x: setattr(x, "requires_grad", 3), RuntimeError, "requires_grad must be a bool"),
        (
            lambda x: setattr(x, "grad", 1),
            TypeError,
            "assigned grad expected to be a Tensor or None but got grad of type int",
        ),
        (
            lambda x: setattr(x, "grad", wick.ones(2, dtype=x.dtype)),
            RuntimeError,
            r"a gradient of size '\[2\]' to a tensor of size '\[3\]'",
        ),
        (
            lambda x: setattr(x, "grad", wick.ones(3)),
            RuntimeError,
            "with dtype 'float' to a tensor with grad_dtype 'Double'",
        ),
        (lambda x: setattr(x, "grad", x), RuntimeError, "can't assign Variable as its own grad"),
        (lambda x: setattr(x, "data", 1), TypeError, "Variable data has to be a tensor, but got int"),
        (lambda x: (x * 2)[0].detach_(), RuntimeError, "Can't detach views in-place. Use detach"),
        (lambda x: wick.ones(2).register_hook(print), RuntimeError, "cannot register a hook on a tensor that doesn't"),
        (
            lambda x: wick.ones(2).retain_grad(),
            RuntimeError,
            "can't retain_grad on Tensor that has requires_grad=False",
        ),
        (lambda x: (x * 2).register_post_accumulate_grad_hook(print), RuntimeError, "cannot be registered on non-leaf"),
        (lambda x: wick.ones(2, dtype=wick.int64).requires_grad_(), RuntimeError, "only Tensors of floating point"),
    ],
)
def test_errors(call, kind, text):
    with pytest.raises(kind, match=text):
        call(leaf(1.0, 2.0, 3.0))


def test_remainder():
    """By both: a - b floor(a / b)."""
    a, b = leaf(7.5, -7.5, 3.0), leaf(2.0, 2.0, -2.0)
    (a % b).sum().backward()
    close(a.grad, [1.0, 1.0, 1.0])
    close(b.grad, [-3.0, 4.0, 2.0])
    b.grad = None
    wick.remainder(wick.tensor([7, -7, 3]), b).sum().backward()
    close(b.grad, [-3.0, 4.0, 2.0])


@pytest.mark.parametrize("join", [wick.cat, wick.stack])
def test_joined_dtypes(join):
    """Each gradient in the dtype of its tensor, whatever the result has."""
    x, y = wick.ones(2, 2, requires_grad=True), wick.ones(2, 2, dtype=wick.float64, requires_grad=True)
    z = x * 2
    joined = join([z, y, z])
    assert joined.dtype == wick.float64
    (joined * 3).sum().backward()
    assert x.grad.dtype == wick.float32 and x.grad.tolist() == [[12.0] * 2] * 2
    assert y.grad.dtype == wick.float64 and y.grad.tolist() == [[3.0] * 2] * 2


# ---- attributes ----


def test_nodes():
    x, w = leaf(1.0), leaf(2.0)
    y = x * w
    node = y.grad_fn
    assert node is y.grad_fn and repr(node).startswith("<MulBackward0 object at 0x") and node.name() == "MulBackward0"
    assert type(node).__name__ == "MulBackward0" and isinstance(node, wick.autograd.graph.Node)
    (of_x, of_w) = (n for n, index in node.next_functions if index == 0)
    assert type(of_x).__name__ == "AccumulateGrad" and of_x.variable is x and of_w.variable is w
    assert of_x.next_functions == () and not hasattr(node, "variable")
    assert (y * y).grad_fn._sequence_nr() > node._sequence_nr()
    node.metadata["key"] = 1
    assert y.grad_fn.metadata == {"key": 1}
    assert x.is_leaf and not y.is_leaf and y.output_nr == 0 and x.grad_fn is None
    again = weakref.ref(node)
    del node
    assert again() is None and y.grad_fn.metadata == {"key": 1}


def test_grad_of_intermediates():
    x = leaf(3.0)
    y = x * 2
    with pytest.warns(UserWarning, match="The .grad attribute of a Tensor that is not a leaf"):
        assert y.grad is None
    y.retain_grad()
    assert y.retains_grad and not x.retains_grad
    (y * y).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(y.grad, 12.0)
    del x.grad
    assert x.grad is None


def test_data():
    x = leaf(1.0, 2.0)
    data = x.data
    assert not data.requires_grad and data.is_leaf and data._version == 0
    y = (x * x).sum()
    data[0] = 5.0  # seen by x and not counted
    assert x._version == 0 and close(x, [5.0, 2.0])
    y.backward()
    close(x.grad, [10.0, 4.0])
    x.data = wick.zeros(3, dtype=wick.float32)
    assert x.shape == (3,) and x.dtype is wick.float32 and x.requires_grad
    with pytest.raises(RuntimeError, match="data set to a tensor that requires gradients must be floating point"):
        x.data = wick.zeros(3, dtype=wick.int64)


def test_detach():
    x = leaf(1.0)
    y = x * 2
    d = y.detach()
    assert not d.requires_grad and d.is_leaf and y.requires_grad
    assert y.detach_() is y and y.is_leaf and not y.requires_grad and y.grad_fn is None


# ---- in-place writes and views ----


def test_versions():
    x = leaf(1.0, 2.0)
    y = x + 1
    z = (y * y).sum()
    assert y._version == 0
    y.add_(1)
    assert y._version == 1
    text = (
        r"has been modified by an inplace operation: \[torch.DoubleTensor \[2\]\], which is output 0 of Add, is at "
        r"version 1; expected version 0 instead. Hint: enable anomaly detection to find the operation that failed to "
        r"compute its gradient, with torch.autograd.set_detect_anomaly\(True, check_nan=False\)."
    )
    with pytest.raises(RuntimeError, match=text):
        z.backward()
    e = x.exp()
    total = e.sum()
    e.add_(1)
    with pytest.raises(RuntimeError, match="which is output 0 of Exp, is at version 1"):
        total.backward()


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("compiled", [False, True])
def test_write_through_a_view_of_rows_with_gaps_between(columns, compiled):
    def loss(x, w):
        base = x[:, :columns].detach()
        base[..., ::2].sub_(w[:, : (columns + 1) // 2], alpha=2)
        return (base.narrow(-1, 0, 1) * wick.arange(1.0, 6.0)[:, None]).sum()

    x, w = wick.ones(5, 4), wick.ones(5, 2, requires_grad=True)
    (wick.compile(loss) if compiled else loss)(x, w).backward()
    assert w.grad[:, 0].tolist() == [-2.0, -4.0, -6.0, -8.0, -10.0] and not w.grad[:, 1].any()


def test_write_through_a_view():
    x, w = leaf(1.0, 2.0, 3.0), leaf(5.0, 7.0)
    base = x * 2
    view = base[:2]
    assert view._base is base and view._is_view()
    view.mul_(w)
    assert base.grad_fn.name() == "torch::autograd::CopySlices" and view.grad_fn.name() == "AsStridedBackward0"
    (base * base).sum().backward()
    assert close(x.grad, [200.0, 784.0, 24.0]) and close(w.grad, [40.0, 224.0])


def test_view_gradient_after_the_base_was_written():
    x = leaf(1.0, 2.0, 3.0)
    base = x * 1
    view = base[1:]
    base.mul_(wick.tensor([2.0, 3.0, 4.0], dtype=wick.float64))
    view.sum().backward()
    close(x.grad, [0.0, 3.0, 4.0])


def test_constant_base_takes_a_gradient():
    w = leaf(1.0, 2.0)
    buffer = wick.zeros(4, dtype=wick.float64)
    row = buffer[1:3]
    row.copy_(w)
    row.mul_(3)
    assert buffer.requires_grad and not buffer.is_leaf
    (buffer * wick.tensor([1.0, 2.0, 3.0, 4.0], dtype=wick.float64)).sum().backward()
    close(w.grad, [6.0, 9.0])


def test_item_assignment():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    y[1] = x[0] * 10
    y.sum().backward()
    close(x.grad, [11.0, 0.0, 1.0])


def multiplied_by_its_view(w):
    a = w * 1
    a.mul_(a[:])
    return a


def view_multiplied_by_its_base(w):
    a = w * 1
    a[:].mul_(a)
    return a


def view_multiplied_by_a_view(w):
    a = w * 1
    a[:2].mul_(a[1:] if w.numel() > 3 else a[:2])
    return a


@pytest.mark.parametrize("write", [multiplied_by_its_view, view_multiplied_by_its_base, view_multiplied_by_a_view])
@pytest.mark.parametrize("packed", [False, True])
def test_writes_that_keep_a_relative_make_no_cycle(write, packed):
    """The memory of the leaf is given back when the results are gone."""
    hooks = wick.autograd.graph.saved_tensors_hooks
    memory = bytearray(12)
    gc.disable()
    try:
        before = sys.getrefcount(memory)
        w = wick.frombuffer(memory, dtype=wick.float32).requires_grad_()
        with hooks(lambda t: t, lambda t: t) if packed else contextlib.nullcontext():
            a = write(w)
        assert sys.getrefcount(memory) > before
        del w, a
        assert sys.getrefcount(memory) == before
    finally:
        gc.enable()


def test_kept_relatives_are_named():
    w = wick.ones(3, requires_grad=True)
    for write, name in ((multiplied_by_its_view, "AsStrided"), (view_multiplied_by_its_base, "CopySlices")):
        with pytest.raises(RuntimeError, match=f"which is output 0 of .*{name}, is at version 1; expected version 0"):
            write(w).sum().backward()


# ---- hooks ----


def test_tensor_hooks():
    x = leaf(3.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    handle = y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: seen.append(g.item()))
    (y * 5).sum().backward(retain_graph=True)
    assert seen == [5.0, 50.0] and close(x.grad, 100.0)
    handle.remove()
    (y * 5).sum().backward()
    assert seen == [5.0, 50.0, 5.0, 5.0] and close(x.grad, 110.0)


def test_hook_that_removes_hooks():
    x = leaf(1.0)
    calls = []
    first = x.register_hook(lambda g: (calls.append("first"), first.remove(), second.remove())[0])
    second = x.register_hook(lambda g: calls.append("second"))
    (x * 2).sum().backward()
    (x * 2).sum().backward()
    assert calls == ["first", "second"]
    with x.register_hook(lambda g: g * 0):
        (x * 2).sum().backward()
    close(x.grad, 4.0)


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (1, TypeError, "expected Variable, but hook returned 'int'"),
        (wick.ones(2, dtype=wick.float64), RuntimeError, "hook '<lambda>' has changed the size of value"),
        (wick.ones(1), RuntimeError, r"has changed the type of value \(was torch.DoubleTensor got torch.FloatTensor\)"),
    ],
)
def test_wrong_hook_results(result, kind, text):
    x = leaf(1.0)
    y = x * 2
    y.register_hook(lambda g: result)
    with pytest.raises(kind, match=text):
        y.sum().backward()


def test_hook_that_raises():
    x = leaf(1.0)
    y = x * 2

    def refuse(g):
        raise KeyError("no")

    y.register_hook(refuse)
    with pytest.raises(KeyError, match="no"):
        y.sum().backward()
    assert x.grad is None and wick.is_grad_enabled()


def test_post_accumulate_hooks():
    x = leaf(1.0, 2.0)
    seen = []

    def step(p):
        seen.append(p.grad.tolist())
        with wick.no_grad():
            p.sub_(p.grad)
        p.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    (x * 3).sum().backward()
    assert seen == [[3.0, 3.0]] and x.grad is None and close(x, [-2.0, -1.0])
    handle.remove()
    (x * 3).sum().backward()
    assert len(seen) == 1 and close(x.grad, [3.0, 3.0])
    x.register_post_accumulate_grad_hook(lambda p: 1)
    with pytest.raises(RuntimeError, match="Tensor post accumulate grad hooks should return None."):
        (x * 3).sum().backward()


def test_node_hooks():
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    seen = []
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append((len(inputs), outputs[0].item())))
    handle = y.grad_fn.register_hook(lambda inputs, outputs: tuple(None if g is None else g + 1 for g in inputs))
    y.sum().backward(retain_graph=True)
    assert seen[0][1] == 2.0 and close(x.grad, 7.0) and close(w.grad, 5.0)
    handle.remove()
    y.grad_fn.register_prehook(lambda grads: 3)
    with pytest.raises(TypeError, match="expected tuple, but hook returned 'int'"):
        y.sum().backward()


def test_backward_inside_a_hook():
    a, x = leaf(2.0), leaf(3.0)
    other = (a * a).sum()
    y = x * 1
    y.register_hook(lambda g: other.backward())
    (y * y).sum().backward()
    assert close(a.grad, 4.0) and close(x.grad, 6.0)


def test_hooks_do_not_leak():
    class Marker:
        pass

    x = leaf(1.0)
    y = x * 2
    marker = Marker()
    y.register_hook(lambda g, m=marker, t=y: None)  # a cycle: y -> node -> hook -> y
    x.register_post_accumulate_grad_hook(lambda p, m=marker, t=x: None)
    gone = weakref.ref(marker)
    del marker, x, y
    gc.collect()  # frees y and its graph,
    gc.collect()  # which alone held x besides its own cycle
    assert gone() is None


def test_graph_is_freed_without_the_collector():
    gc.disable()
    try:
        x = leaf(1.0)
        x.grad = None
        y = (x * 2).exp()
        gone = weakref.ref(y.grad_fn)
        node = weakref.ref(y)
        loss = y.sum()
        loss.backward()
        del y, loss
        assert gone() is None and node() is None
    finally:
        gc.enable()


# ---- grad modes ----


def test_modes_nest():
    assert wick.is_grad_enabled()
    with wick.no_grad():
        assert not wick.is_grad_enabled()
        with wick.enable_grad():
            assert wick.is_grad_enabled()
            with wick.set_grad_enabled(False):
                assert not wick.is_grad_enabled()
            assert wick.is_grad_enabled()
        assert not wick.is_grad_enabled()
    assert wick.is_grad_enabled()
    with pytest.raises(KeyError), wick.no_grad():
        raise KeyError
    assert wick.is_grad_enabled()
    wick.set_grad_enabled(False)
    assert not wick.is_grad_enabled()
    wick.set_grad_enabled(True)
    with wick.inference_mode():
        assert wick.is_inference_mode_enabled() and not wick.is_grad_enabled()
        with wick.no_grad():
            assert wick.is_inference_mode_enabled()
        with wick.inference_mode(False):
            assert not wick.is_inference_mode_enabled() and wick.is_grad_enabled()
    assert not wick.is_inference_mode_enabled()
    assert not (leaf(1.0) * 2).detach().requires_grad


def test_modes_as_decorators():
    @wick.no_grad()
    def called(a, *, b=1):
        """text"""
        return wick.is_grad_enabled(), a, b

    @wick.no_grad
    def plain():
        return wick.is_grad_enabled()

    @wick.set_grad_enabled(False)
    def switched():
        return wick.is_grad_enabled()

    @wick.inference_mode
    def inference():
        return wick.is_inference_mode_enabled()

    @wick.no_grad()
    def recursive(n):
        return wick.is_grad_enabled() if n == 0 else recursive(n - 1)

    class Model:
        @wick.enable_grad()
        def method(self):
            return wick.is_grad_enabled()

    assert called(2, b=3) == (False, 2, 3) and called.__name__ == "called" and called.__doc__ == "text"
    assert plain() is False and switched() is False and inference() is True and recursive(3) is False
    with wick.no_grad():
        assert Model().method() is True
        assert not wick.is_grad_enabled()
    assert wick.is_grad_enabled()


def test_generators():
    @wick.no_grad()
    def numbers():
        got = yield wick.is_grad_enabled()
        try:
            yield got, wick.is_grad_enabled()
        except ValueError:
            yield "caught", wick.is_grad_enabled()
        return "end"

    steps = numbers()
    assert next(steps) is False and wick.is_grad_enabled()
    assert steps.send(7) == (7, False) and wick.is_grad_enabled()
    assert steps.throw(ValueError()) == ("caught", False) and wick.is_grad_enabled()
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == "end" and wick.is_grad_enabled()
    steps = numbers()
    next(steps)
    steps.close()
    assert wick.is_grad_enabled()


def test_threads_have_their_own_mode():
    x, results = leaf(2.0), []

    def work():
        results.append(wick.is_grad_enabled())
        for _ in range(50):
            y = leaf(3.0)
            (y * y).sum().backward()
            results.append(y.grad.item() == 6.0)
            with wick.no_grad():
                results.append(not (x * 2).requires_grad)

    with wick.no_grad():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(results) == 4 * 101 and all(results)


# ---- the rest ----


def test_gradcheck():
    x, w = leaf(0.3, -0.7, 1.1), leaf(0.5, 2.0, -1.5)
    assert gradcheck(lambda a, b: (a * b).exp(), (x, w))
    assert gradcheck(lambda a: (a.sum(), a * a), x)
    assert gradgradcheck(lambda a, b: (a * a * b).exp(), (x, w))

    class Wrong(wick.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a * 2

        @staticmethod
        def backward(ctx, g):
            return g * 3

    with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(Wrong.apply, (x,))
    assert gradcheck(Wrong.apply, (x,), raise_exception=False) is False
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda a: a, (x.detach(),))


def test_variable_and_anomaly_mode():
    x = wick.autograd.Variable(wick.ones(2), requires_grad=True)
    assert x.requires_grad and isinstance(x, wick.Tensor) and isinstance(wick.ones(1), wick.autograd.Variable)
    with wick.autograd.set_detect_anomaly(True):
        assert wick.autograd.is_anomaly_enabled()
    with wick.autograd.detect_anomaly():
        assert wick.autograd.is_anomaly_enabled()
    assert not wick.autograd.is_anomaly_enabled()


def test_layer_norm_of_one_row():
    """All dims are normalized: the weight's gradient adds up nothing, whatever the strides are."""
    x = wick.linspace(-1, 2, 12, dtype=wick.float64)[::2].requires_grad_()
    weight = wick.linspace(0.5, 1.5, 12, dtype=wick.float64)[1::2].requires_grad_()
    assert wick.autograd.gradcheck(lambda a, w: wick.nn.functional.layer_norm(a, (6,), w), (x, weight))


def test_a_view_made_before_its_base_was_written():
    """Its history is made when an operator first reads it, and comes before that operator's all the same."""
    w = wick.tensor([2.0], requires_grad=True)
    base = wick.ones(2, 3)
    view = base.t()
    base.copy_(w)
    (grad,) = wick.autograd.grad(view.log().sum(), [w])
    assert wick.equal(grad, wick.tensor([3.0]))


# ---- derivatives at zeros, as PyTorch 2.13 gives them ----

NAN, INF = math.nan, math.inf
WITH_ZEROS = [[1.0, 0.0, 3.0], [4.0, 5.0, 6.0], [0.0, 0.0, 2.0]]


def same_with_nans(found, wanted):
    return wick.allclose(found, wick.tensor(wanted, dtype=found.dtype), equal_nan=True)


@pytest.mark.parametrize(
    ("data", "dim", "gradient"),
    [
        ([1.0, 0.0, 3.0], None, [0, 3, 0]),
        ([0.0, 0.0, 3.0], None, [0, 0, 0]),
        ([2.0, 3.0, 4.0], None, [12, 8, 6]),
        ([0.0, INF, 2.0], None, [INF, 0, NAN]),
        ([NAN, 0.0, 1.0], None, [0, NAN, NAN]),
        ([1e30, 1e30, 0.0], None, [0, 0, INF]),
        (0.0, None, 1),
        ([0.0], None, [1]),
        ([], None, []),
        (WITH_ZEROS, None, [[0, 0, 0], [0, 0, 0], [0, 0, 0]]),
        (WITH_ZEROS, 0, [[0, 0, 12], [0, 0, 6], [4, 0, 18]]),
        (WITH_ZEROS, 1, [[0, 3, 0], [30, 24, 20], [0, 0, 0]]),
    ],
)
def test_prod_with_zeros(data, dim, gradient):
    def run(x, dim=dim):
        return (x.prod() if dim is None else x.prod(dim)).sum()

    for function in (run, wick.compile(run, options={"wait": True})):
        for _ in range(2):
            x = wick.tensor(data, requires_grad=True)
            function(x).backward()
            assert same_with_nans(x.grad, gradient)


def test_second_derivatives_of_prod_with_zeros():
    for data, second in (
        ([1.0, 0.0, 3.0], [6, 6, 2]),
        ([0.0, 0.0, 3.0], [6, 3, 0]),
        ([2.0, 3.0, 4.0], [17, 10, 7]),
    ):
        x = wick.tensor(data, dtype=wick.float64, requires_grad=True)
        (first,) = wick.autograd.grad(x.prod(), x, create_graph=True)
        assert wick.autograd.grad((first * wick.tensor([1.0, 2.0, 3.0])).sum(), x)[0].tolist() == second
        matrix = wick.tensor(data, dtype=wick.float64).expand(2, 3).clone().requires_grad_()
        (first,) = wick.autograd.grad(matrix.prod(1).sum(), matrix, create_graph=True)
        assert wick.autograd.grad((first * wick.tensor([1.0, 2.0, 3.0])).sum(), matrix)[0].tolist() == [second] * 2
    mixed = wick.tensor([2.0, 0.0, 3.0], requires_grad=True)
    mixed.prod(dtype=wick.float64).backward()
    assert mixed.grad.tolist() == [0, 6, 0] and mixed.grad.dtype == wick.float32


@pytest.mark.parametrize("p", [2, 1, 3, 1.5, 0.5, 2.5, 4, INF, -INF])
def test_norm_of_zeros_has_the_slope_0(p):
    x = wick.tensor([[1.0, 2.0, -3.0], [0.0, 0.0, 0.0]], requires_grad=True)
    norm = wick.linalg.vector_norm(x, p, 1)
    assert type(norm.grad_fn).__name__ == "LinalgVectorNormBackward0"
    norm.sum().backward()
    assert x.grad[1].tolist() == [0, 0, 0] and bool((x.grad[0] != 0).any())


def test_norms_beside_nans_and_infinities():
    for p, data, gradient in (
        (2, [3.0, 4.0], [0.6, 0.8]),
        (2, [INF, 1.0, 2.0], [NAN, 0, 0]),
        (1, [NAN, 1.0, -2.0], [0, 1, -1]),
        (INF, [3.0, 3.0, -3.0], [1 / 3, 1 / 3, -1 / 3]),
        (INF, [NAN, 1.0, 2.0], [0, 0, 0]),
        (3, [1e-30, 1e-30, 0.0], [0, 0, 0]),
    ):
        x = wick.tensor(data, requires_grad=True)
        x.norm(p).backward()
        assert same_with_nans(x.grad, gradient), (p, data)
    assert wick.tensor([NAN, -2.0, 0.0]).sign().tolist() == [0, -1, 0]
    compiled = wick.compile(lambda x: x.sign() * 1 + 0, options={"wait": True})
    for dtype in (wick.float32, wick.float64, wick.bfloat16):
        x = wick.tensor([NAN, -2.0, 0.0, 5.0] * 9, dtype=dtype)
        assert x.sign().tolist() == compiled(x).tolist() == compiled(x).tolist() == [0, -1, 0, 1] * 9


def test_std_of_equal_elements_has_the_slope_0():
    for call in (
        lambda x: x.std(1),
        lambda x: x.std(1, correction=0),
        lambda x: x.std(1, False),
        lambda x: wick.stack([row.std() for row in x]),
    ):
        x = wick.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 3.0]], requires_grad=True)
        call(x).sum().backward()
        assert x.grad[0].tolist() == [0, 0, 0]
        assert wick.allclose(x.grad[1] / x.grad[1, 2], wick.tensor([-1.0, 0, 1]))
    assert type(x.std().grad_fn).__name__ == "StdBackward0"
    constant = wick.compile(lambda x: x.std(), options={"wait": True})
    for _ in range(2):
        x = wick.ones(3, requires_grad=True)
        constant(x).backward()
        assert x.grad.tolist() == [0, 0, 0]


def test_both_operands_of_maximum_take_the_gradient_beside_a_nan():
    for pick, gradients in (
        (wick.maximum, ([0.5, 1, 0, 1], [0.5, 1, 1, 1])),
        (wick.minimum, ([0.5, 1, 1, 1], [0.5, 1, 0, 1])),
    ):
        x = wick.tensor([1.0, NAN, 1.0, 3.0], requires_grad=True)
        y = wick.tensor([1.0, 2.0, 2.0, NAN], requires_grad=True)
        pick(x, y).sum().backward()
        assert (x.grad.tolist(), y.grad.tolist()) == gradients


def test_as_strided_scatter_has_the_gradient_of_what_it_does():
    """Unlike PyTorch's: docs/compatibility.md."""
    for sizes, geometry, kept in (
        ((12,), ((3, 2), (4, 1), 1), [1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1]),
        ((3, 4), ((2, 2), (4, 1), 0), [0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1]),
        ((4, 4), ((4,), (5,), 0), [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 0]),
    ):
        x = wick.arange(float(wick.Size(sizes).numel()), dtype=wick.float64).view(sizes).requires_grad_()
        src = wick.ones(geometry[0], dtype=wick.float64, requires_grad=True)
        weights = (wick.arange(float(x.numel()), dtype=wick.float64) + 1).view(sizes)
        (wick.as_strided_scatter(x, src, *geometry) * weights).sum().backward()
        assert x.grad.flatten().tolist() == [k * w for k, w in zip(kept, weights.flatten().tolist(), strict=True)]
        assert src.grad.tolist() == weights.as_strided(*geometry).tolist()
        assert wick.autograd.gradcheck(lambda x, src, g=geometry: wick.as_strided_scatter(x, src, *g), (x, src))


# ---- what was written by the call that keeps it ----


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Mul", lambda y: y.mul_(y)),
        ("Div", lambda y: y.div_(y)),
        ("Addcmul", lambda y: y.addcmul_(y, y)),
        ("Addmm", lambda y: y.addmm_(y, y)),
    ],
)
def test_a_second_argument_that_is_written_has_no_value_from_before(name, call):
    x = wick.ones(3, 3, requires_grad=True)
    y = x * 2
    call(y)
    with pytest.raises(RuntimeError) as error:
        y.sum().backward()
    assert str(error.value).startswith(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[torch.FloatTensor [3, 3]], which is output 0 of {name}, is at version 1; expected version 0 instead."
    )


@pytest.mark.parametrize(
    ("call", "gradient"),
    [
        (lambda y: y.add_(y), 4.0),
        (lambda y: y.sub_(y), 0.0),
        (lambda y: y.lerp_(y, 0.5), 2.0),
        (lambda y: y.mul_(y.detach().clone()), 4.0),
        (lambda y: y.masked_fill_(y > 5, 0.0), 2.0),
    ],
)
def test_what_keeps_nothing_of_it_may_be_given_twice(call, gradient):
    x = wick.ones(3, requires_grad=True)
    y = x * 2
    call(y)
    y.sum().backward()
    assert x.grad.tolist() == [gradient] * 3


# ---- anomaly detection ----


class GivesNan(wick.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")


@pytest.mark.parametrize(
    ("node", "output", "call"),
    [
        ("DivBackward0", 1, lambda x: (x / x).sum()),
        ("SqrtBackward0", 0, lambda x: ((x * 0).sqrt() * 0).sum()),
        ("LogBackward0", 0, lambda x: (x.log() * 0).sum()),
        ("GivesNanBackward", 0, lambda x: GivesNan.apply(x).sum()),
        ("MulBackward0", 0, lambda x: (x * float("nan")).sum()),
    ],
)
def test_anomaly_detection_names_the_node_that_gave_a_nan(node, output, call):
    x = wick.zeros(2, requires_grad=True)
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"), wick.autograd.detect_anomaly():
        assert wick.is_anomaly_enabled()
        with pytest.raises(RuntimeError) as error:
            call(x).backward()
        assert str(error.value) == f"Function '{node}' returned nan values in its {output}th output."
        assert wick.autograd.grad((x * 2).sum(), x)[0].tolist() == [2, 2]
    assert not wick.is_anomaly_enabled()
    call(x).backward()
    with wick.autograd.set_detect_anomaly(True, check_nan=False):
        assert wick.is_anomaly_enabled()
        assert not wick.is_anomaly_check_nan_enabled()
        call(x).backward()
    with wick.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="returned nan values"):
        wick.autograd.grad(call(x), x)


def test_anomaly_detection_shows_the_forward_call():
    def forward(x):
        return x.sqrt().sum()  # this line

    x = wick.tensor([-1.0], requires_grad=True)
    with wick.autograd.set_detect_anomaly(True):
        loss = forward(x)
        with warnings.catch_warnings(record=True) as shown, pytest.raises(RuntimeError, match="returned nan values"):
            warnings.simplefilter("always")
            loss.backward()
        (warning,) = shown
        text = str(warning.message)
        assert warning.category is UserWarning
        assert text.startswith("Error detected in SqrtBackward0. Traceback of forward call that caused the error:\n")
        assert text.endswith("    return x.sqrt().sum()  # this line\n")
        assert "loss = forward(x)" in text
    late = forward(x)
    with wick.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="returned nan values"):
        with pytest.warns(UserWarning, match="Error detected in SqrtBackward0. No forward pass information available."):
            late.backward()
    with wick.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Error detected in SqrtBackward0"):
            forward(x).backward()

    class Refuses(wick.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("not today")

    with wick.autograd.set_detect_anomaly(True), pytest.raises(ValueError, match="not today"):
        with pytest.warns(UserWarning, match=r"(?s)Error detected in RefusesBackward.*Refuses.apply\(x\)"):
            Refuses.apply(x).backward()


def test_first_gradients_lie_as_their_leaf():
    """Strides of PyTorch 2.13: a leaf without gaps hands its own on, any other has contiguous gradients."""
    last = wick.ones(2, 3, 4, 5).to(memory_format=wick.channels_last).requires_grad_()
    (last * wick.ones(2, 3, 4, 5)).sum().backward()
    assert last.grad.stride() == (60, 1, 15, 3)
    turned = wick.ones(3, 2).t().requires_grad_()
    given = wick.arange(6.0).reshape(2, 3)
    turned.clone(memory_format=wick.contiguous_format).backward(given)
    assert turned.grad.stride() == (1, 2)
    assert turned.grad.tolist() == given.tolist()
    turned.backward(given)
    assert turned.grad.tolist() == (given * 2).tolist()
    gaps = wick.ones(2, 6)[:, ::2].requires_grad_()
    (gaps * wick.arange(6.0).reshape(3, 2).t()).sum().backward()
    assert gaps.grad.stride() == (3, 1)
    other = wick.ones(3, 2).t().requires_grad_()
    step = wick.compile(lambda x, y: (x * y).sum().backward())
    for _ in range(2):
        other.grad = None
        step(other, given)
        assert (other.grad.stride(), other.grad.tolist()) == ((1, 2), given.tolist())


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("RsubBackward1", lambda x: 1 - x),
        ("DivBackward2", lambda x: x.div(2, rounding_mode="floor")),
        ("RemainderBackward0", lambda x: x % 2),
        ("RemainderBackward1", lambda x: x % wick.ones(1, 3)),
        ("PowBackward0", lambda x: x**2),
        ("PowBackward1", lambda x: x.pow_(wick.ones(1, 3))),
        ("PowBackward2", lambda x: 2**x),
        ("ClampBackward1", lambda x: x.clamp_(0)),
        ("SumBackward0", lambda x: x.sum()),
        ("SumBackward1", lambda x: x.sum(0)),
        ("MeanBackward0", lambda x: x.mean()),
        ("MeanBackward1", lambda x: x.mean((0, 1))),
        ("ProdBackward0", lambda x: x.prod()),
        ("ProdBackward1", lambda x: x.prod(0)),
        ("LerpBackward1", lambda x: x.lerp_(wick.ones(1, 3), wick.ones(1, 3))),
        ("ScatterBackward1", lambda x: x.scatter_(1, wick.tensor([[0]]), 1.0)),
        ("SqueezeBackward2", lambda x: x.squeeze((0,))),
        ("SqueezeBackward3", lambda x: x.squeeze_()),
        ("SqueezeBackward4", lambda x: x.squeeze_(0)),
        ("SqueezeBackward5", lambda x: x.squeeze_((0,))),
        ("TBackward0", lambda x: x.t()),
        ("TBackward1", lambda x: x.t_()),
        ("TransposeBackward1", lambda x: x.transpose_(0, 1)),
        ("UnsqueezeBackward1", lambda x: x.unsqueeze_(0)),
        ("SplitWithSizesBackward0", lambda x: x.split([1, 2], 1)[0]),
        ("FillBackward2", lambda x: x.fill_(2.0)),
        ("FillBackward3", lambda x: x.fill_(wick.tensor(2.0))),
        ("NormalBackward3", lambda x: wick.normal(x, wick.ones(1, 3))),
        ("NllLossBackward0", lambda x: F.cross_entropy(x, wick.tensor([1]))),
        ("torch::autograd::CopyBackwards", lambda x: x.copy_(wick.ones(1, 3))),
    ],
)
def test_nodes_have_the_names_of_pytorchs_overloads(name, call):
    """Names of PyTorch 2.13."""
    made = call(wick.ones(1, 3, requires_grad=True).clone())
    assert made.grad_fn.name() == name
    assert f"grad_fn=<{name.rpartition(':')[2]}>" in repr(made)
    assert type(made.grad_fn).__name__ == name.rpartition(":")[2]


def test_attention_has_no_second_derivative_and_says_so():
    q = wick.randn(1, 2, 3, 4, requires_grad=True)
    y = wick.nn.functional.scaled_dot_product_attention(q, q, q)
    (grad,) = wick.autograd.grad(y.sin().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward"):
        grad.square().sum().backward()


def test_no_tensor_has_a_tangent():
    """What libraries ask before they take a way that forward mode cannot go."""
    x = wick.ones(2)
    primal, tangent = wick.autograd.forward_ad.unpack_dual(x)
    assert primal is x and tangent is None
    with pytest.raises(RuntimeError, match="no level exists"):
        wick.autograd.forward_ad.make_dual(x, x)


def test_what_a_backward_hook_leads_through_may_not_be_written():
    model = wick.nn.Sequential(wick.nn.Linear(3, 4), wick.nn.ReLU(inplace=True))
    model[1].register_full_backward_hook(lambda module, grad_in, grad_out: None)
    with pytest.raises(RuntimeError, match="Output 0 of BackwardHookFunction is a view and is being modified inplace"):
        model(wick.ones(2, 3))

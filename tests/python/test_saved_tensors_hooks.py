"""saved_tensors_hooks: what is packed and unpacked, that gradients stay the same, and checkpoints on top of it."""

import gc
import weakref

import pytest

import wick
from wick.autograd import Function, grad
from wick.autograd.graph import save_on_cpu, saved_tensors_hooks
from wick.utils.checkpoint import checkpoint


def leaf(*values):
    return wick.tensor(values, dtype=wick.float64).requires_grad_()


def close(tensor, expected):
    assert tensor.detach().reshape(-1).tolist() == pytest.approx(expected, abs=1e-12)
    return True


class Log:
    """Packs tensors into numbered lists of numbers."""

    def __init__(self):
        self.packed, self.unpacked = [], 0

    def pack(self, tensor):
        assert tensor.is_leaf and not tensor.requires_grad
        self.packed.append(tensor.tolist())
        return len(self.packed) - 1

    def unpack(self, number):
        self.unpacked += 1
        return wick.tensor(self.packed[number], dtype=wick.float64)

    def hooks(self):
        return saved_tensors_hooks(self.pack, self.unpack)


def test_arguments_and_results():
    log, x, w = Log(), leaf(1.0, 2.0), leaf(3.0, 4.0)
    with log.hooks():
        y = (x * w).exp()
    assert log.packed[:2] == [[3.0, 4.0], [1.0, 2.0]] or log.packed[:2] == [[1.0, 2.0], [3.0, 4.0]]
    assert len(log.packed) == 3 and log.packed[2] == y.tolist()
    z = y.sum() * 1
    assert len(log.packed) == 3
    z.backward(retain_graph=True)
    assert log.unpacked == 3 and close(x.grad, (w * y).tolist()) and close(w.grad, (x * y).tolist())
    z.backward()
    assert log.unpacked == 6
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        z.backward()


def test_second_derivatives():
    log, x = Log(), leaf(0.5, 2.0)
    with log.hooks():
        y = (x * x * x).exp().sum()
    (first,) = grad(y, x, create_graph=True)
    (second,) = grad(first.sum(), x)
    values = [0.5, 2.0]
    e = [2.718281828459045 ** (v**3) for v in values]
    assert first.detach().tolist() == pytest.approx([3 * v * v * k for v, k in zip(values, e, strict=True)])
    assert second.tolist() == pytest.approx([(6 * v + 9 * v**4) * k for v, k in zip(values, e, strict=True)])


def test_in_place_and_innermost():
    outer, inner, x, w = Log(), Log(), leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = x * 1
    with outer.hooks():
        with inner.hooks():
            y.mul_(w)
        (y * y).sum()
    assert len(inner.packed) == 2 and len(outer.packed) == 2
    y.sum().backward()
    assert close(x.grad, [3.0, 4.0]) and close(w.grad, [1.0, 2.0])


def test_functions():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * 2 * x + 0 * y

    log, x = Log(), leaf(3.0)
    with log.hooks():
        y = Square.apply(x)
    assert log.packed == [[3.0], [9.0]]
    (first,) = grad(y.sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    assert close(first, [6.0]) and close(second, [2.0])


def test_errors():
    x = leaf(1.0)
    with saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp()
    with pytest.raises(
        TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor but got result of type int"
    ):
        y.backward()

    def refuse(tensor):
        raise KeyError("no")

    with saved_tensors_hooks(refuse, refuse), pytest.raises(KeyError):
        x.exp()
    with saved_tensors_hooks(lambda t: t, refuse):
        y = x.exp()
    with pytest.raises(KeyError):
        y.backward()
    assert x.grad is None


def test_packed_values_live_as_long_as_the_graph():
    class Box:
        pass

    x, boxes = leaf(1.0), []

    def pack(tensor):
        box = Box()
        box.tensor = tensor
        boxes.append(weakref.ref(box))
        return box

    gc.disable()
    try:
        with saved_tensors_hooks(pack, lambda box: box.tensor):
            y = x.exp()
        assert boxes[0]() is not None
        y.backward()
        assert boxes[0]() is None
    finally:
        gc.enable()


def test_save_on_cpu():
    x = leaf(2.0)
    with save_on_cpu():
        y = x * x
    y.backward()
    close(x.grad, [4.0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    calls, x, w = [], leaf(0.5, 1.0), leaf(2.0, 3.0)

    def block(a):
        calls.append(1)
        return ((a * w).exp() * a).exp()

    expected = grad(block(x).sum(), (x, w))
    calls.clear()
    checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    assert len(calls) == 2 and close(x.grad, expected[0].tolist()) and close(w.grad, expected[1].tolist())


def test_a_pack_hook_that_writes_its_input():
    def pack(t):
        t.mul_(2)
        return t

    x = wick.ones(2, requires_grad=True)
    words = "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot"
    for call in (lambda: x.exp() * x, lambda: x.exp(), lambda: (x * 2).sin(), lambda: Keeps.apply(x * 1)):
        with wick.autograd.graph.saved_tensors_hooks(pack, lambda t: t), pytest.raises(RuntimeError, match=words):
            call()


class Keeps(wick.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]

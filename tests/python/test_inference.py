"""inference_mode's tensors: which ones are, what may be done with them, and the counts of writes of .data."""

import pytest

import wick

SAVED = "Inference tensors cannot be saved for backward"
WRITTEN = "Inplace update to inference tensor outside InferenceMode is not allowed"


@pytest.fixture
def inference():
    with wick.inference_mode():
        return wick.ones(3)


def test_new_tensors_are_inference_tensors_and_views_are_what_they_look_at():
    normal = wick.ones(2, 3)
    with wick.inference_mode():
        made = [
            wick.zeros(2), normal + 1, wick.tensor([1.0]), wick.Tensor([1.0]), normal.clone(), normal.double(),
            normal.max(0)[1], normal[normal > 0], wick.empty(2, 3).copy_(normal), wick.add(normal, 1, out=wick.empty(2, 3)),
        ]  # fmt: skip
        views = [
            normal[0],
            normal.t(),
            normal.view(6),
            normal.detach(),
            normal.data,
            *normal.split(1),
            *normal.unbind(),
        ]
        same = normal.contiguous(), normal.float()
        assert made[0][1:].is_inference()
    assert all(t.is_inference() for t in made)
    assert not any(t.is_inference() for t in (*views, *same))
    assert not (made[1] + 1).is_inference()
    assert made[1][0].is_inference() and made[1].detach().is_inference() and made[1].data.is_inference()
    assert not made[1].clone().is_inference() and not wick.ones(1).is_inference()


def test_modes_nest_and_decorate():
    with wick.inference_mode():
        with wick.inference_mode(False):
            assert not wick.ones(1).is_inference()
        assert wick.ones(1).is_inference()
    assert not wick.ones(1).is_inference()
    assert wick.inference_mode()(lambda x: x * 2)(wick.ones(1)).is_inference()


def test_saving_one_for_backward_is_refused(inference):
    weight = wick.ones(3, requires_grad=True)
    for use in (lambda: inference * weight, lambda: weight @ inference, lambda: Product.apply(weight, inference)):
        with pytest.raises(RuntimeError, match=SAVED):
            use()
    (inference + weight).sum().backward()  # nothing is saved
    (inference.clone() * weight).sum().backward()
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]


class Product(wick.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return grad * b, grad * a


def test_writing_outside_of_the_mode_is_refused(inference):
    writes = [
        lambda t: t.add_(1), lambda t: t.zero_(), lambda t: t.copy_(wick.zeros(3)), lambda t: t.normal_(),
        lambda t: t.__setitem__(0, 5), lambda t: t[1:].mul_(2), lambda t: wick.add(wick.ones(3), 1, out=t),
        lambda t: t.data.add_(1), lambda t: wick._C._foreach_mul_([t], 2.0),
    ]  # fmt: skip
    for write in writes:
        with pytest.raises(RuntimeError, match=WRITTEN):
            write(inference)
    assert inference.tolist() == [1.0, 1.0, 1.0]
    with wick.inference_mode():
        inference.add_(1)
    assert inference.tolist() == [2.0, 2.0, 2.0]


def test_writing_a_normal_tensor_in_the_mode_counts():
    x = wick.ones(3)
    with wick.inference_mode():
        x.add_(1)
        x.view(3)[0] = 5
        with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
            wick.ones(1)._version  # noqa: B018
    assert x._version == 2


def test_requires_grad(inference):
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode"):
        inference.requires_grad_()
    with wick.inference_mode():
        layer = wick.nn.Linear(2, 2)
    assert layer.weight.is_inference() and layer.weight.requires_grad


def test_data_counts_its_writes_by_itself():
    x = wick.ones(3, requires_grad=True)
    y = x * 1
    y.add_(1)
    data = y.data
    view = data.view(3)
    data.add_(1)
    view.add_(1)
    assert (y._version, data._version, view._version) == (1, 2, 2)
    y.add_(1)
    assert (y._version, data._version, y.data._version) == (2, 2, 0)
    assert y.tolist() == [5.0] * 3 and data.tolist() == [5.0] * 3


def test_a_saved_data_tensor_notices_writes_through_itself_alone():
    weight, y = wick.ones(3, requires_grad=True), wick.ones(3)
    data = y.data
    loss = (weight * data).sum()
    y.data.add_(1)  # another alias: not seen, as in PyTorch
    loss.backward()
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]
    loss = (weight * data).sum()
    data.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_setting_data_keeps_the_count():
    x, other = wick.ones(3), wick.zeros(3)
    x.add_(1)
    other.add_(1).add_(1)
    x.data = other
    other.add_(1)
    assert (x._version, other._version) == (1, 3) and x.tolist() == [3.0] * 3
    x.mul_(2)
    assert (x._version, other._version) == (2, 3)

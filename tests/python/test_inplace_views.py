"""t_, transpose_, squeeze_, unsqueeze_: the tensor itself gets another geometry."""

import pytest

import wick


@pytest.mark.parametrize(
    "shape,name,arguments",
    [
        ((2, 3), "t", ()),
        ((2, 3, 4), "transpose", (0, -1)),
        ((1, 3, 1), "squeeze", ()),
        ((1, 3, 1), "squeeze", (0,)),
        ((1, 3, 1), "squeeze", ((0, 2),)),
        ((2, 3), "unsqueeze", (-1,)),
    ],
)
def test_geometry(shape, name, arguments):
    x = wick.arange(float(wick.Size(shape).numel())).reshape(shape).clone()
    expected = getattr(x.clone(), name)(*arguments)
    flat, version, address = x.view(-1), x._version, x.data_ptr()
    assert getattr(x, name + "_")(*arguments) is x
    assert x.data_ptr() == address and x._version == version + 1
    assert x.stride() == expected.stride() and x.equal(expected)
    flat.fill_(100)
    assert (x == 100).all()


def test_gradients():
    x = wick.arange(6.0, requires_grad=True)
    y = x.reshape(2, 3) * 2
    y.t_()
    (y * wick.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.tolist() == [0, 4, 8, 2, 6, 10]


def test_a_view_of_something_that_requires_grad():
    x = wick.arange(6.0, requires_grad=True)
    base = x * 1
    view = base.view(2, 3)
    view.t_()
    view.mul_(wick.arange(6.0).reshape(3, 2))
    base.sum().backward()
    assert x.grad.tolist() == [0, 2, 4, 1, 3, 5]


def test_leaves_are_refused():
    x = wick.ones(2, 3, requires_grad=True)
    with pytest.raises(
        RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation."
    ):
        x.t_()
    with wick.no_grad():
        assert x.t_().shape == (3, 2)
    with pytest.raises(IndexError, match="Dimension out of range"):
        wick.ones(2, 3).transpose_(0, 5)


def test_captured():
    def f(x, y):
        z = x * 2
        z.t_()
        y.unsqueeze_(0)
        return z + 1

    x = wick.arange(6.0).reshape(2, 3)
    for _ in range(3):
        y = wick.ones(3)
        assert wick.compile(f)(x, y).tolist() == (x * 2 + 1).t().tolist()
        assert y.shape == (1, 3)

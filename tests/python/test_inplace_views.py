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


# ---- memory that is read and written, as PyTorch 2.13 has it ----

SHARED = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
    "Please clone() the tensor before performing the operation."
)


def square(a):
    return a[:4].view(2, 2)


PARTLY = {
    "add_": lambda a: a[1:].add_(a[:-1]),
    "mul_ from the left": lambda a: a[:-1].mul_(a[1:]),
    "one element": lambda a: a.add_(a[:1]),
    "no dims": lambda a: a.mul_(a[0]),
    "copy_": lambda a: a[1:].copy_(a[:-1]),
    "item": lambda a: a.__setitem__(slice(1, None), a[:-1]),
    "transposed": lambda a: square(a).add_(square(a).t()),
    "transposed copy_": lambda a: square(a).copy_(square(a).t()),
    "addcmul_": lambda a: a[1:].addcmul_(a[:-1], a[1:]),
    "lerp_": lambda a: a[1:].lerp_(a[:-1], 0.5),
    "comparison": lambda a: a[1:].eq_(a[:-1]),
    "out": lambda a: wick.add(a[:-1], 1, out=a[1:]),
    "clamp out": lambda a: wick.clamp(a[1:], 0, 1, out=a[:-1]),
    "scatter_": lambda a: a.scatter_(0, wick.tensor([1, 0]), a[:2]),
    "scatter_add_": lambda a: a.scatter_add_(0, wick.tensor([1, 0]), a[:2]),
    "index_add_": lambda a: a.index_add_(0, wick.tensor([1, 0]), a[:2]),
    "index_put_": lambda a: a.index_put_((wick.tensor([1, 0]),), a[:2]),
}


@pytest.mark.parametrize("name", PARTLY)
def test_partly_shared_memory_is_refused(name):
    write = PARTLY[name]
    with pytest.raises(RuntimeError) as caught:
        write(wick.arange(6.0))
    assert str(caught.value) == SHARED
    compiled = wick.compile(lambda a: write(a + 0), options={"wait": True})
    for _ in range(2):
        with pytest.raises(RuntimeError) as caught:
            compiled(wick.arange(6.0))
        assert SHARED in str(caught.value)


def test_shared_memory_that_is_no_harm():
    a = wick.arange(6.0)
    assert a.add_(a).tolist() == [0, 2, 4, 6, 8, 10]
    assert a.add_(a.view(2, 3).view(6)).tolist() == [0, 4, 8, 12, 16, 20]
    assert a[:3].add_(a[3:]).tolist() == [12, 20, 28]
    assert a[::2].add_(a[1::2]).tolist() == [32, 40, 36]  # interleaved
    assert wick.add(a, 1, out=a)[0].item() == 33
    assert wick.where(a > 100, a, -a, out=a)[0].item() == -33
    assert a.copy_(a).tolist() == a.tolist() and a.copy_(a.flip(0))[5].item() == -33


def test_filling_memory_that_overlaps_itself():
    for fill, value in (
        (lambda x: x.zero_(), 0),
        (lambda x: x.fill_(2), 2),
        (lambda x: x.fill_(wick.tensor(3.0)), 3),
    ):
        compiled = wick.compile(lambda x, fill=fill: fill(x.expand(3)), options={"wait": True})
        for call in (lambda x, fill=fill: fill(x.expand(3)), compiled, compiled):
            x = wick.ones(1)
            assert call(x).tolist() == [value] * 3 and x.item() == value
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        wick.ones(1).expand(3).add_(1)

"""MaskedTensor: what calls do with the mask, printing, gradients, and what is refused."""

import copy
import pickle

import pytest

import wick
from wick.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

DATA = wick.arange(6.0).reshape(2, 3)
MASK = wick.tensor([[True, False, True], [False, False, True]])


def make(requires_grad=False):
    return masked_tensor(DATA.clone(), MASK, requires_grad)


def check(found, data, mask):
    assert is_masked_tensor(found) and found.get_mask().tolist() == mask
    assert found.to_tensor(-1).tolist() == data and not is_masked_tensor(found.get_data())


def test_printing():
    assert (
        repr(make())
        == "MaskedTensor(\n  [\n    [  0.0000,       --,   2.0000],\n    [      --,       --,   5.0000]\n  ]\n)"
    )
    assert (
        repr(masked_tensor(wick.arange(3), wick.tensor([True, False, True]))) == "MaskedTensor(\n  [0,       --, 2]\n)"
    )
    assert [repr(make()[0, i]) for i in (0, 1)] == ["MaskedTensor(  0.0000, True)", "MaskedTensor(--, False)"]
    assert "[\n      [  0.0000,       --,   2.0000],\n      [" in repr(make().unsqueeze(0)) and f"{make()}" == str(
        make()
    )


def test_arithmetic():
    x = make()
    left = [[0, -1, 4], [-1, -1, 10]]
    for found in (x + x, x * 2, 2 * x, x + DATA, DATA + x, wick.add(x, x), x - -x):
        check(found, left, MASK.tolist())
    check(x < 3, [[True, True, True], [True, True, False]], MASK.tolist())
    y = make()
    y += 1
    y.mul_(2).neg_()
    check(y, [[-2, -1, -6], [-1, -1, -12]], MASK.tolist())
    check(wick.where(MASK, x, masked_tensor(-DATA, ~MASK)), [[0, -1, 2], [-3, -4, 5]], [[True] * 3] * 2)
    check(1 / (x + 1), [[1, -1, wick.tensor(1 / 3).item()], [-1, -1, wick.tensor(1 / 6).item()]], MASK.tolist())


def test_views_and_copies():
    x = make()
    check(x.t(), [[0, -1], [-1, -1], [2, 5]], MASK.t().tolist())
    check(x[:, 1:], [[-1, 2], [-1, 5]], MASK[:, 1:].tolist())
    check(x[MASK], [0, 2, 5], [True] * 3)
    check(wick.cat([x, x])[2:], [[0, -1, 2], [-1, -1, 5]], MASK.tolist())
    assert [row.shape for row in x] == [(3,)] * 2 and x.double().dtype is wick.float64 and x.mT.shape == (3, 2)
    for other in (
        x.clone(),
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
        x.double().float(),
        x.flatten().view(2, 3),
    ):
        check(other, [[0, -1, 2], [-1, -1, 5]], MASK.tolist())
    x.view(6)[:1].add_(7)
    assert x.get_data()[0, 0] == 7


def test_reductions():
    x, nothing = make(), masked_tensor(DATA, wick.zeros(2, 3).bool())
    assert (x.sum().item(), x.mean(1).get_data().tolist(), x.prod().item(), x.amax(0).to_tensor(-1).tolist()) == (
        7, [1, 5], 0, [0, -1, 5],
    )  # fmt: skip
    check(x.sum(0, keepdim=True), [[0, -1, 7]], [[True, False, True]])
    check(nothing.sum(1), [-1, -1], [False, False])
    assert x.argmin(1).get_data().tolist() == [0, 2] and x.all(1).get_data().tolist() == [False, True]
    assert x.norm().item() == wick.tensor([0.0, 2.0, 5.0]).norm().item() and x.std(1, unbiased=False).get_data()[0] == 1
    wick.testing.assert_close(x.softmax(1).to_tensor(0), wick.tensor([[0.11920292, 0, 0.88079708], [0, 0, 1]]))


def test_gradients():
    x = make(True)
    (x * x).sum().backward()
    assert x.is_leaf and is_masked_tensor(x.grad)
    check(x.grad, [[0, -1, 4], [-1, -1, 10]], MASK.tolist())
    x.grad = None
    assert x.grad is None
    x.amax().backward()
    check(x.grad, [[0, -1, 0], [-1, -1, 1]], MASK.tolist())
    p = DATA.clone().requires_grad_()
    (1 / as_masked_tensor(p - 1, MASK)).sum().backward()  # the inverse of 0 is masked out
    assert p.grad.tolist() == [[-1, 0, -1], [0, 0, -0.0625]]
    p.grad = None
    as_masked_tensor(p, MASK).exp().mean(1).to_tensor(0).sum().backward()
    wick.testing.assert_close(p.grad, DATA.exp() * MASK / wick.tensor([[2.0], [1.0]]))


def test_what_is_refused():
    x = make()
    for call, error, text in [
        (lambda: masked_tensor([1], MASK), TypeError, "data must be a Tensor"),
        (lambda: masked_tensor(x, MASK), TypeError, "data must be a Tensor"),
        (lambda: masked_tensor(DATA, MASK.float()), TypeError, "mask must have dtype bool"),
        (lambda: masked_tensor(DATA, MASK[0]), ValueError, r"data.dim\(\) must equal mask.dim\(\)"),
        (lambda: masked_tensor(DATA, MASK[:1]), ValueError, r"data.size\(\) must equal mask.size\(\)"),
        (lambda: masked_tensor(DATA.bfloat16(), MASK), TypeError, "torch.bfloat16 is not supported in MaskedTensor"),
        (lambda: masked_tensor(DATA.to_sparse(), MASK), TypeError, "same layout"),
        (lambda: x + masked_tensor(DATA, ~MASK), ValueError, "Input masks must match"),
        (lambda: x.clone().add_(masked_tensor(DATA, ~MASK)), ValueError, "Input masks must match"),
        (lambda: wick.add(x, x, alpha=2), ValueError, r"len\(kwargs\) must equal 0"),
        (lambda: x @ x.t(), TypeError, "Multiple dispatch failed"),
        (lambda: x.cumsum(0), TypeError, "Multiple dispatch failed"),
        (lambda: x.tolist(), RuntimeError, "not supported for tensor subclasses, got MaskedTensor"),
    ]:
        with pytest.raises(error, match=text):
            call()
    with pytest.warns(UserWarning, match="not recommended to create a MaskedTensor with a tensor that requires_grad"):
        MaskedTensor(DATA.clone().requires_grad_(), MASK)

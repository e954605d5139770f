"""Calls whose tensors are on two devices: none reads or writes memory that is not its device's."""

import pytest

import wick as torch

TWO = {
    "an operand": lambda c, h: c + h,
    "in place": lambda c, h: h.add_(c),
    "in place, no dims": lambda c, h: torch.tensor(1.0).add_(torch.tensor(1.0, device="cuda")),
    "out": lambda c, h: torch.add(c, c, out=h),
    "out on the device": lambda c, h: torch.add(h, h, out=c),
    "out of a product": lambda c, h: torch.mm(h, h, out=c),
    "out of a reduction": lambda c, h: torch.sum(c, 0, out=h[0]),
    "one of two outs": lambda c, h: torch.sort(c, 0, out=(torch.empty_like(c), h.long())),
    "out of a list": lambda c, h: torch.stack([h, h], out=c),
    "out of what has a number of the other": lambda c, h: torch.clamp(c, h[0, 0], out=h),
    "lists": lambda c, h: torch._foreach_add_([h], [c]),
    "lists of a fused optimizer": lambda c, h: torch._fused_sgd_(
        [h],
        [c],
        [],
        weight_decay=0,
        momentum=0,
        lr=1.0,
        dampening=0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    ),
    "an index": lambda c, h: h.index_add_(0, torch.arange(4), c),
    "a mask": lambda c, h: h.masked_fill_(c > 0, 1.0),
}


@pytest.mark.parametrize("what", TWO)
def test_are_refused(what):
    c, h = torch.ones(4, 4, device="cuda"), torch.ones(4, 4)
    match = r"Expected (all tensors to be on the same device, but|out tensor to have device (cuda:0|cpu), but got)"
    with pytest.raises(RuntimeError, match=match):
        TWO[what](c, h)
    assert torch.equal(c.cpu(), torch.ones(4, 4)) and torch.equal(h, torch.ones(4, 4))


def test_what_makes_tensors_goes_where_out_is():
    out = torch.empty(4, device="cuda")
    assert torch.arange(4, out=out) is out and out.tolist() == [0, 1, 2, 3]
    assert torch.ones(4, out=out).tolist() == [1] * 4
    torch.cuda.manual_seed(3)
    want = torch.randn(4, device="cuda")
    torch.cuda.manual_seed(3)
    assert torch.equal(torch.randn(4, out=out), want)
    with pytest.raises(RuntimeError, match=r"device type cpu does not match device type of out parameter \(cuda\)"):
        torch.arange(4, out=out, device="cpu")


def test_gradients():
    x = torch.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError, match="gradient with device type 'cpu' to a tensor with device type 'cuda'"):
        x.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="invalid gradient at index 0 - expected device cuda:0 but got cpu"):
        (x * 2).backward(torch.ones(3))
    (x * 2).sum().backward(torch.tensor(2.0))  # of no dims: it is copied
    assert x.grad.device == x.device and x.grad.tolist() == [4.0] * 3


class Double(torch.autograd.Function):
    grad = None

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return Double.grad


def test_gradients_of_a_function():
    x = torch.ones(3, device="cuda", requires_grad=True)
    Double.grad = torch.ones(3)
    with pytest.raises(
        RuntimeError,
        match="Function DoubleBackward returned an invalid gradient at index 0 - expected device cuda:0 but got cpu",
    ):
        Double.apply(x).sum().backward()
    Double.grad = torch.tensor(5.0)
    y = torch.ones((), device="cuda", requires_grad=True)
    Double.apply(y).backward()
    assert y.grad.device == y.device and y.grad.item() == 5

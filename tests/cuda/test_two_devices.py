"""Calls whose tensors are on two devices: none reads or writes memory that is not its device's."""

import re

import pytest

import wick as torch
import wick.nn.functional as F  # noqa: N812

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
}


@pytest.mark.parametrize("what", TWO)
def test_are_refused(what):
    c, h = torch.ones(4, 4, device="cuda"), torch.ones(4, 4)
    match = r"Expected (all tensors to be on the same device, but|out tensor to have device (cuda:0|cpu), but got)"
    with pytest.raises(RuntimeError, match=match):
        TWO[what](c, h)
    assert torch.equal(c.cpu(), torch.ones(4, 4)) and torch.equal(h, torch.ones(4, 4))


def got(name, where, others):
    """What PyTorch says in front of a kernel of its own, by the names and in the order of the kernel's arguments."""
    return (
        f"Expected all tensors to be on the same device, but got {name} is on {where}, different from other tensors on "
        f"{others}"
    )


LOOPS = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
INDICES = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
MASK = "expected self and mask to be on the same device, but got mask on {} and self on {}"
ATTENTION = (
    "Expected query, key, and value to have the same device type, but got query.device: cuda:0 key.device: cuda:0 and "
    "value.device: cpu instead."
)
PACKED = " or input should be a MKLDNN tensor and weight is a dense tensor"
TYPES = "Input type (torch.{}FloatTensor) and {} type (torch.{}) should be the same"
WORDS = {
    "mv": (lambda c, h: torch.mv(c, h[0]), got("mat", "cuda:0", "cpu")),
    "mv of the host": (lambda c, h: torch.mv(h, c[0]), got("mat", "cpu", "cuda:0")),
    "dot": (lambda c, h: torch.dot(c[0], h[0]), got("tensor", "cpu", "cuda:0")),
    "linear": (lambda c, h: F.linear(c, h), got("mat2", "cpu", "cuda:0")),
    "a bias": (lambda c, h: F.linear(c, c, h[0]), got("mat1", "cuda:0", "cpu")),
    "addmv": (lambda c, h: torch.addmv(c[0], c, h[0]), got("vec", "cpu", "cuda:0")),
    "baddbmm": (lambda c, h: torch.baddbmm(c[None], h[None], c[None]), got("batch1", "cpu", "cuda:0")),
    "batch_norm": (lambda c, h: F.batch_norm(c, h[0], h[0]), got("running_mean", "cpu", "cuda:0")),
    "embedding": (lambda c, h: F.embedding(torch.tensor([0, 1]), c), got("index", "cpu", "cuda:0")),
    "embedding of the host": (lambda c, h: F.embedding(c[0].long(), h), got("index", "cuda:0", "cpu")),
    "masked_select": (lambda c, h: c.masked_select(h > 0), got("mask", "cpu", "cuda:0")),
    "cross_entropy": (lambda c, h: F.cross_entropy(c, torch.arange(4)), got("target", "cpu", "cuda:0")),
    "prelu": (lambda c, h: F.prelu(c, h[0, :1]), got("weight", "cpu", "cuda:0")),
    "bincount": (lambda c, h: torch.bincount(c[0].long(), h[0]), got("weights", "cpu", "cuda:0")),
    "searchsorted": (lambda c, h: torch.searchsorted(c[0], h[0]), got("self", "cpu", "cuda:0")),
    "cdist": (lambda c, h: torch.cdist(c, h), got("x2", "cpu", "cuda:0")),
    "logaddexp": (lambda c, h: torch.logaddexp(c, h), got("other", "cpu", "cuda:0")),
    "logaddexp of a number of the host": (lambda c, h: torch.logaddexp(c, h[0, 0]), got("other", "cpu", "cuda:0")),
    "an index": (lambda c, h: h[c[0].long()], INDICES),
    "an index to put at": (lambda c, h: h.index_put((c[0].long(),), h), INDICES),
    "values to put": (lambda c, h: c.index_put((torch.tensor([0]),), h[:1]), LOOPS),
    "a mask": (lambda c, h: c.masked_fill(h > 0, 1.0), MASK.format("cpu", "cuda:0")),
    "a mask in place": (lambda c, h: h.masked_fill_(c > 0, 1.0), MASK.format("cuda:0", "cpu")),
    "attention": (lambda c, h: F.scaled_dot_product_attention(c[None], c[None], h[None]), ATTENTION),
    "convolution": (
        lambda c, h: F.conv2d(c[None, None], h[None, None]),
        TYPES.format("cuda.", "weight", "FloatTensor"),
    ),
    "convolution of halves": (
        lambda c, h: F.conv2d(c[None, None], c[None, None].half()),
        TYPES.format("cuda.", "weight", "cuda.HalfTensor"),
    ),
    "bias of a convolution": (
        lambda c, h: F.conv2d(c[None, None], c[None, None], h[0, :1]),
        TYPES.format("cuda.", "bias", "FloatTensor"),
    ),
    "convolution on the host": (
        lambda c, h: F.conv2d(h[None, None], c[None, None]),
        TYPES.format("", "weight", "cuda.FloatTensor") + PACKED,
    ),
}


@pytest.mark.parametrize("what", WORDS)
def test_are_refused_in_the_words_of_their_kind(what):
    call, words = WORDS[what]
    c, h = torch.ones(4, 4, device="cuda"), torch.ones(4, 4)
    with pytest.raises(RuntimeError, match=f"^{re.escape(words)}$"):
        call(c, h)
    assert torch.equal(c.cpu(), torch.ones(4, 4)) and torch.equal(h, torch.ones(4, 4))


def test_the_same_in_a_compiled_function():
    def f(c, h):
        return torch.dot(c[0] * 2, h[0])

    with pytest.raises(RuntimeError, match="got tensor is on cpu"):
        torch.compile(f)(torch.ones(4, 4, device="cuda"), torch.ones(4, 4))


def test_indices_and_numbers_of_the_host_are_moved():
    c, at = torch.zeros(4, 2, device="cuda"), torch.tensor([3, 1])
    assert torch.equal(c.index_put((at,), torch.tensor(2.0)).cpu(), torch.tensor([[0.0, 0], [2, 2], [0, 0], [2, 2]]))
    c[at] = torch.ones(2, device="cuda")
    c[torch.tensor([True, False, False, False])] = torch.tensor(5.0)
    c[c == 5] = torch.tensor([5])  # where a mask holds in any dtype
    assert c.sum(1).tolist() == [10, 2, 0, 2] and c[at].sum().item() == 4


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

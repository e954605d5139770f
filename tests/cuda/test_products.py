"""Matrix products of the device's own kernel: the CPU's bits, any strides and sizes."""

import pytest

import wick as torch

F = torch.nn.functional


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_products(dtype):
    torch.manual_seed(0)
    a, b, c = torch.randn(70, 33).to(dtype), torch.randn(33, 90).to(dtype), torch.randn(90).to(dtype)
    for f in (
        lambda a, b, c: a @ b,
        lambda a, b, c: b.t() @ a.t(),
        lambda a, b, c: F.linear(a, b.t(), c),
        lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2),
        lambda a, b, c: a[::3, 1:] @ b[1:, ::2],
        lambda a, b, c: a.expand(3, 70, 33) @ b,
        lambda a, b, c: a.reshape(7, 10, 33).transpose(1, 2) @ a.reshape(7, 10, 33),
    ):
        expected, found = f(a, b, c), f(a.cuda(), b.cuda(), c.cuda())
        assert torch.equal(found.cpu(), expected) and found.stride() == expected.stride()


def test_long_sums_are_taken_in_blocks():
    a, b = torch.randn(5, 2000), torch.randn(2000, 6)
    assert torch.equal((a.cuda() @ b.cuda()).cpu(), a @ b)


def test_nothing_to_sum_and_integers():
    assert torch.equal((torch.ones(3, 0).cuda() @ torch.ones(0, 4).cuda()).cpu(), torch.zeros(3, 4))
    a = torch.arange(12).reshape(3, 4)
    assert torch.equal((a.cuda() @ a.cuda().t()).cpu(), a @ a.t())

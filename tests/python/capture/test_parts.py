"""Gradients of the parts of a tensor: compiled as eager, to the sign of a zero."""

import pytest

import wick as torch


def columns(h):
    return (h[:, :3] * 2).sum() + h[:, 3:].sin().sum()


def entries(h):
    return (h[:, 0] * h[:, -1] + h[:, 1] * h[:, 2]).sum() + (h[:, 3] * h[:, 4] * h[:, 5]).sum()


def steps(h):
    state = torch.zeros(h.shape[0])
    for t in range(h.shape[1]):
        state = torch.tanh(state * 0.5 + h[:, t])
    return state.sum()


def unequal(h):
    return h[:, :1].exp().sum() + (h[:, 1:] ** 3).sum()


def overlapping(h):
    return h[:, :4].exp().sum() + (h[:, 2:] ** 3).sum()


@pytest.mark.parametrize("parts", [columns, entries, steps, unequal, overlapping])
def test_gradients_of_parts_have_eager_bits(parts):
    def loss(x):
        return parts(x * -1.0)

    compiled = torch.compile(loss)
    torch.manual_seed(0)
    for rows in (3, 5, 7):
        x = torch.randn(rows, 6)
        x[0] = 0.0
        grads = []
        for f in (loss, compiled):
            leaf = x.clone().requires_grad_()
            f(leaf).backward()
            grads.append(leaf.grad)
        assert torch.equal(grads[0].view(torch.int32), grads[1].view(torch.int32))
        assert grads[0].stride() == grads[1].stride()

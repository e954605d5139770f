"""Rows of a table whose gradient is sparse: the rows that were used. Tests: tests/parity/test_sparse_parity.py."""

from .. import _C
from ..autograd import Function
from ._parts import COO, Parts, raw


class EmbeddingSparse(Function):
    @staticmethod
    def forward(ctx, weight, input, padding_idx):
        ctx.input, ctx.padding_idx, ctx.size = input, padding_idx, tuple(weight.shape)
        return _C.embedding(weight.detach(), input, padding_idx)

    @staticmethod
    def backward(ctx, gradient):
        rows = ctx.input.reshape(-1).long()
        values = gradient.reshape(-1, ctx.size[1])
        if ctx.padding_idx >= 0:
            kept = (rows != ctx.padding_idx).nonzero().reshape(-1)
            rows, values = rows.index_select(0, kept), values.index_select(0, kept)
        return raw(Parts(COO, rows.unsqueeze(0), None, values, False, ctx.size)), None, None


def embedding(weight, input, padding_idx, scale_grad_by_freq):
    """F.embedding(..., sparse=True) of a weight that requires grad."""
    if scale_grad_by_freq:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    return EmbeddingSparse.apply(weight, input, padding_idx)

"""Losses and norms as torch has them beside nn.functional: a reduction is a number, 0 none, 1 mean, 2 sum. PyTorch's schema
says that the default is the mean, and its Python functions take none.

Tests: tests/parity/test_names_parity.py.
"""

import warnings

from ..nn import functional as F

_REDUCTIONS = ("none", "mean", "sum")


def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction=0):
    """See nn.functional.binary_cross_entropy_with_logits."""
    name = _REDUCTIONS[reduction]
    return F.binary_cross_entropy_with_logits(input, target, weight, reduction=name, pos_weight=pos_weight)


def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction=0):
    """See nn.functional.cosine_embedding_loss."""
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=_REDUCTIONS[reduction])


def hinge_embedding_loss(input, target, margin=1.0, reduction=0):
    """See nn.functional.hinge_embedding_loss."""
    return F.hinge_embedding_loss(input, target, margin, reduction=_REDUCTIONS[reduction])


def kl_div(input, target, reduction=0, *, log_target=False):
    """See nn.functional.kl_div: 1 is the mean over all elements."""
    loss = F.kl_div(input, target, reduction="none", log_target=log_target)
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction=0):
    """See nn.functional.margin_ranking_loss."""
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=_REDUCTIONS[reduction])


def poisson_nll_loss(input, target, log_input, full, eps, reduction):
    """See nn.functional.poisson_nll_loss."""
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=_REDUCTIONS[reduction])


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-06, swap=False, reduction=0):
    """See nn.functional.triplet_margin_loss."""
    return F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=_REDUCTIONS[reduction])


def pairwise_distance(x1, x2, p=2, eps=1e-06, keepdim=False):
    """See nn.functional.pairwise_distance."""
    return F.pairwise_distance(x1, x2, p, eps, keepdim)


def affine_grid_generator(theta, size, align_corners):
    """See nn.functional.affine_grid."""
    return F.affine_grid(theta, size, align_corners)


def native_channel_shuffle(input, groups):
    """See nn.functional.channel_shuffle."""
    return F.channel_shuffle(input, groups)


# ---- norms ----


def _warn(name, instead):
    warnings.warn(
        f"at::{name} is deprecated and it is just left for JIT compatibility. It will be removed in a future PyTorch release. "
        f"Please use `linalg.{instead}` instead",
        stacklevel=3,
    )


def nuclear_norm(input, dim=None, keepdim=False):
    """The sum of the singular values, of all of a matrix or of two dims."""
    _warn("nuclear_norm", "matrix_norm(A, 'nuc', dim, keepdim)")
    dims = (-2, -1) if dim is None else dim
    if dim is None and input.dim() != 2:
        raise RuntimeError(
            f"Expected a tensor with 2 dimensions, but got a tensor with {input.dim()} dimensions instead."
        )
    from .. import linalg

    return linalg.matrix_norm(input, "nuc", dims, keepdim)


def frobenius_norm(input, dim=(), keepdim=False):
    """The square root of the sum of squares over `dim`, at most two of them; over all for none."""
    _warn("frobenius_norm", "vector_norm(A, 2., dim, keepdim)")
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) > 2:
        raise RuntimeError(f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead.")
    from .. import linalg

    return linalg.vector_norm(input, 2, dims or None, keepdim)


def norm_except_dim(v, pow=2, dim=0):
    """The norm over all dims but one, which the result has; the others are of size 1. dim -1: over all."""
    from .. import linalg

    if dim == -1:
        return linalg.vector_norm(v, pow)
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    return linalg.vector_norm(v, pow, others, True) if others else v.abs()

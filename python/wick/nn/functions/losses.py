"""Losses that few programs need, written with operators. Tests: tests/parity/test_losses_parity.py."""

import math

from ... import _C
from ..._C import _autocast_wide as _wide
from ...functions.ctc import ctc_loss as _ctc_loss
from ..functional import _handle, _reduction, logsigmoid


def _reduced(loss, reduction):
    """reduction: 0 none, 1 mean, 2 sum."""
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """max(0, -target (input1 - input2) + margin)."""
    if _C._overrides and _C._has_torch_function_variadic(input1, input2, target):
        return _handle(margin_ranking_loss, (input1, input2, target), **locals())
    input1, input2, target = (_wide(t) for t in (input1, input2, target))
    reduction = _reduction(size_average, reduce, reduction)
    if not input1.dim() == input2.dim() == target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return _reduced((-target * (input1 - input2) + margin).clamp_min(0), reduction)


def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    """input where target is 1, max(0, margin - input) where it is -1."""
    if _C._overrides and _C._has_torch_function_variadic(input, target):
        return _handle(hinge_embedding_loss, (input, target), **locals())
    input, target = _wide(input), _wide(target)
    reduction = _reduction(size_average, reduce, reduction)
    zeros = _C.zeros_like(input)
    far = _C.where(target != 1, (margin - input).clamp_min(0), zeros)
    near = _C.where(target != -1, input, zeros)
    return _reduced(far + near, reduction)


def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """log(1 + exp(-target input))."""
    if _C._overrides and _C._has_torch_function_variadic(input, target):
        return _handle(soft_margin_loss, (input, target), **locals())
    input, target = _wide(input), _wide(target)
    return _reduced((-input * target).exp().log1p(), _reduction(size_average, reduce, reduction))


def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1; input1, input2 (N, D) or (D)."""
    if _C._overrides and _C._has_torch_function_variadic(input1, input2, target):
        return _handle(cosine_embedding_loss, (input1, input2, target), **locals())
    input1, input2, target = (_wide(t) for t in (input1, input2, target))
    reduction = _reduction(size_average, reduce, reduction)
    if target.dim() not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    rank = target.dim() + 1
    if input1.dim() != rank or input2.dim() != rank:
        kind = f"{target.dim()}D target tensor expects {rank}D input tensors"
        raise RuntimeError(f"{kind}, but found inputs with sizes {list(input1.shape)} and {list(input2.shape)}.")
    dim, tiny = target.dim(), 1e-12
    dots = (input1 * input2).sum(dim)
    squares = ((input1 * input1).sum(dim) + tiny) * ((input2 * input2).sum(dim) + tiny)
    cosine = dots / squares.sqrt()
    zeros = _C.zeros_like(cosine)
    near = _C.where(target == 1, 1 - cosine, zeros)
    far = _C.where(target == -1, (cosine - margin).clamp_min(0), zeros)
    return _reduced(near + far, reduction)


def poisson_nll_loss(
    input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"
):
    """exp(input) - target input, or with log_input False input - target log(input); full: Stirling's formula added."""
    if _C._overrides and _C._has_torch_function_variadic(input, target):
        return _handle(poisson_nll_loss, (input, target), **locals())
    input, target = _wide(input), _wide(target)
    number = _reduction(size_average, reduce, reduction)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2 * math.pi * target).log()
        loss = loss + stirling.masked_fill(target <= 1, 0)
    return _reduced(loss, number)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """(log(var) + (input - target)^2 / var) / 2; full: the constant added."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, var):
        return _handle(gaussian_nll_loss, (input, target, var), **locals())
    if not isinstance(var, _C.Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * _C.ones_like(input)
    elif (var < 0).any():
        raise ValueError("var has negative entry/entries")
    if var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = var.unsqueeze(-1)
        elif not (input.size()[:-1] == var.size()[:-1] and var.size(-1) == 1) and not _broadcasts(input, var):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    var = var + (var.detach().clamp_min(eps) - var.detach())  # at least eps; the gradient is var's own
    loss = 0.5 * (var.log() + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduced(loss, {"none": 0, "mean": 1, "sum": 2}[reduction])


def _broadcasts(input, var):
    return input.dim() == var.dim() and all(a == b or b == 1 for a, b in zip(input.shape, var.shape, strict=True))


def _check_rows(input):
    """One row of classes, or rows, of which there may be none."""
    if input.dim() > 2 or (input.dim() and input.size(-1) == 0):
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}"
        )


def _check_long(target):
    if target.dtype != _C.int64:
        raise RuntimeError(
            f"expected scalar type Long but found {target.type().rpartition('.')[2].removesuffix('Tensor')}"
        )


def _check_labels(input, target):
    if target.shape != input.shape and not (input.dim() < 2 and target.dim() < 2 and target.numel() == input.numel()):
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    _check_long(target)


def _check_classes(input, target, weight):
    rows = input.size(0) if input.dim() == 2 else 1
    if target.dim() > 1 or target.numel() != rows:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size). "
            f"Expected target size [{rows}], but got {list(target.shape)}. Input has shape {list(input.shape)}."
        )
    classes = input.size(-1) if input.dim() else 1
    if weight is not None and weight.numel() != classes:
        raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    _check_long(target)


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """mean over other classes of max(0, margin - input[target] + input[class])^p; input (N, C) or (C)."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight):
        return _handle(multi_margin_loss, (input, target, weight), **locals())
    input = _wide(input)
    reduction = _reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    _check_rows(input)
    _check_classes(input, target, weight)
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    classes = target.reshape(-1, 1)
    loss = (margin - rows.gather(1, classes) + rows).clamp_min(0)
    loss = loss if p == 1 else loss * loss
    if weight is not None:
        loss = loss * weight[classes]
    own = _C.arange(rows.size(1), device=rows.device) == classes
    loss = loss.masked_fill(own, 0).sum(1) / rows.size(1)
    return _reduced(loss.reshape(target.shape) if reduction == 0 else loss, reduction)


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """mean over labels and other classes of max(0, 1 - input[label] + input[class]); labels end at the first -1."""
    if _C._overrides and _C._has_torch_function_variadic(input, target):
        return _handle(multilabel_margin_loss, (input, target), **locals())
    input = _wide(input)
    reduction = _reduction(size_average, reduce, reduction)
    _check_rows(input)
    _check_labels(input, target)
    rows, labels = (t.reshape(1, -1) if input.dim() < 2 else t for t in (input, target))
    listed = (labels < 0).cumsum(1) == 0  # before the first -1
    labels = labels.clamp_min(0)
    is_label = _C.zeros_like(labels).scatter_add(1, labels, listed.to(labels.dtype)) > 0
    margins = (1 - rows.gather(1, labels).unsqueeze(2) + rows.unsqueeze(1)).clamp_min(0)  # (N, label, class)
    counts = listed.unsqueeze(2) & ~is_label.unsqueeze(1)
    loss = margins.masked_fill(~counts, 0).sum((1, 2)) / rows.size(1)
    return _reduced(loss.reshape(input.shape[:-1]) if reduction == 0 else loss, reduction)


def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """mean over classes of -(target log sigmoid(input) + (1 - target) log sigmoid(-input))."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight):
        return _handle(multilabel_soft_margin_loss, (input, target, weight), **locals())
    number = _reduction(size_average, reduce, reduction)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    loss = loss if weight is None else loss * weight
    return _reduced(loss.sum(-1) / input.size(-1), number)


def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None, reduction="mean"
):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin) of p-norm distances."""
    if _C._overrides and _C._has_torch_function_variadic(anchor, positive, negative):
        return _handle(triplet_margin_loss, (anchor, positive, negative), **locals())
    anchor, positive, negative = (_wide(t) for t in (anchor, positive, negative))
    reduction = _reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )

    def distance(x, y):
        return pairwise_distance(x, y, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(anchor, positive, negative, distance, margin, swap, reduction):
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _C.minimum(far, distance(positive, negative))
    return _reduced((margin + near - far).clamp_min(0), reduction)


def triplet_margin_with_distance_loss(
    anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"
):
    """triplet_margin_loss with a distance of the program's own, or pairwise_distance."""
    if _C._overrides and _C._has_torch_function_variadic(anchor, positive, negative):
        return _handle(triplet_margin_with_distance_loss, (anchor, positive, negative), **locals())
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, {"none": 0, "mean": 1, "sum": 2}[reduction])


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps along the last dimension."""
    if _C._overrides and _C._has_torch_function_variadic(x1, x2):
        return _handle(pairwise_distance, (x1, x2), **locals())
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def pdist(input, p=2.0):
    """The p-norm distances of all pairs of rows of (N, D): (N (N - 1) / 2)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(pdist, (input,), **locals())
    return _C.pdist(input, p)


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean", zero_infinity=False):
    """What the sequences targets (N, S) cost under log_probs (T, N, C), with blanks between and each class any number of
    times: Graves et al., 2006."""
    if _C._overrides and _C._has_torch_function_variadic(log_probs, targets, input_lengths, target_lengths):
        return _handle(ctc_loss, (log_probs, targets, input_lengths, target_lengths), **locals())
    reduction = _reduction(None, None, reduction)
    return _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)

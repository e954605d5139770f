"""The steps of batch normalisation that processes share: statistics of a part, of all parts, the normalisation, and the same
backward. Channels are dim 1. PyTorch has most of them on GPUs alone. Tests: tests/python/test_batch_norm.py."""

from .. import _C


def _other_dims(t):
    return [d for d in range(t.dim()) if d != 1]


def _over_channels(t, like):
    return t.reshape([1, -1] + [1] * (like.dim() - 2))


def _count(t):
    return t.numel() // max(t.size(1), 1)


def batch_norm_stats(input, eps):
    """(mean, 1 / sqrt(variance + eps)), each (C)"""
    wide = input.float() if input.dtype in (_C.float16, _C.bfloat16) else input
    mean = wide.mean(_other_dims(input))
    variance = (wide - _over_channels(mean, wide)).square().mean(_other_dims(input))
    return mean, (variance + eps).rsqrt()


def batch_norm_elemt(input, weight, bias, mean, invstd, eps):
    """(input - mean) * invstd * weight + bias"""
    result = (input - _over_channels(mean, input)) * _over_channels(invstd, input)
    if weight is not None:
        result = result * _over_channels(weight, input)
    return (result if bias is None else result + _over_channels(bias, input)).to(input.dtype)


def batch_norm_update_stats(input, running_mean, running_var, momentum):
    """(mean, variance) of the elements; the running ones take their share, of the unbiased variance."""
    dims, n = _other_dims(input), _count(input)
    mean = input.mean(dims)
    variance = (input - _over_channels(mean, input)).square().mean(dims)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
    if running_var is not None:
        running_var.mul_(1 - momentum).add_(variance * (n / max(n - 1, 1)), alpha=momentum)
    return mean, variance


def batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts):
    """(mean, invstd) of all parts, of which mean and invstd have a row each, (parts, C), and counts the sizes, (parts)."""
    weights = (counts / counts.sum()).to(mean.dtype).unsqueeze(1)
    whole = (mean * weights).sum(0)
    variance = ((invstd**-2 - eps + (mean - whole).square()) * weights).sum(0)
    total = counts.sum().to(mean.dtype)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_((whole * momentum).to(running_mean.dtype))
    if running_var is not None:
        unbiased = variance * (total / (total - 1))
        running_var.mul_(1 - momentum).add_((unbiased * momentum).to(running_var.dtype))
    return whole, (variance + eps).rsqrt()


def batch_norm_gather_stats(input, mean, invstd, running_mean, running_var, momentum, eps, count):
    """The same where all parts have one size."""
    counts = mean.new_full((mean.size(0),), float(count))
    return batch_norm_gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts)


def batch_norm_backward_reduce(grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g):
    """(sum of the gradient, sum of it times input - mean, the weight's gradient, the bias's), each (C) or None"""
    dims = _other_dims(input)
    sum_dy = grad_out.sum(dims)
    sum_dy_xmu = (grad_out * (input - _over_channels(mean, input))).sum(dims)
    return (
        sum_dy if input_g else None,
        sum_dy_xmu if input_g else None,
        sum_dy_xmu * invstd if weight_g else None,
        sum_dy if bias_g else None,
    )


def batch_norm_backward_elemt(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count):
    """The input's gradient, by the sums and counts of all parts."""
    total = count.sum().to(sum_dy.dtype)
    centred = input - _over_channels(mean, input)
    slope = _over_channels(invstd.square() * sum_dy_xmu / total, input)
    factor = invstd if weight is None else invstd * weight
    return ((grad_out - _over_channels(sum_dy / total, input) - centred * slope) * _over_channels(factor, input)).to(
        input.dtype
    )

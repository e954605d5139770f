"""Sums, means and maxima of rows of a table. Tests: tests/parity/test_losses_parity.py."""

from ... import _C
from ..functional import _handle


def embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """weight (rows, D), input (B, N) of row numbers, or all bags' numbers (n) with where each begins, offsets (B): (B, D).

    y = F.embedding_bag(wick.tensor([1, 2, 4]), wick.randn(10, 3), wick.tensor([0, 2]))    # (2, 3)
    """
    if _C._overrides and _C._has_torch_function_variadic(input, weight, offsets, per_sample_weights):
        return _handle(embedding_bag, (input, weight, offsets, per_sample_weights), **locals())
    if per_sample_weights is not None and input.size() != per_sample_weights.size():
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then it must have the same "
            f"shape as the input ({input.shape})"
        )
    if weight.dim() != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}")
    _check_mode(mode, scale_grad_by_freq, sparse, per_sample_weights)
    starts = _starts(input, offsets, include_last_offset)
    if padding_idx is not None:
        if not -weight.size(0) <= padding_idx < weight.size(0):
            raise AssertionError("padding_idx must be within the number of embeddings")
        padding_idx %= weight.size(0)
    numbers = input.reshape(-1)
    if max_norm is not None:
        with _C.no_grad():
            _C.embedding_renorm_(weight.detach(), numbers, max_norm, norm_type)
    sparse = sparse and weight.requires_grad and _C.is_grad_enabled()
    if mode != "max" and not scale_grad_by_freq and not sparse and weight.dtype in (_C.float32, _C.float64):
        scales = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        padding = -1 if padding_idx is None else padding_idx
        return _C._embedding_bag_sum(weight, numbers.long(), starts.long(), scales, padding, mode == "mean")
    if sparse:
        from ...sparse._embedding import embedding

        rows = embedding(weight, numbers, -1 if padding_idx is None else padding_idx, scale_grad_by_freq)
    else:
        rows = _C.embedding(weight, numbers, -1 if padding_idx is None else padding_idx, scale_grad_by_freq)
    if rows.dtype in (_C.float16, _C.bfloat16):  # what is added up is rounded once, at the end
        rows = rows.float()
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(rows.dtype).reshape(-1, 1)
    counts = None if padding_idx is None else numbers != padding_idx
    return _of_bags(rows, _bags(starts, numbers), starts.size(0), counts, mode).to(weight.dtype)


def _check_mode(mode, scale_grad_by_freq, sparse, per_sample_weights):
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' "
            f"(got mode='{mode}'). Please open a feature request on GitHub."
        )


def _starts(input, offsets, include_last_offset):
    """Where each bag begins among the numbers: (B)."""
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length "
                f"sequences. However, found offsets of type {type(offsets)}"
            )
        return _C.arange(input.size(0), dtype=input.dtype, device=input.device) * input.size(1)
    if input.dim() != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.dim() != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    return offsets[:-1] if include_last_offset else offsets


def _bags(starts, numbers):
    """The bag of each number: how many bags have begun, less one."""
    begun = _C.zeros(numbers.size(0) + 1, dtype=_C.int64, device=numbers.device)
    return begun.index_add(0, starts.long(), _C.ones_like(starts, dtype=_C.int64)).cumsum(0)[:-1] - 1


def _of_bags(rows, bags, count, counts, mode):
    """(count, D) of rows (n, D) in bags (n); rows whose `counts` is False are left out."""
    if counts is not None:
        rows, bags = rows[counts], bags[counts]
    zeros = rows.new_zeros((count, rows.size(1)))
    if mode == "max":
        return zeros.scatter_reduce(0, bags.unsqueeze(1).expand_as(rows), rows, "amax", include_self=False)
    total = zeros.index_add(0, bags, rows)
    if mode == "mean":
        sizes = rows.new_zeros(count).index_add(0, bags, _C.ones_like(bags, dtype=rows.dtype))
        total = total / sizes.clamp_min(1).unsqueeze(1)
    return total

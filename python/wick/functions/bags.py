"""torch.embedding_bag: F.embedding_bag with numbers for modes, and what PyTorch's kernel gives beside the sums.
Tests: tests/parity/test_losses_parity.py."""

from .. import _C

_MODES = ("sum", "mean", "max")


def embedding_bag(
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=0,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """(bags, which bag each number is in, how many numbers each bag has, the rows of the maxima)

    sums, _, _, _ = wick.embedding_bag(wick.randn(10, 3), wick.tensor([1, 2, 4]), wick.tensor([0, 2]))    # (2, 3)
    """
    from ..nn.functional import embedding_bag as bags

    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.size(0)
    result = bags(
        indices, weight, offsets, None, 2, scale_grad_by_freq, _MODES[mode], sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    starts = offsets[:-1] if include_last_offset else offsets
    count = starts.size(0)
    ends = _C.cat([starts[1:], starts.new_full((1,), indices.size(0))])
    sizes = ends - starts
    bag_of = _C.repeat_interleave(_C.arange(count, dtype=indices.dtype, device=indices.device), sizes.long())
    if mode == 0:
        zeros = starts.new_zeros(offsets.size(0))
        return result, indices.new_zeros(0) if padding_idx is None else bag_of, zeros, zeros.clone()
    if padding_idx is not None:
        sizes = sizes - _C.zeros_like(sizes).scatter_add(0, bag_of.long(), (indices == padding_idx).to(sizes.dtype))
    if mode == 1:
        return result, bag_of, sizes, sizes.clone()
    return result, bag_of, sizes, _rows_of_maxima(weight.detach(), indices, bag_of.long(), result.detach(), padding_idx)


def _rows_of_maxima(weight, indices, bag_of, maxima, padding_idx):
    """(bags, D): the number of the row, the first one, that each maximum is of."""
    rows = weight.index_select(0, indices.long())
    is_it = rows == maxima.index_select(0, bag_of)
    if padding_idx is not None:
        is_it &= (indices != padding_idx).unsqueeze(1)
    places = _C.arange(indices.size(0), device=indices.device).unsqueeze(1).expand(rows.shape)
    far = indices.size(0)
    first = _C.full(maxima.shape, far, dtype=_C.int64, device=indices.device)
    first = first.scatter_reduce(
        0, bag_of.unsqueeze(1).expand(rows.shape), _C.where(is_it, places, far), "amin", include_self=True
    )
    padded = _C.cat([indices, indices.new_zeros(1)])
    return padded[first.reshape(-1)].reshape(maxima.shape)

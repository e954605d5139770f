"""torch.nn.attention.flex_attention: attention whose scores and mask are functions of places.

>>> mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, device="cpu")
>>> flex_attention(query, key, value, block_mask=mask)

The functions are called once, with one score and its place, and what they do becomes a loop body that the attention
kernel runs on each block of scores (src/autograd/body.h): there is no tensor of all scores, and blocks that a BlockMask
leaves out are not computed. On a CUDA device this is so for float16, bfloat16 and float32. Functions that are no such body (one that looks at a value, sums, writes or draws random
numbers) are called with all places, as index tensors that broadcast, on all scores.
"""

import math
from typing import NamedTuple

from ... import _C
from ..._deterministic import are_deterministic_algorithms_enabled
from ..._names import getter as _getter
from ._block_mask import (
    _DEFAULT_SPARSE_BLOCK_SIZE,  # noqa: F401  transformers imports it from here
    BlockMask,
    _places,
    _sliced_mask_mod_error,
    and_masks,
    create_block_mask,
    create_mask,
    noop_mask,
    or_masks,
)

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention",
           "noop_mask", "or_masks"]  # fmt: skip


class AuxRequest(NamedTuple):
    """What flex_attention gives beside its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What it gave."""

    lse: object = None
    max_scores: object = None


def _checked_operands(query, key, value, block_mask, enable_gqa):
    """Keys and values, with a batch for each of the query's."""
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension "
            f"but got E={query.shape[-1]} and E={key.shape[-1]}."
        )
    batch, of_keys = query.shape[0], key.shape[0]
    if batch != of_keys and block_mask is None:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, "
            f"but got block_mask=None, Bq={batch}, and Bkv={of_keys}."
        )
    if batch != of_keys and block_mask.kv_num_blocks.shape[0] != batch:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or block_mask and query to have the same batch "
            f"size, but got Bq={batch}, Bkv={of_keys}, B_block_mask={block_mask.kv_num_blocks.shape[0]}."
        )
    if batch != of_keys and of_keys != 1:
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={batch} and Bkv={of_keys}")
    if batch != of_keys:
        key, value = key.expand(batch, -1, -1, -1), value.expand(batch, -1, -1, -1)
    _check_heads(query, key, enable_gqa)
    return key, value


def _check_heads(query, key, enable_gqa):
    heads, of_keys = query.shape[1], key.shape[1]
    if heads == of_keys:
        return
    if not enable_gqa:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={of_keys}. "
            "Try setting enable_gqa=True for GQA."
        )
    if heads % of_keys:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={of_keys}."
        )


def _grouped(query, key, value):
    """Keys and values with a head for each of the query's."""
    groups = query.shape[1] // key.shape[1]
    return (t if groups == 1 else t.repeat_interleave(groups, 1) for t in (key, value))


def _check_lengths(query, key, block_mask):
    if block_mask.mask_mod is _sliced_mask_mod_error:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    q_len, kv_len = query.shape[-2], key.shape[-2]
    of_mask = block_mask.shape[-2:]
    if (q_len, kv_len) == tuple(of_mask):
        return
    made = f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q_len} and kv_len={kv_len}. "
    if q_len > of_mask[0] or kv_len > of_mask[1]:
        raise ValueError(
            made + "As the block mask was created for a smaller length than you're using it for, you likely need to "
            "create a new block mask."
        )
    raise ValueError(
        made + "As the block mask was created for a larger length than you're using it for, you can either 1. create a "
        "new block mask with the correct length, or 2. 'adjust' the existing block mask to the correct length by "
        "calling block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the upper left corner, "
        "which does not work for all mask_mods!"
    )


def _fits_device(query, key, value, block_mask):
    """What the kernels of a device are for: src/ops/rules/flex_attention.c."""
    unit = {_C.float16: 8, _C.bfloat16: 8, _C.float32: 4}.get(query.dtype)
    sizes = query.shape[-1], value.shape[-1]
    if unit is None or not key.dtype == value.dtype == query.dtype:
        return False
    if query.device.type != "cuda" or key.device != query.device or value.device != query.device:
        return False
    if any(n % unit or not 0 < n <= 256 for n in sizes) or max(query.shape[:2]) > 65535 or not key.shape[1]:
        return False
    return block_mask is None or not (block_mask.BLOCK_SIZE[0] % 128 or block_mask.BLOCK_SIZE[1] % 128)


def _body_of(score_mod, mask_mod, dtype, differentiable, operands):
    """(score, masked, derivative, reads, captured): nests as text and tensors; None: the functions are no loop body."""
    begun = _C._score_begin(dtype, differentiable, *operands)
    if begun is None:  # inside of a score function, forward mode, or the device has no such attention
        return None
    score, *place = begun
    try:
        modified = None if score_mod is None else _given(score_mod(score, *place))
        keep = None if mask_mod is None else _given(mask_mod(*place))
    except BaseException as error:
        if _C._score_end(None, None) is None and isinstance(error, Exception):
            return None
        raise
    body = _C._score_end(modified, keep)
    return None if body and body[3] and _adds_in_any_order(operands[0].device) else body


def _adds_in_any_order(device):
    """Gradients of captured tensors, where that is not wanted: kernels of CUDA add them atomically."""
    return device.type == "cuda" and are_deterministic_algorithms_enabled()


def _given(value):
    return False if value is None else value  # None stands for no function


def _in_blocks(query, key, value, body, block_mask, scale):
    """(result, lse, largest scores)"""
    score, masked, derivative, reads, captured = body
    states, size = (None, (1, 1)) if block_mask is None else (block_mask._states, block_mask.BLOCK_SIZE)
    result, lse, largest = _C._flex_attention(
        query, key, value, states, captured, score, masked, derivative, reads, size, scale
    )
    if query.device.type == "cpu":  # other devices' say it themselves
        lse = lse.masked_fill(largest == -math.inf, -math.inf)
    return result, lse, largest.detach()


def _tensor_of(function, *args):
    value = function(*args)
    if not isinstance(value, _C.Tensor):
        name = getattr(function, "__name__", function)
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(value)}. Did you mean to set out_dims= "
            "to None for output?"
        )
    return value


def _with_all_scores(query, key, value, score_mod, block_mask, scale):
    """The same, of a matrix of all scores."""
    scores = query @ key.transpose(-2, -1) * scale  # (B, H, Q, KV)
    places = _places([(0, size) for size in scores.shape], query.device)
    if score_mod is not None:
        scores = _tensor_of(score_mod, scores, *places)
    if block_mask is not None:
        scores = scores.masked_fill(~_tensor_of(block_mask.mask_mod, *places), -math.inf)
    lse = scores.logsumexp(-1)
    seen = (lse > -math.inf).unsqueeze(-1)
    weights = _C.where(seen, scores - lse.unsqueeze(-1), -math.inf).exp()
    return weights.to(value.dtype) @ value, lse, scores.detach().amax(-1)


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
    kernel_options=None, *, return_aux=None,
):  # fmt: skip
    """softmax(score_mod(query key^T scale)) value, where the mask lets it."""
    key, value = _checked_operands(query, key, value, block_mask, enable_gqa)
    if block_mask is not None:
        _check_lengths(query, key, block_mask)
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
            "return_aux=AuxRequest(lse=True) instead."
        )
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    device = query.device
    if device.type in ("cpu", "cuda") and _C.is_autocast_enabled(device.type):
        small = _C.get_autocast_dtype(device.type)
        query, key, value = (t if t.dtype == _C.float64 else t.to(small) for t in (query, key, value))
    dtype, working = query.dtype, _C.float64 if query.dtype == _C.float64 else _C.float32
    differentiable = _C.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    mask_mod = None if block_mask is None else block_mask.mask_mod
    body, as_they_are = None, _fits_device(query, key, value, block_mask)
    if as_they_are or device.type == "cpu":
        body = _body_of(score_mod, mask_mod, working, differentiable, (query, key, value))
    if body is None or not as_they_are:
        query, key, value = query.to(working), *(t.to(working) for t in _grouped(query, key, value))
    if body is None:
        result, lse, largest = _with_all_scores(query, key, value, score_mod, block_mask, scale)
    else:
        result, lse, largest = _in_blocks(query, key, value, body, block_mask, scale)
    result = result.to(dtype)
    if return_aux is not None:
        return result, AuxOutput(lse if return_aux.lse else None, largest if return_aux.max_scores else None)
    return (result, lse) if return_lse else result


__getattr__ = _getter(__name__)

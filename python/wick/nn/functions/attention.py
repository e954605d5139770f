"""Attention with several heads over projected inputs. Tests: tests/parity/test_transformer_parity.py.

Shapes: L positions of the query, S of key and value, N the batch, E the features of all H heads together.
"""

import math

from ... import _C
from ..functional import _handle, dropout, linear, scaled_dot_product_attention, softmax


def canonical_mask(mask, name, other_dtype, other_name, dtype, check_other=True):
    """A bool mask as numbers to add to scores: minus infinity where it is true. None stays None."""
    if mask is None:
        return None
    if mask.dtype != _C.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if check_other and other_dtype is not None and mask.dtype != other_dtype:
        import warnings

        warnings.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=3,
        )
    if mask.is_floating_point():
        return mask
    return _C.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)


def dtype_of(mask):
    """A mask's dtype, None for None."""
    return None if mask is None else mask.dtype


def _expect(condition, message, *values):
    """The values are put into the message when it is needed: text of a size would make it a number of a captured graph."""
    if not condition:
        raise AssertionError(message.format(*values) if values else message)


def _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Whether the inputs are batched; PyTorch's errors where their ranks do not belong together."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    batched = query.dim() == 3
    kind = "batched (3-D)" if batched else "unbatched (2-D)"
    rank = query.dim()
    _expect(
        key.dim() == rank and value.dim() == rank,
        f"For {kind} `query`, expected `key` and `value` to be {rank}-D but found {key.dim()}-D and {value.dim()}-D "
        "tensors respectively",
    )
    if key_padding_mask is not None:
        _expect(
            key_padding_mask.dim() == rank - 1,
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {rank - 1}-D but found "
            f"{key_padding_mask.dim()}-D tensor instead",
        )
    if attn_mask is not None:
        _expect(
            attn_mask.dim() in (2, 3),
            f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor "
            "instead",
        )
    if attn_mask is not None and attn_mask.dim() == 3 and not batched:
        shape = (num_heads, query.shape[0], key.shape[0])
        _expect(attn_mask.shape == shape, "Expected `attn_mask` shape to be {} but got {}", shape, attn_mask.shape)
    return batched


def _project_packed(query, key, value, weight, bias):
    """The three projections by one weight (3 E, E): as few products as there are different inputs."""
    size = query.size(-1)
    if key is value and query is key:
        together = linear(query, weight, bias).unflatten(-1, (3, size))
        return together.unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous().unbind(0)
    if key is value:
        weight_q, weight_kv = weight.split([size, size * 2])
        bias_q, bias_kv = (None, None) if bias is None else bias.split([size, size * 2])
        projected = linear(query, weight_q, bias_q)
        together = linear(key, weight_kv, bias_kv).unflatten(-1, (2, size))
        return projected, *together.unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous().unbind(0)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [linear(x, w, b) for x, w, b in zip((query, key, value), weight.chunk(3), biases, strict=True)]


def _project(query, key, value, weights, bias):
    """The three projections by a weight each: (E, E), (E, features of keys), (E, features of values)."""
    size = query.size(-1)
    for x, name, weight in zip((query, key, value), "qkv", weights, strict=True):
        shape = (size, x.size(-1))
        _expect(weight is not None, f"use_separate_proj_weight is True but {name}_proj_weight is None")
        _expect(weight.shape == shape, "expecting {} weights shape of {}, but got {}", _LONG[name], shape, weight.shape)
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return [linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]


_LONG = {"q": "query", "k": "key", "v": "value"}


def _check_mask(mask, length, source, heads_in_batch):
    """The mask with a dim for batch and heads."""
    if mask is None:
        return None
    if mask.dim() not in (2, 3):
        raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")
    expected = (length, source) if mask.dim() == 2 else (heads_in_batch, length, source)
    if mask.shape != expected:
        raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {expected}.")
    return mask.unsqueeze(0) if mask.dim() == 2 else mask


def _longer(masks):
    """The masks with one more key that everything may look at."""
    return [None if mask is None else _C.pad(mask, (0, 1)) for mask in masks]


def _with_biases(k, v, bias_k, bias_v, static_k, static_v):
    """Keys and values (S, N, E) with one more of each, (1, 1, E), that is learned."""
    _expect(bias_v is not None, "bias_k is set but bias_v is None")
    _expect(bias_k is not None, "bias_v is set but bias_k is None")
    _expect(static_k is None, "bias cannot be added to static key.")
    _expect(static_v is None, "bias cannot be added to static value.")
    batch = k.size(1)
    return _C.cat([k, bias_k.repeat(1, batch, 1)]), _C.cat([v, bias_v.repeat(1, batch, 1)])


def _heads(x, count, size):
    """(S, N, E) -> (N H, S, E / H)"""
    return x.view(x.shape[0], count, size).transpose(0, 1)


def _static(given, name, count, size):
    _expect(given.size(0) == count, "expecting static_{}.size(0) of {}, but got {}", name, count, given.size(0))
    _expect(given.size(2) == size, "expecting static_{}.size(2) of {}, but got {}", name, size, given.size(2))
    return given


def _merge_masks(attn_mask, padding, batch, heads, source):
    """What is added to the scores (N H, L, S), of the mask of positions and that of padded keys (N, S)."""
    if padding is None:
        return attn_mask
    for dim, expected in enumerate((batch, source)):
        found = padding.shape[dim]
        _expect(found == expected, "Expected key_padded_mask.shape[{}] to be {}, but got {}", dim, expected, found)
    padding = padding.view(batch, 1, 1, source).expand(-1, heads, -1, -1).reshape(batch * heads, 1, source)
    return padding if attn_mask is None else attn_mask + padding


def _with_weights(q, k, v, mask, dropout_p):
    """(N H, L, E / H) and the weights (N H, L, S)."""
    q, k = q * math.sqrt(1.0 / float(q.size(-1))), k.transpose(-2, -1)
    weights = softmax(_C.bmm(q, k) if mask is None else _C.baddbmm(mask, q, k), dim=-1)
    if dropout_p > 0.0:
        weights = dropout(weights, p=dropout_p)
    return _C.bmm(weights, v), weights


def _without_weights(q, k, v, mask, dropout_p, is_causal, batch, heads):
    """(L N, E), by the kernels of scaled_dot_product_attention."""
    length, source, size = q.size(1), k.size(1), q.size(2)
    if mask is not None:
        alone = mask.size(0) == 1 and mask.dim() == 3
        mask = mask.unsqueeze(0) if alone else mask.view(batch, heads, -1, source)
    q = q.view(batch, heads, length, size)
    k, v = k.view(batch, heads, source, size), v.view(batch, heads, source, size)
    result = scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)
    return result.permute(2, 0, 1, 3).contiguous().view(batch * length, heads * size)


def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    """query (L, N, E), key and value (S, N, ...), all without N too: the result (L, N, E), and the weights or None."""
    if _C._overrides:
        tensors = (query, key, value, in_proj_weight, in_proj_bias, bias_k, bias_v, out_proj_weight, out_proj_bias)
        if _C._has_torch_function_variadic(*tensors):
            return _handle(
                multi_head_attention_forward, tensors, **{k: v for k, v in locals().items() if k != "tensors"}
            )
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, embed_dim = query.shape
    source = key.shape[0]

    key_padding_mask = canonical_mask(
        key_padding_mask, "key_padding_mask", dtype_of(attn_mask), "attn_mask", query.dtype
    )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the kernels know this mask
    else:
        attn_mask = canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
        is_causal = is_causal and key_padding_mask is None

    _expect(
        embed_dim == embed_dim_to_check,
        "was expecting embedding dimension of {}, but got {}",
        embed_dim_to_check,
        embed_dim,
    )
    size = embed_dim // num_heads
    _expect(size * num_heads == embed_dim, "embed_dim {} not divisible by num_heads {}", embed_dim, num_heads)
    if use_separate_proj_weight:
        _expect(
            key.shape[:2] == value.shape[:2],
            "key's sequence and batch dims {} do not match value's {}",
            key.shape[:2],
            value.shape[:2],
        )
        q, k, v = _project(query, key, value, (q_proj_weight, k_proj_weight, v_proj_weight), in_proj_bias)
    else:
        _expect(key.shape == value.shape, "key shape {} does not match value shape {}", key.shape, value.shape)
        _expect(in_proj_weight is not None, "use_separate_proj_weight is False but in_proj_weight is None")
        q, k, v = _project_packed(query, key, value, in_proj_weight, in_proj_bias)
    attn_mask = _check_mask(attn_mask, length, source, batch * num_heads)

    masks = attn_mask, key_padding_mask
    if bias_k is not None or bias_v is not None:
        k, v = _with_biases(k, v, bias_k, bias_v, static_k, static_v)
        masks = _longer(masks)
    count = batch * num_heads
    q = _heads(q, count, size)
    k = _heads(k, count, size) if static_k is None else _static(static_k, "k", count, size)
    v = _heads(v, count, size) if static_v is None else _static(static_v, "v", count, size)
    if add_zero_attn:
        zeros = k.new_zeros((count, 1, size))
        k, v = _C.cat([k, zeros], dim=1), _C.cat([v, zeros], dim=1)
        masks = _longer(masks)
    source = k.size(1)
    mask = _merge_masks(*masks, batch, num_heads, source)
    dropout_p = dropout_p if training else 0.0

    if not need_weights:
        result = _without_weights(q, k, v, mask, dropout_p, is_causal, batch, num_heads)
        result = linear(result, out_proj_weight, out_proj_bias).view(length, batch, -1)
        return (result if batched else result.squeeze(1)), None
    _expect(not is_causal or mask is not None, "FIXME: is_causal not implemented for need_weights")
    result, weights = _with_weights(q, k, v, mask, dropout_p)
    result = result.transpose(0, 1).contiguous().view(length * batch, embed_dim)
    result = linear(result, out_proj_weight, out_proj_bias).view(length, batch, -1)
    weights = weights.view(batch, num_heads, length, source)
    weights = weights.mean(dim=1) if average_attn_weights else weights
    return (result, weights) if batched else (result.squeeze(1), weights.squeeze(0))

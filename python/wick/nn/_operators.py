"""`ops`: operators as functions, for functional.py: the core's, and compositions for those that it does not have yet.

A composition is PyTorch's formula in PyTorch's order of operations, so that values and random numbers agree. What the
core has goes before the composition of that name; delete a composition when the core has its operator.
"""

import math
from types import ModuleType

from .. import _C


def _dropout_in_place(function):
    """The form that overwrites its input, where there is anything to drop."""

    def overwrite(input, p, train):
        dropped = function(input, p, train)  # looks at the input, too
        return input.copy_(dropped) if p != 0 and train and input.numel() else input

    return overwrite


# ---- pointwise ----


def glu(input, dim=-1):
    size = input.size(dim)
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim % input.dim()} is size {size}")
    first, second = input.chunk(2, dim)
    return first * second.sigmoid()


# ---- dropout ----

feature_dropout_, alpha_dropout_, feature_alpha_dropout_ = map(
    _dropout_in_place, (_C.feature_dropout, _C.alpha_dropout, _C.feature_alpha_dropout)
)


# ---- shapes ----


def broadcast_tensors(*tensors):
    shape = tensors[0].shape
    for tensor in tensors[1:]:
        shape = _broadcast_shape(shape, tensor.shape)
    return [tensor.expand(shape) for tensor in tensors]


def _broadcast_shape(a, b):
    length = max(len(a), len(b))
    a, b = [1] * (length - len(a)) + list(a), [1] * (length - len(b)) + list(b)
    for i, (m, n) in enumerate(zip(a, b, strict=True)):
        if m != n and 1 not in (m, n):
            raise RuntimeError(
                f"The size of tensor a ({m}) must match the size of tensor b ({n}) at non-singleton dimension {i}"
            )
    return [n if m == 1 else m for m, n in zip(a, b, strict=True)]


def embedding_renorm_(weight, indices, max_norm, norm_type):
    """Rows that are looked up get a norm of max_norm at most. A row that is looked up twice gets the same value twice."""
    looked_up = indices.reshape(-1)
    rows = weight.index_select(0, looked_up)
    norms = rows.norm(norm_type, 1, True).to(_C.float64)
    scales = (_C.full_like(norms, max_norm) / (norms + 1e-7)).to(weight.dtype)
    weight[looked_up] = _C.where(norms > max_norm, rows * scales, rows)
    return weight


# ---- losses: reduction 0 none, 1 mean, 2 sum ----


def _reduced(loss, reduction):
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


def nll_loss_nd(input, target, weight=None, reduction=1, ignore_index=-100):
    if 1 <= target.dim() and 2 <= input.dim() and input.size(0) != target.size(0):
        sizes = f"input batch_size ({input.size(0)}) to match target batch_size ({target.size(0)})"
        raise ValueError(f"Expected {sizes}.")
    if input.dim() <= 2:
        return _C.nll_loss(input, target, weight, reduction, ignore_index)
    if target.dtype == _C.uint8:
        raise RuntimeError("expected scalar type Long but found Byte")
    classes = input.size(1)
    flat = input.movedim(1, -1).reshape(-1, classes)
    loss = _C.nll_loss(flat, target.reshape(-1), weight, reduction, ignore_index)
    return loss.reshape(target.shape) if reduction == 0 else loss


def _check_between_0_and_1(tensor, name):
    """Compiled code does not look at values, as PyTorch's does not."""
    if tensor.device.type == "meta" or _C._is_tracing():
        return
    if not ((tensor >= 0) & (tensor <= 1)).all():
        raise RuntimeError(f"all elements of {name} should be between 0 and 1")


def binary_cross_entropy(input, target, weight=None, reduction=1):
    if weight is not None and weight.requires_grad and _C.is_grad_enabled():
        raise RuntimeError(
            "The function 'binary_cross_entropy' is not differentiable with respect to argument 'weight'. This input "
            "cannot have requires_grad True."
        )
    _check_between_0_and_1(input, "input")
    _check_between_0_and_1(target, "target")
    logs = (target - 1) * _C.clamp(_C.log1p(-input), min=-100) - target * _C.clamp(input.log(), min=-100)
    return _reduced(logs if weight is None else logs * weight, reduction)


def _normalized(x, dim, eps):
    """x over its norm, which counts as eps where it is below; the derivative is the norm's all the same."""
    norm = _C.linalg_vector_norm(x, 2, dim, True)
    return x / _C.where(norm < eps, norm - norm.detach() + eps, norm)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    dtype = _C.result_type(x1, x2)
    if not (dtype.is_floating_point or dtype.is_complex):
        name = str(dtype).rpartition(".")[2]
        legacy = {"int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool"}
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {legacy[name]}")
    x1, x2 = broadcast_tensors(*(x if x.is_floating_point() or x.is_complex() else x.to(dtype) for x in (x1, x2)))
    return (_normalized(x1, dim, eps) * _normalized(x2, dim, eps)).sum(dim)


def one_hot(tensor, num_classes=-1):
    if tensor.dtype != _C.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if tensor.numel() and tensor.min().item() < 0:
        raise RuntimeError("Class values must be non-negative.")
    if tensor.numel() and 0 < num_classes <= tensor.max().item():
        raise RuntimeError("Class values must be smaller than num_classes.")
    classes = int(tensor.max().item()) + 1 if num_classes < 0 else num_classes
    return (tensor.unsqueeze(-1) == _C.arange(classes)).to(_C.int64)


def scaled_dot_product_attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    """softmax(q k^T scale + mask) v for q (..., L, E), k (..., S, E), v (..., S, Ev): (..., L, Ev)."""
    if enable_gqa:
        times = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    root = math.sqrt(1 / math.sqrt(query.size(-1)) if scale is None else scale)
    scores = (query * root) @ (key * root).transpose(-2, -1)
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
            )
        rows, columns = _C.arange(query.size(-2)).unsqueeze(-1), _C.arange(key.size(-2))
        attn_mask = columns <= rows
    if attn_mask is not None and attn_mask.dtype == _C.bool:
        scores = scores.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return _C.dropout(scores.softmax(-1), dropout_p, dropout_p > 0) @ value


def bilinear(input1, input2, weight, bias=None):
    """x1^T W_k x2: (..., A), (..., B), W (K, A, B) -> (..., K)."""
    k, a, b = weight.shape
    left = input1.reshape(-1, a) @ weight.permute(1, 0, 2).reshape(a, k * b)  # (N, K B)
    result = (left.reshape(-1, k, b) * input2.reshape(-1, 1, b)).sum(-1)
    result = result.reshape(*input1.shape[:-1], k)
    return result if bias is None else result + bias


COMPOSITIONS = {k: v for k, v in globals().items() if callable(v) and not k.startswith("_") and v is not ModuleType}
ops = ModuleType(f"{__name__}.ops")  # a module, because Python looks up their attributes fastest
ops.__dict__.update(COMPOSITIONS | vars(_C))

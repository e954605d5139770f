"""The functions behind the layers: PyTorch's names, arguments and checks over wick's operators.

Operators whose arguments need nothing done are taken as they are (see _ALIASES).
"""

import math

from .. import _C
from .._names import files_of as _files_of
from .._names import late as _late
from .._tensor import broadcast_shapes

# Our name -> the operator's. What the core does not have yet is missing here too, and says so when it is asked for.
_ALIASES = {
    name: name
    for name in (
        "adaptive_avg_pool1d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "bilinear", "celu_", "channel_shuffle",
        "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
        "cosine_similarity", "elu_", "gelu", "hardshrink", "hardtanh_", "leaky_relu_", "linear", "one_hot",
        "pixel_shuffle", "pixel_unshuffle", "prelu", "relu_", "rrelu_",
        "scaled_dot_product_attention", "selu_", "softplus", "softshrink", "threshold_",
    )
} | {"logsigmoid": "log_sigmoid"}  # fmt: skip
globals().update({name: getattr(_C, operator) for name, operator in _ALIASES.items() if hasattr(_C, operator)})

# The file of functions/, then what it has: loaded when one of the names is first asked for.
_LATE = {
    "attention": "multi_head_attention_forward",
    "embedding_bag": "embedding_bag",
    "losses": "cosine_embedding_loss ctc_loss gaussian_nll_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss "
    "multilabel_margin_loss multilabel_soft_margin_loss pairwise_distance pdist poisson_nll_loss soft_margin_loss "
    "triplet_margin_loss triplet_margin_with_distance_loss",
    "norm": "instance_norm local_response_norm",
    "unpool": "fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d "
    "fractional_max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d",
    "scaled": "ScalingType SwizzleType scaled_mm",
    "resample": "affine_grid grid_sample interpolate upsample upsample_bilinear upsample_nearest",
}
_FILE_OF = _files_of(_LATE)

__getattr__ = _late(__name__, names=_FILE_OF, beside=f"{__package__}.functions")


def _warn(message, category=UserWarning, stacklevel=3):
    import warnings

    warnings.warn(message, category, stacklevel=stacklevel + 1)


def _handle(function, relevant, *args, **kwargs):
    """The call as the overriding class or mode has it. Asked for only while there is one (_C._overrides)."""
    return _C._dispatch_torch_function(function, relevant, args, kwargs)


# ---- products of groups ----


def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Products of parts, whose ends `offs` says, each with a matrix of its own: rows (N, K) with (G, K, M) -> (N, M).

    y = F.grouped_mm(wick.randn(5, 8), wick.randn(2, 8, 4), offs=wick.tensor([2, 5], dtype=wick.int32))
    """
    if _C._overrides and _C._has_torch_function_variadic(mat_a, mat_b):
        return _handle(grouped_mm, (mat_a, mat_b), mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)
    return _C._grouped_mm(mat_a, mat_b, offs, bias, out_dtype)


# ---- patches ----


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """The patches of images as columns: (N, C, H, W) -> (N, C * elements of the kernel, places)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(
            unfold, (input,), input, kernel_size, dilation=dilation, padding=padding, stride=stride
        )  # fmt: skip
    return _C.im2col(input, *map(_pair, (kernel_size, dilation, padding, stride)))


def fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """Columns of patches added up to images: (N, C * elements of the kernel, places) -> (N, C, *output_size)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(
            fold, (input,), input, output_size, kernel_size, dilation=dilation, padding=padding, stride=stride
        )  # fmt: skip
    return _C.col2im(input, *map(_pair, (output_size, kernel_size, dilation, padding, stride)))


def _pair(x):
    return (x, x) if isinstance(x, int) else x


# ---- activations: any shape; inplace overwrites the input ----


def relu(input, inplace=False):
    """max(0, x)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(relu, (input,), input, inplace=inplace)
    return _C.relu_(input) if inplace else _C.relu(input)


def relu6(input, inplace=False):
    """min(max(0, x), 6)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(relu6, (input,), input, inplace=inplace)
    return hardtanh(input, 0.0, 6.0, inplace)


def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """x limited to [min_val, max_val]."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(hardtanh, (input,), input, min_val=min_val, max_val=max_val, inplace=inplace)
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return (_C.hardtanh_ if inplace else _C.hardtanh)(input, min_val, max_val)


def _threshold(input, threshold, value, inplace=False):
    """x where it is above the threshold, else value."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(_threshold, (input,), input, threshold, value, inplace=inplace)
    return (_C.threshold_ if inplace else _C.threshold)(input, threshold, value)


threshold = _threshold


def elu(input, alpha=1.0, inplace=False):
    """x for positive x, alpha (exp(x) - 1) for the others."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(elu, (input,), input, alpha=alpha, inplace=inplace)
    return (_C.elu_ if inplace else _C.elu)(input, alpha)


def celu(input, alpha=1.0, inplace=False):
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(celu, (input,), input, alpha=alpha, inplace=inplace)
    return (_C.celu_ if inplace else _C.celu)(input, alpha)


def selu(input, inplace=False):
    """ELU scaled to keep mean 0 and variance 1."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(selu, (input,), input, inplace=inplace)
    return _C.selu_(input) if inplace else _C.selu(input)


def leaky_relu(input, negative_slope=0.01, inplace=False):
    """x for positive x, negative_slope x for the others."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(leaky_relu, (input,), input, negative_slope=negative_slope, inplace=inplace)
    return (_C.leaky_relu_ if inplace else _C.leaky_relu)(input, negative_slope)


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """leaky_relu with a slope drawn from [lower, upper] in training, their mean otherwise."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(rrelu, (input,), input, lower=lower, upper=upper, training=training, inplace=inplace)
    return (_C.rrelu_ if inplace else _C.rrelu)(input, lower, upper, training)


def silu(input, inplace=False):
    """x sigmoid(x)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(silu, (input,), input, inplace=inplace)
    return _C.silu_(input) if inplace else _C.silu(input)


def mish(input, inplace=False):
    """x tanh(softplus(x))."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(mish, (input,), input, inplace=inplace)
    return _C.mish_(input) if inplace else _C.mish(input)


def hardsigmoid(input, inplace=False):
    """relu6(x + 3) / 6."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(hardsigmoid, (input,), input, inplace=inplace)
    return _C.hardsigmoid_(input) if inplace else _C.hardsigmoid(input)


def hardswish(input, inplace=False):
    """x relu6(x + 3) / 6."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(hardswish, (input,), input, inplace=inplace)
    return _C.hardswish_(input) if inplace else _C.hardswish(input)


def sigmoid(input):
    """1 / (1 + exp(-x))."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(sigmoid, (input,), input)
    return input.sigmoid()


def tanh(input):
    """tanh(x)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(tanh, (input,), input)
    return input.tanh()


def tanhshrink(input):
    """x - tanh(x)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(tanhshrink, (input,), input)
    return input - input.tanh()


def softsign(input):
    """x / (1 + |x|)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(softsign, (input,), input)
    return input / (input.abs() + 1)


def glu(input, dim=-1):
    """a sigmoid(b) of the two halves along dim."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(glu, (input,), input, dim=dim)
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    return _C.glu(input, dim)


def _softmax_dim(name, dim, ndim, stacklevel):
    if dim is not None:
        return dim
    _warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input, dim=None, _stacklevel=3, dtype=None):
    """exp(x) over its sum along dim; dtype: computed and given in it."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    dim = _softmax_dim("softmax", dim, input.dim(), _stacklevel)
    return input.softmax(dim) if dtype is None else input.softmax(dim, dtype=dtype)


def softmin(input, dim=None, _stacklevel=3, dtype=None):
    """softmax of -x."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(softmin, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    dim = _softmax_dim("softmin", dim, input.dim(), _stacklevel)
    return (-input).softmax(dim) if dtype is None else (-input).softmax(dim, dtype=dtype)


def log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """log(softmax(x)), without overflow."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(log_softmax, (input,), input, dim=dim, _stacklevel=_stacklevel, dtype=dtype)
    dim = _softmax_dim("log_softmax", dim, input.dim(), _stacklevel)
    return input.log_softmax(dim) if dtype is None else input.log_softmax(dim, dtype=dtype)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample of the Gumbel-softmax distribution; hard: one-hot, with the soft sample's gradient."""
    if eps != 1e-10:
        _warn("`eps` parameter is deprecated and has no effect.")
    noise = -_C.empty_like(logits, memory_format=_C.legacy_contiguous_format).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one = _C.zeros_like(logits, memory_format=_C.legacy_contiguous_format).scatter_(dim, index, 1.0)
    return one - soft.detach() + soft


# ---- dropout ----


def _check_probability(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input, p=0.5, training=True, inplace=False):
    """Zeroes each element with probability p and scales the others by 1 / (1 - p); the identity when not training."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(dropout, (input,), input, p=p, training=training, inplace=inplace)
    _check_probability(p)
    return (_C.dropout_ if inplace else _C.dropout)(input, p, training)


def alpha_dropout(input, p=0.5, training=False, inplace=False):
    """Dropout that keeps mean and variance."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(alpha_dropout, (input,), input, p=p, training=training, inplace=inplace)
    _check_probability(p)
    return (_C.alpha_dropout_ if inplace else _C.alpha_dropout)(input, p, training)


def feature_alpha_dropout(input, p=0.5, training=False, inplace=False):
    """alpha_dropout of whole channels."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(feature_alpha_dropout, (input,), input, p=p, training=training, inplace=inplace)
    _check_probability(p)
    return (_C.feature_alpha_dropout_ if inplace else _C.feature_alpha_dropout)(input, p, training)


_SOFT_ERROR = (
    "{0}: Received a {1}-D input to {0}, which is deprecated and will result in an error in a future release. To "
    "retain the behavior and silence this warning, please use dropout instead. Note that {0} exists to provide "
    "channel-wise dropout on inputs with spatial dimensions, a channel dimension, and an optional batch dimension."
)


def _channel_dropout(input, p, training, inplace, batched):
    input = input if batched else (input.unsqueeze_(0) if inplace else input.unsqueeze(0))
    result = (_C.feature_dropout_ if inplace else _C.feature_dropout)(input, p, training)
    return result if batched else (result.squeeze_(0) if inplace else result.squeeze(0))


def dropout1d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels of (N, C, L) or (C, L)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(dropout1d, (input,), input, p=p, training=training, inplace=inplace)
    _check_probability(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. "
            "Note that dropout1d exists to provide channel-wise dropout on inputs with 1 spatial dimension, "
            "a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs)."
        )
    return _channel_dropout(input, p, training, inplace, input.dim() == 3)


def dropout2d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels of (N, C, H, W)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(dropout2d, (input,), input, p=p, training=training, inplace=inplace)
    _check_probability(p)
    if input.dim() not in (3, 4):
        _warn(_SOFT_ERROR.format("dropout2d", input.dim()))
    if input.dim() == 3:
        _warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is desired "
            "- input is interpreted as shape (N, C, L), where C is the channel dim. This behavior will change in a "
            "future release to interpret the input as one without a batch dimension, i.e. shape (C, H, W). To maintain "
            "the 1D channel-wise dropout behavior, please switch to using dropout1d instead."
        )
    return _channel_dropout(input, p, training, inplace, True)


def dropout3d(input, p=0.5, training=True, inplace=False):
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(dropout3d, (input,), input, p=p, training=training, inplace=inplace)
    _check_probability(p)
    if input.dim() not in (4, 5):
        _warn(_SOFT_ERROR.format("dropout3d", input.dim()))
    return _channel_dropout(input, p, training, inplace, input.dim() == 5)


# ---- embedding, normalisation, padding ----


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Rows of weight (rows, dim) at the indices in input (*): (*, dim). max_norm scales the rows used down, in "
    "place."""
    if _C._overrides and _C._has_torch_function_variadic(input, weight):
        return _handle(
            embedding,
            (input, weight),
            input,
            weight,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )
    if weight.dim() != 2:
        return _C.embedding(weight, input)  # its error
    rows = weight.size(0)
    if padding_idx is None:
        padding_idx = -1
    elif not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    elif padding_idx < 0:
        padding_idx += rows
    if max_norm is not None:
        input = input.contiguous()
        with _C.no_grad():
            _C.embedding_renorm_(weight.detach(), input, max_norm, norm_type)
    if sparse and weight.requires_grad and _C.is_grad_enabled():
        from ..sparse._embedding import embedding as with_sparse_gradient

        return with_sparse_gradient(weight, input, padding_idx, scale_grad_by_freq)
    return _C.embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last len(normalized_shape) dimensions."""
    if _C._overrides and _C._has_torch_function_variadic(input, weight, bias):
        return _handle(layer_norm, (input, weight, bias), input, normalized_shape, weight=weight, bias=bias, eps=eps)
    return _C.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(input, normalized_shape, weight=None, eps=None):
    """x / sqrt(mean(x^2) + eps) * weight over the last len(normalized_shape) dimensions."""
    if _C._overrides and _C._has_torch_function_variadic(input, weight):
        return _handle(rms_norm, (input, weight), input, normalized_shape, weight=weight, eps=eps)
    return _C.rms_norm(input, normalized_shape, weight, eps)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """Normalises the channels (dimension 1 of (N, C, ...)) in groups."""
    if _C._overrides and _C._has_torch_function_variadic(input, weight, bias):
        return _handle(group_norm, (input, weight, bias), input, num_groups, weight=weight, bias=bias, eps=eps)
    if input.dim() < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.dim()}")
    values = math.prod(input.shape[2:]) * input.size(0) * input.size(1) // num_groups
    if values == 1:
        sizes = [input.size(0) * input.size(1) // num_groups, num_groups, *input.shape[2:]]
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {sizes}")
    return _C.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Normalises each channel (dimension 1) over all else, with the batch's statistics in training."""
    if _C._overrides and _C._has_torch_function_variadic(input, running_mean, running_var, weight, bias):
        return _handle(
            batch_norm,
            (input, running_mean, running_var, weight, bias),
            input,
            running_mean,
            running_var,
            weight=weight,
            bias=bias,
            training=training,
            momentum=momentum,
            eps=eps,
        )
    if training and math.prod(input.shape[2:]) * input.size(0) == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    return _C.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, False)


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """x over its p-norm along dim, at least eps."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(normalize, (input,), input, p=p, dim=dim, eps=eps, out=out)
    norm = input.norm(p, dim, keepdim=True)
    if out is None:
        return input / norm.clamp_min(eps).expand_as(input)
    return _C.div(input, norm.clamp_min_(eps).expand_as(input), out=out)


def pad(input, pad, mode="constant", value=None):
    """Pads the last len(pad) / 2 dimensions; `pad` is (before, after) of the last dimension, then of the one before it.

    y = F.pad(wick.randn(2, 4), (1, 2))    # (2, 7), zeros around; mode: "reflect", "replicate", "circular"
    """
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(globals()["pad"], (input,), input, pad, mode=mode, value=value)
    return _C.pad(input, pad, mode, value)


# ---- pooling: windows over the last dims of (N, C, ...) or (C, ...) ----


def _max_pool(dims):
    plain, with_indices = getattr(_C, f"max_pool{dims}d"), getattr(_C, f"max_pool{dims}d_with_indices")

    def pool(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        if _C._overrides and _C._has_torch_function_variadic(input):
            return _handle(pool, (input,), input, kernel_size, stride=stride, padding=padding, dilation=dilation,
                           ceil_mode=ceil_mode, return_indices=return_indices)  # fmt: skip
        stride = () if stride is None else stride
        return (with_indices if return_indices else plain)(input, kernel_size, stride, padding, dilation, ceil_mode)

    def pool_with_indices(
        input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False
    ):
        if _C._overrides and _C._has_torch_function_variadic(input):
            return _handle(pool_with_indices, (input,), input, kernel_size, stride=stride, padding=padding,
                           dilation=dilation, ceil_mode=ceil_mode, return_indices=return_indices)  # fmt: skip
        return with_indices(input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)

    pool.__doc__ = f"""The largest element of each window over the last {dims} dims; with return_indices also where it is.

    y = F.max_pool{dims}d(wick.randn(1, 3{", 8" * dims}), 2)    # (1, 3{", 4" * dims})
    """
    pool_with_indices.__doc__ = f"""(values, places) of the largest elements of windows over the last {dims} dims."""
    for function, name in ((pool, f"max_pool{dims}d"), (pool_with_indices, f"max_pool{dims}d_with_indices")):
        function.__name__ = function.__qualname__ = name
    return pool, pool_with_indices


max_pool1d, max_pool1d_with_indices = _max_pool(1)
max_pool2d, max_pool2d_with_indices = _max_pool(2)
max_pool3d, max_pool3d_with_indices = _max_pool(3)


def _list_with_default(out_size, defaults):
    """Sizes, those that are None taken from the input's."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [
        given if given is not None else own for given, own in zip(out_size, defaults[-len(out_size) :], strict=False)
    ]


def adaptive_avg_pool2d(input, output_size):
    """Averages over as many windows as output_size says, along the last two dims; None keeps a dim.

    y = F.adaptive_avg_pool2d(wick.randn(1, 3, 7, 5), 1)    # (1, 3, 1, 1)
    """
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(adaptive_avg_pool2d, (input,), input, output_size)
    return _C.adaptive_avg_pool2d(input, _list_with_default(output_size, input.size()))


def adaptive_avg_pool3d(input, output_size):
    """Averages over as many windows as output_size says, along the last three dims; None keeps a dim."""
    if _C._overrides and _C._has_torch_function_variadic(input):
        return _handle(adaptive_avg_pool3d, (input,), input, output_size)
    return _C.adaptive_avg_pool3d(input, _list_with_default(output_size, input.size()))


def _adaptive_max_pool(dims):
    operator = getattr(_C, f"adaptive_max_pool{dims}d")

    def pool_with_indices(input, output_size, return_indices=False):
        if _C._overrides and _C._has_torch_function_variadic(input):
            return _handle(pool_with_indices, (input,), input, output_size, return_indices=return_indices)
        return operator(input, output_size if dims == 1 else _list_with_default(output_size, input.size()))

    def pool(input, output_size, return_indices=False):
        if _C._overrides and _C._has_torch_function_variadic(input):
            return _handle(pool, (input,), input, output_size, return_indices=return_indices)
        values, indices = pool_with_indices(input, output_size)
        return (values, indices) if return_indices else values

    pool.__doc__ = f"""The largest elements of as many windows as output_size says, along the last {dims} dims."""
    pool_with_indices.__doc__ = f"""(values, places) of adaptive_max_pool{dims}d."""
    for function, name in ((pool, ""), (pool_with_indices, "_with_indices")):
        function.__name__ = function.__qualname__ = f"adaptive_max_pool{dims}d{name}"
    return pool, pool_with_indices


adaptive_max_pool1d, adaptive_max_pool1d_with_indices = _adaptive_max_pool(1)
adaptive_max_pool2d, adaptive_max_pool2d_with_indices = _adaptive_max_pool(2)
adaptive_max_pool3d, adaptive_max_pool3d_with_indices = _adaptive_max_pool(3)


def _lp_pool(dims):
    average = getattr(_C, f"avg_pool{dims}d")

    def pool(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        if _C._overrides and _C._has_torch_function_variadic(input):
            return _handle(
                pool, (input,), input, norm_type, kernel_size, stride=stride, ceil_mode=ceil_mode
            )  # fmt: skip
        elements = math.prod(kernel_size) if isinstance(kernel_size, (tuple, list)) else kernel_size**dims
        means = average(input.pow(norm_type), kernel_size, () if stride is None else stride, 0, ceil_mode)
        return (means.sign() * relu(means.abs())).mul(elements).pow(1.0 / norm_type)

    pool.__name__ = pool.__qualname__ = f"lp_pool{dims}d"
    pool.__doc__ = f"""(sum of x^norm_type)^(1 / norm_type) over windows along the last {dims} dims."""
    return pool


lp_pool1d, lp_pool2d, lp_pool3d = map(_lp_pool, (1, 2, 3))


# ---- losses: a scalar for reduction "mean" and "sum", the input's shape for "none" ----

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _legacy_reduction(size_average, reduce, warn=True):
    """The reduction's name from its two older arguments."""
    name = "none" if reduce is False else "sum" if size_average is False else "mean"
    if warn:
        _warn(f"size_average and reduce args will be deprecated, please use reduction='{name}' instead.", stacklevel=4)
    return name


def _reduction(size_average, reduce, reduction):
    """The number that operators take for a reduction."""
    if size_average is not None or reduce is not None:
        reduction = _legacy_reduction(size_average, reduce)
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _REDUCTIONS[reduction]


def _broadcast_pair(input, target):
    if input.size() != target.size():
        _warn(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}). "
            "This will likely lead to incorrect results due to broadcasting. "
            "Please ensure they have the same size.",
            stacklevel=4,
        )
        return _C.broadcast_tensors((input, target))
    return input, target


def _weighted(loss, weight, reduction):
    """Reduces an elementwise loss with weights; "mean" divides by the weights' sum."""
    if weight.size() != loss.size():
        raise ValueError("Weights and input must have the same size.")
    loss = loss * weight
    if reduction == 0:
        return loss
    return loss.sum() / weight.sum() if reduction == 1 else loss.sum()


def _elementwise_loss(operator, input, target, reduction, weight, *args):
    input, target = _broadcast_pair(input, target)
    if weight is None:
        return operator(input, target, reduction, *args)
    return _weighted(operator(input, target, 0, *args), weight, reduction)


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """(input - target)^2."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight):
        return _handle(
            mse_loss,
            (input, target, weight),
            input,
            target,
            size_average=size_average,
            reduce=reduce,
            reduction=reduction,
            weight=weight,
        )
    reduction = _reduction(size_average, reduce, reduction)
    return _elementwise_loss(_C.mse_loss, input, target, reduction, weight)


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    """|input - target|."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight):
        return _handle(
            l1_loss,
            (input, target, weight),
            input,
            target,
            size_average=size_average,
            reduce=reduce,
            reduction=reduction,
            weight=weight,
        )
    reduction = _reduction(size_average, reduce, reduction)
    return _elementwise_loss(_C.l1_loss, input, target, reduction, weight)


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    """With d = |input - target|: d^2 / (2 beta) below beta, d - beta / 2 above."""
    if _C._overrides and _C._has_torch_function_variadic(input, target):
        return _handle(
            smooth_l1_loss,
            (input, target),
            input,
            target,
            size_average=size_average,
            reduce=reduce,
            reduction=reduction,
            beta=beta,
        )
    reduction = _reduction(size_average, reduce, reduction)
    if beta == 0.0:
        return _elementwise_loss(_C.l1_loss, input, target, reduction, None)
    return _elementwise_loss(_C.smooth_l1_loss, input, target, reduction, None, beta)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    """With d = |input - target|: d^2 / 2 below delta, delta (d - delta / 2) above."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight):
        return _handle(
            huber_loss, (input, target, weight), input, target, reduction=reduction, delta=delta, weight=weight
        )
    return _elementwise_loss(_C.huber_loss, input, target, _reduction(None, None, reduction), weight, delta)


def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """-input[target]: input (N, C, ...) of log-probabilities, target (N, ...)."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight):
        return _handle(
            nll_loss,
            (input, target, weight),
            input,
            target,
            weight=weight,
            size_average=size_average,
            ignore_index=ignore_index,
            reduce=reduce,
            reduction=reduction,
        )
    return _C.nll_loss_nd(input, target, weight, _reduction(size_average, reduce, reduction), ignore_index)


def linear_cross_entropy(
    input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean", ignore_index=None,
    label_smoothing=0.0, options=None,
):  # fmt: skip
    """cross_entropy of input (N, D) times linear_weight (C, ..., D): target (N, ...) of classes or (N, C, ...)."""
    lead = tuple(linear_weight.shape[:-1])
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = _C.linear(input, linear_weight.reshape(-1, linear_weight.shape[-1]), bias)
    if len(lead) > 1:
        logits = logits.reshape(*logits.shape[:-1], *lead)
    return cross_entropy(
        logits, target, weight, ignore_index=-100 if ignore_index is None else ignore_index, reduction=reduction,
        label_smoothing=label_smoothing,
    )  # fmt: skip


def cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """-log softmax(input)[target]: input (N, C, ...) or (C,), target (N, ...) of classes or input's shape of "
    "weights."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight):
        return _handle(
            cross_entropy,
            (input, target, weight),
            input,
            target,
            weight=weight,
            size_average=size_average,
            ignore_index=ignore_index,
            reduce=reduce,
            reduction=reduction,
            label_smoothing=label_smoothing,
        )
    reduction = _reduction(size_average, reduce, reduction)
    return _C.cross_entropy_loss(input, target, weight, reduction, ignore_index, label_smoothing)


def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """-(target log(input) + (1 - target) log(1 - input))."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight):
        return _handle(
            binary_cross_entropy,
            (input, target, weight),
            input,
            target,
            weight=weight,
            size_average=size_average,
            reduce=reduce,
            reduction=reduction,
        )
    reduction = _reduction(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is "
            "deprecated. Please ensure they have the same size."
        )
    if weight is not None:
        weight = weight.expand(broadcast_shapes(target.size(), weight.size()))
    return _C.binary_cross_entropy(input, target, weight, reduction)


def binary_cross_entropy_with_logits(
    input, target, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None
):
    """binary_cross_entropy of sigmoid(input), without overflow."""
    if _C._overrides and _C._has_torch_function_variadic(input, target, weight, pos_weight):
        return _handle(
            binary_cross_entropy_with_logits,
            (input, target, weight, pos_weight),
            input,
            target,
            weight=weight,
            size_average=size_average,
            reduce=reduce,
            reduction=reduction,
            pos_weight=pos_weight,
        )
    reduction = _reduction(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    return _C.binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction)


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """target (log(target) - input); "batchmean" is the sum over the batch's size, the mathematical definition."""
    if _C._overrides and _C._has_torch_function_variadic(input, target):
        return _handle(
            kl_div,
            (input, target),
            input,
            target,
            size_average=size_average,
            reduce=reduce,
            reduction=reduction,
            log_target=log_target,
        )
    if size_average is None and reduce is None and reduction == "batchmean":
        loss = _C.kl_div(input, target, 2, log_target=log_target)
        return loss / input.size(0) if input.dim() != 0 else loss
    if reduction == "mean":
        _warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size."
            "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
            "'mean' will be changed to behave the same as 'batchmean' in the next major release."
        )
    return _C.kl_div(input, target, _reduction(size_average, reduce, reduction), log_target=log_target)

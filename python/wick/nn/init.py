"""Initialisation of parameters, in place; each returns its tensor. Same seed, same numbers as PyTorch.

fan_in and fan_out of a weight (out, in, *receptive field): in and out times the size of the receptive field.
"""

import math

from .. import _C

__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
           "sigmoid")  # fmt: skip
_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4} | dict.fromkeys(_LINEAR, 1)


def calculate_gain(nonlinearity, param=None):
    """By how much a weight's deviation grows to make up for a nonlinearity; param is leaky_relu's slope (0.01)."""
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    if param is None:
        slope = 0.01
    elif not isinstance(param, bool) and isinstance(param, (int, float)):
        slope = param
    else:
        raise ValueError(f"negative_slope {param} not a valid number")
    return math.sqrt(2.0 / (1 + slope**2))


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """U(a, b)."""
    with _C.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """N(mean, std^2)."""
    with _C.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """N(mean, std^2) without the values outside [a, b]: those are drawn again until none is left."""
    if mean < a - 2 * std or mean > b + 2 * std:
        import warnings

        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )
    if tensor.is_meta:
        return tensor

    def share_below(x):
        return (1.0 + math.erf((x - mean) / std / math.sqrt(2.0))) / 2.0

    draw = _redraw_normal if share_below(b) - share_below(a) > 0.3 else _redraw_uniform
    with _C.no_grad():
        result = draw(tensor, mean, std, a, b, generator)
        return tensor if result is tensor else tensor.copy_(result)


def _redraw_normal(tensor, mean, std, a, b, generator):
    """Normal values; those outside are drawn again. Good while most are inside."""
    low, high = (tensor.new_tensor(bound, device="cpu").item() for bound in (a, b))  # as the dtype has them
    values = tensor.normal_(mean, std, generator=generator)
    while (outside := (values < low) | (values > high)).any():
        values = _C.where(outside, _C.empty_like(values).normal_(mean, std, generator=generator), values)
    return values


def _redraw_uniform(tensor, mean, std, a, b, generator):
    """Uniform values in [a, b], each kept with a chance of its density over the largest one; the others are drawn "
    "again."""
    log_peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2

    def refused(candidates):
        log_chance = candidates.clone().sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(log_peak)
        return _C.empty_like(tensor).uniform_(generator=generator).log_().gt(log_chance)

    values = tensor.uniform_(a, b, generator=generator)
    pending = refused(values)
    while pending.any():
        candidates = _C.empty_like(tensor).uniform_(a, b, generator=generator)
        values = _C.where(pending, candidates, values)
        pending = pending & refused(candidates)
    return values


def constant_(tensor, val):
    """One value everywhere."""
    with _C.no_grad():
        return tensor.fill_(val)


def ones_(tensor):
    """Ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor):
    """Zeros."""
    with _C.no_grad():
        return tensor.zero_()


def eye_(tensor):
    """The identity matrix, for a tensor (n, m)."""
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with _C.no_grad():
        tensor.zero_().diagonal().fill_(1)
    return tensor


def dirac_(tensor, groups=1):
    """The identity as a convolution's weight (out, in, *kernel): ones in the middle."""
    sizes = tensor.size()
    if len(sizes) not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if sizes[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = sizes[0] // groups
    middle = tuple(size // 2 for size in sizes[2:])
    with _C.no_grad():
        tensor.zero_()
        for group in range(groups):
            for d in range(min(per_group, sizes[1])):
                tensor[(group * per_group + d, d, *middle)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.dim() < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.size(1) * field, tensor.size(0) * field


def _calculate_correct_fan(tensor, mode):
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """U(-a, a), a = gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """N(0, std^2), std = gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010)."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _is_empty(tensor):
    if 0 not in tensor.shape:
        return False
    import warnings

    warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return True


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """U(-b, b), b = gain sqrt(3 / fan) (He et al., 2015); a is leaky_relu's slope."""
    if _is_empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """N(0, std^2), std = gain / sqrt(fan) (He et al., 2015); a is leaky_relu's slope."""
    if _is_empty(tensor):
        return tensor
    std = calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))
    return normal_(tensor, 0.0, std, generator)


def _orthonormal(matrix):
    """Q of matrix = Q R where R's diagonal is positive, which makes it unique: (m, n), m >= n, of full rank.

    Gram and Schmidt's way by halves, so that most of it is products; each half is freed of the other twice, which is
    enough for full precision.
    """
    columns = matrix.size(1)
    if columns == 1:
        return matrix / matrix.norm()
    first, rest = _orthonormal(matrix[:, : columns // 2]), matrix[:, columns // 2 :]
    for _ in range(2):
        rest = rest - first @ (first.t() @ rest)
    return _C.cat([first, _orthonormal(rest)], 1)


def orthogonal_(tensor, gain=1, generator=None):
    """A (semi-)orthogonal matrix times gain; dimensions after the first count as one (Saxe et al., 2013)."""
    if tensor.ndimension() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    flat = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
    if rows < columns:
        flat.t_()
    with _C.no_grad():
        q = _orthonormal(flat.double()).to(flat.dtype)
    if rows < columns:
        q.t_()
    with _C.no_grad():
        tensor.view_as(q).copy_(q)
        tensor.mul_(gain)
    return tensor


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """N(0, std^2) with a share of zeros in each column, for a tensor (n, m) (Martens, 2010)."""
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = int(math.ceil(sparsity * rows))
    with _C.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[_C.randperm(rows)[:zeros], column] = 0
    return tensor


def _older_name(function):
    """The name without the underscore, which warns."""
    new, old = function.__name__, function.__name__[:-1]

    def deprecated(*args, **kwargs):
        import warnings

        text = f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`."
        warnings.warn(text, FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    deprecated.__name__ = deprecated.__qualname__ = old
    deprecated.__doc__ = f"The older name of {new}."
    return deprecated


uniform, normal, constant, eye, dirac, xavier_uniform, xavier_normal, kaiming_uniform, kaiming_normal, orthogonal, sparse = map(
    _older_name,
    (
        uniform_, normal_, constant_, eye_, dirac_, xavier_uniform_, xavier_normal_, kaiming_uniform_, kaiming_normal_,
        orthogonal_, sparse_,
    ),
)  # fmt: skip


def __getattr__(name):
    from .._names import missing

    raise missing(__name__, name)

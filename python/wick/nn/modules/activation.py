"""Activation functions as modules. Each takes and gives a tensor of any shape."""

from .. import functional as F
from .module import Module

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax",
    "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink",
    "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _Inplace(Module):
    """What activations share whose only argument says whether they overwrite their input."""

    __constants__ = ["inplace"]

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


def _inplace_suffix(module):
    return ", inplace=True" if module.inplace else ""


class ReLU(_Inplace):
    """max(0, x).

    y = nn.ReLU()(wick.tensor([-1.0, 2.0]))    # [0., 2.]
    """

    def forward(self, input):
        return F.relu(input, inplace=self.inplace)


class SiLU(_Inplace):
    """x sigmoid(x).

    y = nn.SiLU()(wick.randn(8))
    """

    def forward(self, input):
        return F.silu(input, inplace=self.inplace)


class Mish(_Inplace):
    """x tanh(softplus(x)).

    y = nn.Mish()(wick.randn(8))
    """

    def forward(self, input):
        return F.mish(input, inplace=self.inplace)


class Hardswish(_Inplace):
    """x relu6(x + 3) / 6.

    y = nn.Hardswish()(wick.randn(8))
    """

    def forward(self, input):
        return F.hardswish(input, self.inplace)

    def extra_repr(self):
        return ""


class Hardsigmoid(_Inplace):
    """relu6(x + 3) / 6.

    y = nn.Hardsigmoid()(wick.randn(8))
    """

    def forward(self, input):
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self):
        return ""


class SELU(_Inplace):
    """scale * (max(0, x) + min(0, alpha (exp(x) - 1))) with the constants that keep mean 0 and variance 1.

    y = nn.SELU()(wick.randn(8))
    """

    def forward(self, input):
        return F.selu(input, self.inplace)


class Hardtanh(Module):
    """x limited to [min_val, max_val].

    y = nn.Hardtanh(-2, 2)(wick.randn(8))
    """

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None):
        super().__init__()
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if not self.max_val > self.min_val:
            raise AssertionError(f"max_val ({self.max_val}) must be larger than min_val ({self.min_val})")

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}{_inplace_suffix(self)}"


class ReLU6(Hardtanh):
    """min(max(0, x), 6).

    y = nn.ReLU6()(wick.randn(8))
    """

    def __init__(self, inplace=False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class _Alpha(Module):
    """What ELU and CELU share."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self):
        return f"alpha={self.alpha}{_inplace_suffix(self)}"


class ELU(_Alpha):
    """x for positive x, alpha (exp(x) - 1) for the others.

    y = nn.ELU()(wick.randn(8))
    """

    def forward(self, input):
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Alpha):
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1)).

    y = nn.CELU()(wick.randn(8))
    """

    def forward(self, input):
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(Module):
    """x for positive x, negative_slope x for the others.

    y = nn.LeakyReLU(0.1)(wick.randn(8))
    """

    __constants__ = ["inplace", "negative_slope"]

    def __init__(self, negative_slope=1e-2, inplace=False):
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self):
        return f"negative_slope={self.negative_slope}{_inplace_suffix(self)}"


class PReLU(Module):
    """max(0, x) + weight min(0, x) with a learned weight, one or one per channel (dimension 1).

    y = nn.PReLU()(wick.randn(8))
    """

    __constants__ = ["num_parameters"]

    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        from ... import _C
        from ..parameter import Parameter

        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(_C.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self):
        """All weights to `init`."""
        from .. import init

        init.constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


class Threshold(Module):
    """x where it is above the threshold, else `value`.

    y = nn.Threshold(0.1, 20)(wick.randn(8))
    """

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold, value, inplace=False):
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self):
        return f"threshold={self.threshold}, value={self.value}{_inplace_suffix(self)}"


class GELU(Module):
    """x times the normal distribution function of x; approximate="tanh" for the usual approximation.

    y = nn.GELU()(wick.randn(8))
    """

    __constants__ = ["approximate"]

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """log(1 + exp(beta x)) / beta, linear where beta x is above the threshold.

    y = nn.Softplus()(wick.randn(8))
    """

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    y = nn.Sigmoid()(wick.randn(8))
    """

    def forward(self, input):
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log(1 / (1 + exp(-x))).

    y = nn.LogSigmoid()(wick.randn(8))
    """

    def forward(self, input):
        return F.logsigmoid(input)


class Tanh(Module):
    """tanh(x).

    y = nn.Tanh()(wick.randn(8))
    """

    def forward(self, input):
        return F.tanh(input)


class Tanhshrink(Module):
    """x - tanh(x).

    y = nn.Tanhshrink()(wick.randn(8))
    """

    def forward(self, input):
        return F.tanhshrink(input)


class Softsign(Module):
    """x / (1 + |x|).

    y = nn.Softsign()(wick.randn(8))
    """

    def forward(self, input):
        return F.softsign(input)


class GLU(Module):
    """a sigmoid(b), where a and b are the two halves of the input along `dim`.

    y = nn.GLU()(wick.randn(4, 8))    # (4, 4)
    """

    __constants__ = ["dim"]

    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class _AlongDim(Module):
    """What the softmax family shares."""

    __constants__ = ["dim"]

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def __setstate__(self, state):
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """exp(x) over its sum along `dim`.

    y = nn.Softmax(dim=-1)(wick.randn(2, 3))    # rows sum to 1
    """

    def forward(self, input):
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """softmax of -x.

    y = nn.Softmin(dim=-1)(wick.randn(2, 3))
    """

    def forward(self, input):
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """The logarithm of softmax.

    y = nn.LogSoftmax(dim=-1)(wick.randn(2, 3))
    """

    def forward(self, input):
        return F.log_softmax(input, self.dim, _stacklevel=5)


class _Shrink(Module):
    """What the two shrinking activations share: lambd, below which they give zero."""

    __constants__ = ["lambd"]

    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def extra_repr(self):
        return str(self.lambd)


class Hardshrink(_Shrink):
    """x where |x| > lambd, else 0.

    y = nn.Hardshrink()(wick.randn(2, 3))
    """

    def forward(self, input):
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """x - lambd above lambd, x + lambd below -lambd, else 0.

    y = nn.Softshrink()(wick.randn(2, 3))
    """

    def forward(self, input):
        return F.softshrink(input, self.lambd)


class RReLU(Module):
    """LeakyReLU with slopes drawn from [lower, upper] in training, their mean otherwise.

    y = nn.RReLU()(wick.randn(2, 3))
    """

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W).

    y = nn.Softmax2d()(wick.randn(2, 3, 4, 4))
    """

    def forward(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)


def __getattr__(name):
    if name == "MultiheadAttention":  # where PyTorch has it
        from .attention import MultiheadAttention

        return MultiheadAttention
    from ..._names import missing

    raise missing(__name__, name)

"""Observers: modules that give a tensor on, and remember what scale and zero point would suit what they have seen.

>>> observer = MinMaxObserver()
>>> observer(wick.tensor([-1.0, 3.0])) is not None
True
>>> observer.calculate_qparams()
(tensor([0.0157]), tensor([64], dtype=torch.int32))

wick has no quantized dtypes: where PyTorch's default is quint8 or qint8, here it is uint8 or int8. Buffers, formulas and
results are PyTorch's. Tests: tests/parity/test_quantization_parity.py.
"""

import functools
import warnings

from ... import _C, _qscheme
from ...nn import Module
from .utils import (
    calculate_qmin_qmax,
    check_min_max_valid,
    is_per_channel,
    is_per_tensor,
    scale_and_zero_point,
    validate_qmin_qmax,
)

__all__ = [
    "FixedQParamsObserver", "HistogramObserver", "MinMaxObserver", "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver", "NoopObserver", "ObserverBase", "PerChannelMinMaxObserver",
    "PlaceholderObserver", "RecordingObserver", "ReuseInputObserver", "UniformQuantizationObserverBase",
    "default_affine_fixed_qparams_observer", "default_debug_observer", "default_dynamic_quant_observer",
    "default_fixed_qparams_range_0to1_observer", "default_fixed_qparams_range_neg1to1_observer",
    "default_float_qparams_observer", "default_histogram_observer", "default_observer",
    "default_per_channel_weight_observer", "default_placeholder_observer", "default_reuse_input_observer",
    "default_symmetric_fixed_qparams_observer", "default_weight_observer", "get_observer_state_dict",
    "load_observer_state_dict", "per_channel_weight_observer_range_neg_127_to_127", "weight_observer_range_neg_127_to_127",
]  # fmt: skip

EPS = 2.0**-23  # float32's
DTYPES = (_C.int8, _C.uint8, _C.int16, _C.uint16, _C.int32, _C.float8_e5m2, _C.float8_e4m3fn)
SCHEMES = _qscheme.PER_TENSOR + _qscheme.PER_CHANNEL


class _Partial:
    """A class with some of its arguments: with_args. Those of with_callable_args are called for each module."""

    def __init__(self, p, callable_args=()):
        self.p, self.callable_args = p, dict(callable_args)

    def __call__(self, *args, **kwargs):
        made = {name: make() for name, make in self.callable_args.items() if name not in kwargs}
        return self.p(*args, **made, **kwargs)

    def __repr__(self):
        return f"{self.p!r}{self.callable_args!r}"

    def with_args(self, **kwargs):
        """More arguments."""
        return _Partial(functools.partial(self.p, **kwargs), self.callable_args)

    def with_callable_args(self, **kwargs):
        """Functions that give arguments."""
        return _Partial(self.p, {**self.callable_args, **kwargs})


class WithArgs:
    """A class that can be given some of its arguments early."""

    @classmethod
    def with_args(cls, **kwargs):
        """What makes modules with these arguments: MinMaxObserver.with_args(dtype=wick.int8)()."""
        return _Partial(functools.partial(cls, **kwargs))

    @classmethod
    def with_callable_args(cls, **kwargs):
        """The same with functions that give the arguments, called for each module."""
        return _Partial(functools.partial(cls), kwargs)


class ObserverBase(WithArgs, Module):
    """What all observers are: forward() and calculate_qparams()."""

    def __init__(self, dtype, is_dynamic=False):
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    def calculate_qparams(self, **kwargs):
        """(scale, zero_point)"""
        raise NotImplementedError(f"{type(self).__name__}.calculate_qparams")


class UniformQuantizationObserverBase(ObserverBase):
    """An observer of the least and the largest value, which make scale and zero point."""

    _version = 3

    def __init__(
        self,
        dtype=_C.uint8,
        qscheme=_qscheme.per_tensor_affine,
        reduce_range=False,
        quant_min=None,
        quant_max=None,
        factory_kwargs=None,
        eps=EPS,
        is_dynamic=False,
        **kwargs,
    ):
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        if reduce_range:
            warnings.warn(
                "Please use quant_min and quant_max to specify the range for observers. "
                "                    reduce_range will be deprecated in a future release of PyTorch.",
                stacklevel=2,
            )
        if qscheme not in SCHEMES:
            raise AssertionError(
                "Default Observer only works for per_tensor_affine, per_tensor_symmetric, per_channel_affine, "
                "per_channel_symmetric and per_channel_float_qparams quantization scheme"
            )
        if dtype not in DTYPES:
            raise AssertionError(f"Default Observer only works for {DTYPES} data type")
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.factory_kwargs = dict(factory_kwargs or {})
        self.register_buffer("eps", _C.tensor([eps], **self.factory_kwargs))
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if self.has_customized_qrange:
            validate_qmin_qmax(quant_min, quant_max)
        self.quant_min, self.quant_max = calculate_qmin_qmax(
            quant_min, quant_max, self.has_customized_qrange, dtype, reduce_range
        )

    def _load_from_state_dict(self, state_dict, prefix, metadata, *rest):
        if metadata.get("version") in (None, 1):
            state_dict[prefix + "eps"] = _C.tensor([EPS])
        super()._load_from_state_dict(state_dict, prefix, metadata, *rest)

    def _calculate_qparams(self, min_val, max_val):
        if not check_min_max_valid(min_val, max_val):
            return _C.tensor([1.0], device=min_val.device), _C.tensor([0], device=min_val.device)
        return scale_and_zero_point(
            min_val,
            max_val,
            self.quant_min,
            self.quant_max,
            self.dtype,
            self.eps,
            self.has_customized_qrange,
            self.qscheme,
        )

    def reset_min_max_vals(self):
        """Forgets what was seen."""
        raise NotImplementedError("Cannot reset min/max values in the given observer.")

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}"


def _per_tensor_only(observer, qscheme):
    if not is_per_tensor(qscheme):
        raise NotImplementedError(
            f"{observer}'s qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine."
        )


class MinMaxObserver(UniformQuantizationObserverBase):
    """The least and the largest value of all that was seen."""

    def __init__(self, dtype=_C.uint8, qscheme=_qscheme.per_tensor_affine, *args, **kwargs):
        _per_tensor_only(type(self).__name__, qscheme)
        super().__init__(dtype, qscheme, *args, **kwargs)
        self.register_buffer("min_val", _C.tensor(float("inf"), **self.factory_kwargs))
        self.register_buffer("max_val", _C.tensor(float("-inf"), **self.factory_kwargs))

    def forward(self, x_orig):
        if x_orig.numel():
            low, high = _C.aminmax(x_orig.detach().to(self.min_val.dtype))
            self.min_val.copy_(_C.minimum(low, self.min_val))
            self.max_val.copy_(_C.maximum(high, self.max_val))
        return x_orig

    def calculate_qparams(self):
        return self._calculate_qparams(self.min_val, self.max_val)

    def reset_min_max_vals(self):
        """Forgets what was seen."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Least and largest value of what comes, averaged: v + c (new - v)."""

    def __init__(
        self,
        averaging_constant=0.01,
        dtype=_C.uint8,
        qscheme=_qscheme.per_tensor_affine,
        *args,
        is_dynamic=False,
        **kwargs,
    ):
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver doesn't support dynamic quantization for "
                f"averaging constant of {averaging_constant}"
            )
        super().__init__(dtype, qscheme, *args, is_dynamic=is_dynamic, **kwargs)
        self.averaging_constant = averaging_constant

    def forward(self, x_orig):
        if x_orig.numel():
            low, high = _C.aminmax(x_orig.detach().to(self.min_val.dtype))
            if self.min_val != float("inf") or self.max_val != float("-inf"):
                low = self.min_val + self.averaging_constant * (low - self.min_val)
                high = self.max_val + self.averaging_constant * (high - self.max_val)
            self.min_val.copy_(low)
            self.max_val.copy_(high)
        return x_orig


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """The least and the largest value of each channel of what was seen."""

    def __init__(
        self, ch_axis=0, dtype=_C.uint8, qscheme=_qscheme.per_channel_affine, *args, is_dynamic=False, **kwargs
    ):
        if not is_per_channel(qscheme):
            raise NotImplementedError(
                f"{type(self).__name__}'s qscheme only support torch.per_channel_symmetric, torch.per_channel_affine and "
                "torch.per_channel_affine_float_qparams."
            )
        if is_dynamic:
            raise NotImplementedError(f"{type(self).__name__} doesn't support dynamic quantization")
        super().__init__(dtype, qscheme, *args, **kwargs)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", _C.tensor([], **self.factory_kwargs))
        self.register_buffer("max_val", _C.tensor([], **self.factory_kwargs))

    def _of_channels(self, x):
        rows = x.detach().to(self.min_val.dtype).transpose(0, self.ch_axis).flatten(1)
        return _C.aminmax(rows, dim=1)

    def _joined(self, low, high):
        return _C.minimum(low, self.min_val), _C.maximum(high, self.max_val)

    def forward(self, x_orig):
        if x_orig.numel():
            low, high = self._of_channels(x_orig)
            if self.min_val.numel() and self.max_val.numel():
                low, high = self._joined(low, high)
            self.min_val.resize_(low.shape).copy_(low)
            self.max_val.resize_(high.shape).copy_(high)
        return x_orig

    def calculate_qparams(self):
        return self._calculate_qparams(self.min_val, self.max_val)

    def _load_from_state_dict(self, state_dict, prefix, metadata, *rest):
        for name in ("min_val", "max_val"):
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, metadata, *rest)

    def reset_min_max_vals(self):
        """Forgets what was seen."""
        self.min_val, self.max_val = _C.rand(0), _C.rand(0)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Least and largest value of each channel of what comes, averaged."""

    def __init__(
        self, averaging_constant=0.01, ch_axis=0, dtype=_C.uint8, qscheme=_qscheme.per_channel_affine, *args, **kwargs
    ):
        super().__init__(ch_axis, dtype, qscheme, *args, **kwargs)
        self.averaging_constant = averaging_constant

    def _joined(self, low, high):
        c = self.averaging_constant
        return self.min_val + c * (low - self.min_val), self.max_val + c * (high - self.max_val)


class FixedQParamsObserver(ObserverBase):
    """Looks at nothing: scale and zero point are given."""

    def __init__(
        self, scale, zero_point, dtype=_C.uint8, qscheme=_qscheme.per_tensor_affine, quant_min=0, quant_max=255,
        is_dynamic=False, **kwargs,
    ):  # fmt: skip
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", _C.tensor([scale], dtype=_C.float32))
        self.register_buffer("zero_point", _C.tensor([zero_point], dtype=_C.int32))

    def forward(self, X):
        return X

    def calculate_qparams(self):
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Looks at nothing: says what dtype is wanted, for dynamic quantization."""

    def __init__(
        self, dtype=_C.float32, custom_op_name="", compute_dtype=None, quant_min=None, quant_max=None, qscheme=None,
        eps=None, is_dynamic=False,
    ):  # fmt: skip
        super().__init__(dtype=dtype, is_dynamic=is_dynamic or bool(compute_dtype))
        self.qscheme = _qscheme.per_tensor_affine if qscheme is None else qscheme
        self.quant_min, self.quant_max, self.eps, self.custom_op = quant_min, quant_max, eps, custom_op_name

    def forward(self, x):
        return x

    def extra_repr(self):
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"

    def calculate_qparams(self):
        raise Exception("calculate_qparams should not be called for PlaceholderObserver")  # noqa: TRY002


class RecordingObserver(ObserverBase):
    """Keeps copies of what it has seen."""

    def __init__(self, dtype=_C.uint8):
        super().__init__(dtype=dtype)
        self.tensor_val = []

    def forward(self, x):
        self.tensor_val.append(x.clone())
        return x

    def calculate_qparams(self):
        raise Exception("calculate_qparams should not be called for RecordingObserver")  # noqa: TRY002

    def get_tensor_value(self):
        """The copies."""
        return self.tensor_val


class NoopObserver(ObserverBase):
    """Looks at nothing."""

    def __init__(self, dtype=_C.float16, custom_op_name=""):
        super().__init__(dtype=dtype)
        self.custom_op = custom_op_name

    def forward(self, x):
        return x

    def calculate_qparams(self):
        raise Exception("calculate_qparams should not be called for NoopObserver")  # noqa: TRY002


class ReuseInputObserver(ObserverBase):
    """Stands where the observer of the operator's input holds: for reshape and the like."""

    def __init__(self):
        super().__init__(_C.uint8)

    def forward(self, x):
        return x

    def calculate_qparams(self):
        raise Exception("calculate_qparams should not be called for ReuseInputObserver")  # noqa: TRY002


from .histogram import HistogramObserver  # noqa: E402  which is one of these

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
_WEIGHT = {"dtype": _C.int8, "qscheme": _qscheme.per_tensor_symmetric}
_CHANNELS = {"dtype": _C.int8, "qscheme": _qscheme.per_channel_symmetric}
_NARROW = {"quant_min": -127, "quant_max": 127, "eps": 2**-12}
default_weight_observer = MinMaxObserver.with_args(**_WEIGHT)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(**_WEIGHT, **_NARROW)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(**_CHANNELS)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(**_CHANNELS, **_NARROW)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=_C.uint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=_C.uint8, qscheme=_qscheme.per_channel_affine_float_qparams, ch_axis=0
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, dtype=_C.uint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, dtype=_C.uint8, quant_min=0, quant_max=255
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
default_debug_observer = RecordingObserver


def _observers(mod):
    return {name for name, module in mod.named_modules() if isinstance(module, ObserverBase)}


def get_observer_state_dict(mod):
    """Of a model's state_dict what observers have seen."""
    names = _observers(mod)
    return type(state := mod.state_dict())((k, v) for k, v in state.items() if k.rpartition(".")[0] in names)


def load_observer_state_dict(mod, obs_dict):
    """Gives it to the observers of a model; other names of the dict are an error."""
    missing, unexpected = mod.load_state_dict(obs_dict, strict=False)
    names = _observers(mod)
    lost = [k for k in missing if k.rpartition(".")[0] in names]
    if lost or unexpected:
        raise RuntimeError(f"Missing keys for observer {lost or list(unexpected)} in state_dict")

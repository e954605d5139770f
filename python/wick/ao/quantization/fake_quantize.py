"""FakeQuantize: modules that observe a tensor and round it to the numbers that would stand for it, as in training.

>>> FakeQuantize(observer=MinMaxObserver)(wick.tensor([0.0, 0.301, 1.0]))
tensor([0.0000, 0.3020, 1.0000])

Gradients go straight through where nothing was cut off. Tests: tests/parity/test_quantization_parity.py.
"""

from ... import _C, _qscheme
from ...nn import Module
from .observer import (
    FixedQParamsObserver,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    WithArgs,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from .utils import is_per_channel, is_per_tensor

__all__ = [
    "FakeQuantize", "FakeQuantizeBase", "FixedQParamsFakeQuantize", "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant", "default_dynamic_fake_quant", "default_fake_quant",
    "default_fixed_qparams_range_0to1_fake_quant", "default_fixed_qparams_range_neg1to1_fake_quant",
    "default_fused_act_fake_quant", "default_fused_per_channel_wt_fake_quant", "default_fused_wt_fake_quant",
    "default_histogram_fake_quant", "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant", "default_weight_fake_quant", "disable_fake_quant", "disable_observer",
    "enable_fake_quant", "enable_observer", "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]  # fmt: skip


class FakeQuantizeBase(WithArgs, Module):
    """Two switches: whether it observes, and whether it rounds."""

    def __init__(self):
        super().__init__()
        self.register_buffer("fake_quant_enabled", _C.tensor([1], dtype=_C.uint8))
        self.register_buffer("observer_enabled", _C.tensor([1], dtype=_C.uint8))

    def calculate_qparams(self, **kwargs):
        """(scale, zero_point)"""
        raise NotImplementedError(f"{type(self).__name__}.calculate_qparams")

    def enable_fake_quant(self, enabled=True):
        """Rounds from now on, or not."""
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self):
        """Gives tensors on as they are."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled=True):
        """Observes from now on, or not."""
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self):
        """Keeps scale and zero point."""
        self.enable_observer(False)


class FakeQuantize(FakeQuantizeBase):
    """(clamp(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale"""

    def __init__(
        self, observer=MovingAverageMinMaxObserver, quant_min=None, quant_max=None, is_dynamic=False, **observer_kwargs
    ):
        super().__init__()
        if quant_min is not None and quant_max is not None:
            self._check_range(observer, quant_min, quant_max, observer_kwargs.get("dtype", _C.uint8))
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        observer_kwargs["is_dynamic"] = is_dynamic
        own = self.activation_post_process = observer(**observer_kwargs)
        self.quant_min, self.quant_max, self.is_dynamic = own.quant_min, own.quant_max, own.is_dynamic
        self.dtype, self.qscheme, self.ch_axis = own.dtype, own.qscheme, getattr(own, "ch_axis", -1)
        floats = own.qscheme is _qscheme.per_channel_affine_float_qparams
        self.register_buffer("scale", _C.tensor([1.0], dtype=_C.float32))
        self.register_buffer("zero_point", _C.tensor([0], dtype=_C.float32 if floats else _C.int32))
        self.is_per_channel = is_per_channel(self.qscheme)
        if not (self.is_per_channel or is_per_tensor(self.qscheme)):
            raise AssertionError(
                f"Only per channel and per tensor quantization are supported in fake quantize got qscheme: {self.qscheme}"
            )

    @staticmethod
    def _check_range(observer, quant_min, quant_max, dtype):
        dtype = getattr(getattr(observer, "p", None), "keywords", {}).get("dtype", dtype)
        if quant_min > quant_max:
            raise AssertionError("quant_min must be less than or equal to quant_max")
        if _C.iinfo(dtype).min > quant_min:
            raise AssertionError("quant_min out of bound")
        if quant_max > _C.iinfo(dtype).max:
            raise AssertionError("quant_max out of bound")

    def calculate_qparams(self):
        return self.activation_post_process.calculate_qparams()

    def _chosen(self):
        return self.calculate_qparams()

    def _observe(self, X):
        self.activation_post_process(X.detach())
        scale, zero_point = self._chosen()
        if self.scale.shape != scale.shape:
            self.scale.resize_(scale.shape)
            self.zero_point.resize_(zero_point.shape)
        self.scale.copy_(scale)
        self.zero_point.copy_(zero_point)

    def forward(self, X):
        if self.observer_enabled[0] == 1:
            self._observe(X)
        if self.fake_quant_enabled[0] != 1:
            return X
        own = self.activation_post_process
        # Copies: the derivative needs them as they are now, and what is shared is called again before.
        scale, zero_point = self.scale.clone(), self.zero_point.clone()
        if self.is_per_channel:
            return _C.fake_quantize_per_channel_affine(X, scale, zero_point, self.ch_axis, own.quant_min, own.quant_max)
        return _C.fake_quantize_per_tensor_affine(X, scale, zero_point, own.quant_min, own.quant_max)

    def extra_repr(self):
        own = self.activation_post_process
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"quant_min={own.quant_min}, quant_max={own.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, "
            f"ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for name in ("scale", "zero_point"):
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class FixedQParamsFakeQuantize(FakeQuantize):
    """With a scale and a zero point that are given."""

    def __init__(self, observer):
        super().__init__(observer=observer)
        if type(self.activation_post_process) is not FixedQParamsObserver:
            raise AssertionError("FixedQParamsFakeQuantize's observer must be a FixedQParamsObserver")
        self._observer_ctr = observer
        self.scale, self.zero_point = self.activation_post_process.scale, self.activation_post_process.zero_point

    def calculate_qparams(self):
        return self.scale, self.zero_point


def _fused_qparams(low, high, quant_min, quant_max, symmetric):
    """PyTorch's operator chooses scale and zero point by itself, in double: the zero point from the end of the range whose
    rounding costs less. Around zero the range is that of the integers, which has one more below."""
    both = (low < 0) & (high > 0) if symmetric else _C.zeros_like(low, dtype=_C.bool)
    below, above = (quant_max - quant_min) // 2 + 1, (quant_max - quant_min) // 2
    most = _C.maximum((low / -below).abs(), (high / above).abs()).double()
    low, high = _C.where(both, (most * -below).float(), low), _C.where(both, (most * above).float(), high)
    low, high = low.clamp(max=0).double(), high.clamp(min=0).double()
    scale = (high - low) / (quant_max - quant_min)
    scale = _C.where((scale.float() == 0) | (1 / scale).isinf(), 0.1, scale)
    from_low, from_high = quant_min - low / scale, quant_max - high / scale
    low_error = abs(quant_min) + (low / scale).abs()
    high_error = abs(quant_max) + (high / scale).abs()
    zero_point = _C.where(low_error < high_error, from_low, from_high)
    zero_point = _C.where(both, float(int((quant_min + quant_max) / 2)), zero_point)
    return scale.reshape(-1), zero_point.round().clamp(quant_min, quant_max).reshape(-1)


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """The same with an observer of moving averages alone, which PyTorch runs as one operator."""

    def __init__(self, observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, **observer_kwargs):
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        kinds = MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver
        if not isinstance(self.activation_post_process, kinds):
            raise AssertionError("Fused observer+fake_quant module only works with MovingAverageMinMaxObserver")
        self.register_buffer("fake_quant_enabled", _C.tensor([1], dtype=_C.int64))
        self.register_buffer("observer_enabled", _C.tensor([1], dtype=_C.int64))

    def _chosen(self):
        own = self.activation_post_process
        symmetric = self.qscheme in _qscheme.SYMMETRIC
        return _fused_qparams(own.min_val, own.max_val, own.quant_min, own.quant_max, symmetric)


_UNSIGNED = {"quant_min": 0, "quant_max": 255, "dtype": _C.uint8}
_SIGNED = {"quant_min": -128, "quant_max": 127, "dtype": _C.int8}
_NARROW = {"quant_min": -127, "quant_max": 127, "dtype": _C.int8, "eps": 2**-12}
_AVERAGES, _CHANNEL_AVERAGES = MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver
_FULL_RANGE = {"qscheme": _qscheme.per_tensor_affine, "reduce_range": True}
_SYMMETRIC = {"qscheme": _qscheme.per_tensor_symmetric}
_CHANNELS = {"qscheme": _qscheme.per_channel_symmetric, "ch_axis": 0}

default_fake_quant = FakeQuantize.with_args(observer=_AVERAGES, **_UNSIGNED, **_FULL_RANGE)
default_weight_fake_quant = FakeQuantize.with_args(observer=_AVERAGES, **_SIGNED, **_SYMMETRIC, reduce_range=False)
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=_AVERAGES, **_UNSIGNED, is_dynamic=True, averaging_constant=1
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=_CHANNEL_AVERAGES, **_SIGNED, **_CHANNELS, reduce_range=False
)
default_histogram_fake_quant = FakeQuantize.with_args(observer=HistogramObserver, **_UNSIGNED, **_FULL_RANGE)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(observer=_AVERAGES, **_UNSIGNED)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(observer=_AVERAGES, **_SIGNED, **_SYMMETRIC)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=_CHANNEL_AVERAGES, **_SIGNED, qscheme=_qscheme.per_channel_symmetric
)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=_AVERAGES, **_NARROW, **_SYMMETRIC
)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    observer=_CHANNEL_AVERAGES, **_NARROW, qscheme=_qscheme.per_channel_symmetric
)


def _each(method):
    def apply(mod):
        if isinstance(mod, FakeQuantizeBase):
            getattr(mod, method)()

    apply.__name__ = apply.__qualname__ = method
    apply.__doc__ = f"For model.apply(): {method}() of each module that fakes quantization."
    return apply


disable_fake_quant, enable_fake_quant = _each("disable_fake_quant"), _each("enable_fake_quant")
disable_observer, enable_observer = _each("disable_observer"), _each("enable_observer")

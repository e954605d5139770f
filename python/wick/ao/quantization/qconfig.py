"""QConfig: how activations and weights are observed, as what makes observers.

>>> get_default_qconfig("x86").weight()
PerChannelMinMaxObserver(min_val=tensor([]), max_val=tensor([]))

Tests: tests/python/test_quantize.py.
"""

from collections import namedtuple

from ... import _C
from ...nn import Identity
from .fake_quantize import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    default_dynamic_fake_quant,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
)
from .observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    PlaceholderObserver,
    default_dynamic_quant_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
)

__all__ = [
    "QConfig", "default_dynamic_qconfig", "default_per_channel_qconfig", "default_qat_qconfig", "default_qat_qconfig_v2",
    "default_qconfig", "default_weight_only_qconfig", "float16_dynamic_qconfig", "get_default_qat_qconfig",
    "get_default_qconfig", "per_channel_dynamic_qconfig", "qconfig_equals",
]  # fmt: skip


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """Both are classes or what with_args gives, not modules."""

    __slots__ = ()

    def __new__(cls, activation, weight):
        from ...nn import Module

        if isinstance(activation, Module) or isinstance(weight, Module):
            raise ValueError(
                "QConfig received observer instance, please pass observer class instead. "
                "Use MyObserver.with_args(x=1) to override arguments to constructor if needed"
            )
        return super().__new__(cls, activation, weight)


def qconfig_equals(q1, q2):
    """Whether two make the same observers."""
    return repr(q1) == repr(q2)


_BACKENDS = ("fbgemm", "x86", "qnnpack", "onednn")


def _check(backend):
    if backend not in _BACKENDS:
        raise AssertionError(
            f"backend: {backend} not supported. backend must be one of {['fbgemm', 'x86', 'qnnpack', 'onednn']}"
        )


def get_default_qconfig(backend="x86", version=0):
    """For quantization after training: histograms of activations; weights by channel but for "qnnpack"."""
    _check(backend)
    reduces = backend in ("fbgemm", "x86")
    weight = default_weight_observer if backend == "qnnpack" else default_per_channel_weight_observer
    return QConfig(HistogramObserver.with_args(reduce_range=reduces), weight)


def get_default_qat_qconfig(backend="x86", version=1):
    """For training: moving averages, faked."""
    _check(backend)
    reduces, by_channel = backend in ("fbgemm", "x86"), backend != "qnnpack"
    if version not in (0, 1):
        raise AssertionError(
            f"Version number: {version}in get_default_qat_qconfig is not supported. Version number must be 0 or 1"
        )
    numbers = {"observer": MovingAverageMinMaxObserver, "quant_min": 0, "quant_max": 255, "reduce_range": reduces}
    if version == 0:
        weight = default_per_channel_weight_fake_quant if by_channel else default_weight_fake_quant
        return QConfig(FakeQuantize.with_args(**numbers), weight)
    weight = default_fused_per_channel_wt_fake_quant if by_channel else default_fused_wt_fake_quant
    return QConfig(FusedMovingAvgObsFakeQuantize.with_args(**numbers), weight)


default_qconfig = QConfig(default_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
per_channel_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(
    PlaceholderObserver.with_args(dtype=_C.float16, is_dynamic=True), PlaceholderObserver.with_args(dtype=_C.float16)
)
default_qat_qconfig = QConfig(default_fake_quant, default_weight_fake_quant)
default_qat_qconfig_v2 = QConfig(default_fused_act_fake_quant, default_fused_wt_fake_quant)
default_weight_only_qconfig = QConfig(Identity, default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(default_dynamic_fake_quant, default_weight_fake_quant)
default_per_channel_qat_qconfig = QConfig(default_fake_quant, default_per_channel_weight_fake_quant)
default_debug_qconfig = QConfig(MinMaxObserver, default_weight_observer)

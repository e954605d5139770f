"""torch.ao.quantization: observers, fake quantization, models with quantized weights, quantization of captured graphs.

docs/quantization.md says what there is. Where PyTorch's flow has tensors of quantized dtypes wick has floats; models'
weights are plain int8.
"""

from ..._names import files_of
from ..._names import late as _late
from .stubs import DeQuantStub, QuantStub, QuantWrapper  # noqa: F401

_NAMES = files_of(
    {
        "observer": "FixedQParamsObserver HistogramObserver MinMaxObserver MovingAverageMinMaxObserver "
        "MovingAveragePerChannelMinMaxObserver NoopObserver ObserverBase PerChannelMinMaxObserver PlaceholderObserver "
        "RecordingObserver ReuseInputObserver UniformQuantizationObserverBase default_affine_fixed_qparams_observer "
        "default_debug_observer default_dynamic_quant_observer default_fixed_qparams_range_0to1_observer "
        "default_fixed_qparams_range_neg1to1_observer default_float_qparams_observer default_histogram_observer "
        "default_observer default_per_channel_weight_observer default_placeholder_observer default_reuse_input_observer "
        "default_symmetric_fixed_qparams_observer default_weight_observer "
        "get_observer_state_dict load_observer_state_dict per_channel_weight_observer_range_neg_127_to_127 "
        "weight_observer_range_neg_127_to_127",
        "fake_quantize": "FakeQuantize FakeQuantizeBase FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize "
        "default_affine_fixed_qparams_fake_quant default_dynamic_fake_quant default_fake_quant "
        "default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_neg1to1_fake_quant "
        "default_fused_act_fake_quant default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant "
        "default_histogram_fake_quant default_per_channel_weight_fake_quant default_symmetric_fixed_qparams_fake_quant "
        "default_weight_fake_quant disable_fake_quant disable_observer enable_fake_quant enable_observer "
        "fused_per_channel_wt_fake_quant_range_neg_127_to_127 fused_wt_fake_quant_range_neg_127_to_127",
        "qconfig": "QConfig default_debug_qconfig default_dynamic_qat_qconfig default_dynamic_qconfig "
        "default_per_channel_qat_qconfig default_per_channel_qconfig default_qat_qconfig default_qat_qconfig_v2 "
        "default_qconfig default_weight_only_qconfig float16_dynamic_qconfig get_default_qat_qconfig get_default_qconfig "
        "per_channel_dynamic_qconfig qconfig_equals",
        "eager": "convert fuse_modules fuse_modules_qat prepare prepare_qat quantize_qat",
        "qconfig_mapping": "QConfigMapping get_default_qat_qconfig_mapping get_default_qconfig_mapping",
        "quantize": "propagate_qconfig_ quantize_dynamic",
        "quant_api": "Int4WeightOnlyConfig Int8DynamicActivationInt8WeightConfig Int8WeightOnlyConfig quantize_",
    }
)
_MODULES = (
    "eager fake_quantize fx histogram linear observer qconfig qconfig_mapping quant_api quantize quantize_fx quantize_pt2e quantizer stubs utils"
).split()
__getattr__ = _late(__name__, _MODULES, _NAMES)

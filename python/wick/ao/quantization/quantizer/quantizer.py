"""What a quantizer says: how a tensor is quantized, and of which nodes' inputs and outputs that is so."""

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "FixedQParamsQuantizationSpec", "QuantizationAnnotation", "QuantizationSpec", "QuantizationSpecBase",
    "Quantizer", "SharedQuantizationSpec",
]  # fmt: skip

KEY = "quantization_annotation"  # in a node's meta


@dataclass(eq=True, frozen=True)
class QuantizationSpecBase:
    """How a tensor is quantized."""


@dataclass(eq=True, frozen=True)
class QuantizationSpec(QuantizationSpecBase):
    """By an observer, which finds scale and zero point."""

    dtype: Any
    observer_or_fake_quant_ctr: Any
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    ch_axis: int | None = None
    is_dynamic: bool = False

    def __post_init__(self):
        if self.quant_min is not None and self.quant_max is not None and self.quant_min > self.quant_max:
            raise ValueError(f"quant_min {self.quant_min} must be <= quant_max {self.quant_max}.")
        if self.ch_axis is not None and self.ch_axis < 0:
            raise ValueError("Ch_axis is < 0.")


@dataclass(eq=True, frozen=True)
class FixedQParamsQuantizationSpec(QuantizationSpecBase):
    """By a scale and a zero point that are known."""

    dtype: Any
    scale: float
    zero_point: int
    quant_min: int | None = None
    quant_max: int | None = None
    qscheme: Any = None
    is_dynamic: bool = False


@dataclass(eq=True, frozen=True)
class SharedQuantizationSpec(QuantizationSpecBase):
    """As another edge (input node, user) or another node's output is."""

    edge_or_node: Any


@dataclass
class QuantizationAnnotation:
    """Of one node: specs of its inputs by the nodes that make them, and of its output."""

    input_qspec_map: dict = field(default_factory=dict)
    output_qspec: QuantizationSpecBase | None = None
    allow_implicit_sharing: bool = True
    _annotated: bool = False


class Quantizer:
    """annotate() says how a graph is quantized; validate() whether what was said can be done."""

    def transform_for_annotation(self, model):
        """Changes a graph before it is annotated."""
        return model

    def annotate(self, model):
        """Puts annotations to nodes."""
        raise NotImplementedError(f"{type(self).__name__}.annotate")

    def validate(self, model):
        """Raises what is wrong with the annotations."""

    def prepare_obs_or_fq_callback(self, model, edge_or_node_to_obs_or_fq):
        """Changes observers before they stand in the graph."""

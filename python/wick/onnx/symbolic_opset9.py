"""torch.onnx.symbolic_opset9: how an exporter would write operators; there is none."""

from .._names import getter as _getter

__getattr__ = _getter(__name__)

"""torch.onnx: the names that programs decorate and ask with; there is no exporter, and export() says so."""

from .._names import cannot
from .._names import late as _late

_WHY = "wick has no ONNX exporter"
export = cannot("torch.onnx.export", _WHY)
dynamo_export = cannot("torch.onnx.dynamo_export", _WHY)
_custom_symbolics = {}


class OperatorExportTypes:
    """How operators that ONNX lacks would be exported."""

    ONNX, ONNX_ATEN, ONNX_ATEN_FALLBACK, ONNX_FALLTHROUGH = range(4)


class TrainingMode:
    """In which mode a model would be exported."""

    EVAL, PRESERVE, TRAINING = range(3)


def is_in_onnx_export():
    """Whether an export runs: False."""
    return False


def register_custom_op_symbolic(symbolic_name, symbolic_fn, opset_version):
    """Keeps the function that would export an operator."""
    if symbolic_name.count("::") != 1:
        raise ValueError(
            f"Failed to register operator {symbolic_name}. The symbolic name must match the format domain::name"
        )
    _custom_symbolics[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name, opset_version):
    """Forgets it."""
    _custom_symbolics.pop((symbolic_name, opset_version), None)


__getattr__ = _late(__name__, ("symbolic_helper", "symbolic_opset9", "symbolic_opset11"))

"""torch._logging: which channels of WICK_LOGS and which loggers of Python print, set by the program.

TORCH_LOGS sets them from outside; then set_logs() does nothing, as in PyTorch.

    torch._logging.set_logs(recompiles=True, graph_breaks=True)
"""

from .._names import getter as _getter
from ._internal import (
    DEFAULT_LOGGING,
    LazyString,
    getArtifactLogger,
    hide_warnings,
    register_artifact,
    register_log,
    set_logs,
    warning_once,
)

__all__ = [
    "DEFAULT_LOGGING", "LazyString", "getArtifactLogger", "hide_warnings", "register_artifact", "register_log", "set_logs",
    "warning_once",
]  # fmt: skip
__getattr__ = _getter(__name__)

"""torch.utils.data._utils: where programs find how batches are made and what a worker knows."""

from ...._names import late as _late
from .. import collate, worker

MP_STATUS_CHECK_INTERVAL = 5.0
python_exit_status = False
__all__ = ["MP_STATUS_CHECK_INTERVAL", "collate", "python_exit_status", "worker"]

__getattr__ = _late(__name__, ("signal_handling",))

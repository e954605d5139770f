"""torch.utils.data._utils.worker: what a worker process knows."""

from ...._names import getter as _getter
from ..worker import ManagerWatchdog, WorkerInfo, get_worker_info

__all__ = ["ManagerWatchdog", "WorkerInfo", "get_worker_info"]

__getattr__ = _getter(__name__)

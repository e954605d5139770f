"""torch.utils.data._utils.signal_handling: worker processes end with the loader's process without signals of their own."""

from ...._names import getter as _getter


def _set_SIGCHLD_handler():
    """Nothing is set: a worker that has died is noticed at its pipe."""


def _set_worker_signal_handlers():
    """Nothing is set in a worker."""


def _set_worker_pids(loader, pids):
    """Nothing is kept."""


def _remove_worker_pids(loader):
    """Nothing is kept."""


def _error_if_any_worker_fails():
    """Nothing: the pipe of a worker that died raises."""


__getattr__ = _getter(__name__)

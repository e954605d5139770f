"""torch.multiprocessing: Python's multiprocessing, and processes that are numbered.

Tensors are sent by shared memory: a receiver looks at the sender's bytes.
"""

import multiprocessing
from multiprocessing import *  # noqa: F403

from .._names import late as _late
from .reductions import init_reductions as _init_reductions

_OF_SPAWN = ("ProcessContext", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "start_processes")
__all__ = [*multiprocessing.__all__, "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"]

_strategies = {"file_descriptor", "file_system"}
_strategy = "file_descriptor"


def set_sharing_strategy(new_strategy):
    """Which way tensors are shared: kept, and without effect, since both ways are by descriptors here."""
    global _strategy
    if new_strategy not in _strategies:
        raise AssertionError(f"invalid sharing strategy {new_strategy!r}, expected one of {_strategies}")
    _strategy = new_strategy


def get_sharing_strategy():
    """What set_sharing_strategy was given."""
    return _strategy


def get_all_sharing_strategies():
    """The strategies that set_sharing_strategy takes."""
    return set(_strategies)


_init_reductions()
_late_names = _late(__name__, (), dict.fromkeys(_OF_SPAWN, "_spawn"))


def __getattr__(name):
    if name == "spawn":  # a function here, a module of the same name in multiprocessing
        from ._spawn import spawn

        return spawn
    if hasattr(multiprocessing, name):
        return getattr(multiprocessing, name)
    return _late_names(name)

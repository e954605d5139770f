"""torch.distributed.distributed_c10d: names of torch.distributed under the module that PyTorch has them in."""

from .. import distributed as _distributed
from . import *  # noqa: F403
from . import _no_group


def _get_default_group():
    """The group of all processes: needs one."""
    _no_group()


def __getattr__(name):
    return getattr(_distributed, name)

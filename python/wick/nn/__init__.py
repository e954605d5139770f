"""Neural network layers, losses, initialisation, functions."""

from . import functional, init, modules, utils  # noqa: F401
from .modules import *  # noqa: F403
from .modules.module import Module  # noqa: F401
from .parameter import Buffer, Parameter, UninitializedParameter  # noqa: F401


def __getattr__(name):
    from .._names import missing

    raise missing(__name__, name)

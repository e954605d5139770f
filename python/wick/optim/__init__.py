"""Optimizers and learning-rate schedules."""

from . import optimizer  # noqa: F401
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]


def __getattr__(name):
    if name == "lr_scheduler":  # loaded when first used
        import importlib

        return importlib.import_module(f"{__name__}.lr_scheduler")
    from .._names import missing

    raise missing(__name__, name)

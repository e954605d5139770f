"""Optimizers and learning-rate schedules."""

from . import lr_scheduler, optimizer  # noqa: F401
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "lr_scheduler"]


def __getattr__(name):
    from .._names import missing

    raise missing(__name__, name)

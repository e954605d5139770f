"""Optimizers and learning-rate schedules."""

from .._names import late as _late
from . import optimizer  # noqa: F401
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

_LATE = {
    "ASGD": "asgd", "Adadelta": "adadelta", "Adafactor": "adafactor", "Adagrad": "adagrad", "Adamax": "adamax",
    "LBFGS": "lbfgs", "Muon": "_muon", "NAdam": "nadam", "RAdam": "radam", "RMSprop": "rmsprop", "Rprop": "rprop",
    "SparseAdam": "sparse_adam",
}  # fmt: skip
__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]

__getattr__ = _late(__name__, ("lr_scheduler", "swa_utils", *_LATE.values()), _LATE)


def __dir__():
    return sorted({*globals(), *_LATE, "lr_scheduler", "swa_utils"})

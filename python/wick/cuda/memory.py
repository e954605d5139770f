"""torch.cuda.memory: names of torch.cuda under the module that PyTorch has them in."""

from .. import cuda as _cuda
from .._names import missing as _missing


def __getattr__(name):
    if name.startswith("__") or not hasattr(_cuda, name):
        raise _missing(__name__, name)
    return getattr(_cuda, name)

"""torch.cuda.sparse: an older module, which PyTorch keeps for its name."""

from .._names import getter as _getter

__getattr__ = _getter(__name__)

"""torch._custom_ops: the older name of torch.library."""

from ._names import getter as _getter
from .library import impl_abstract, register_autograd  # noqa: F401

__getattr__ = _getter(__name__)

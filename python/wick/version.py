"""torch.version: what wick was built with, in the form that programs ask for it."""

from ._as_torch import TORCH_VERSION

__version__ = TORCH_VERSION
debug = False
cuda = hip = rocm = xpu = None
git_version = "Unknown"

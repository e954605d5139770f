"""torch.version: what wick was built with, in the form that programs ask for it."""

from .torch_version import TorchVersion

wick = "0.1.0"  # wick's own version
__version__ = TorchVersion("2.13.0")  # of PyTorch, whose programs run
debug = False
cuda = hip = rocm = xpu = None
git_version = "Unknown"

"""torch.backends: the libraries that PyTorch computes with, most of which wick has none of. Settings are kept and read
back, as in PyTorch's CPU build; what they would choose between is not here."""

from .._names import late as _late

_PARTS = (
    "cpu", "cuda", "cudnn", "cusparselt", "mha", "miopen", "mkl", "mkldnn", "mps", "nnpack", "openmp", "opt_einsum",
    "quantized", "xnnpack",
)  # fmt: skip

__getattr__ = _late(__name__, _PARTS)

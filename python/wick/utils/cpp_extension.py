"""torch.utils.cpp_extension: C++ code over PyTorch's own headers, which are not here. Names can be imported; building
says so."""

from .._names import cannot
from .._names import getter as _getter

CUDA_HOME = ROCM_HOME = CUDNN_HOME = None
IS_WINDOWS = False
_WHY = "extensions in C++ are written against PyTorch's library, which wick is not"
for _name in (
    "BuildExtension", "CUDAExtension", "CppExtension", "SyclExtension", "check_compiler_abi_compatibility", "load",
    "load_inline", "include_paths", "library_paths",
):  # fmt: skip
    globals()[_name] = cannot(f"torch.utils.cpp_extension.{_name}", _WHY)


def is_ninja_available():
    """Whether the build tool ninja is installed."""
    import shutil

    return shutil.which("ninja") is not None


__getattr__ = _getter(__name__)

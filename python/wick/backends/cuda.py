"""torch.backends.cuda: settings of CUDA that programs make."""

import contextlib

from .. import _C, _switches
from .._names import getter as _getter


def is_built():
    """Whether there is CUDA code: wherever there is a device, since nothing but its driver is needed."""
    return _C._device_count("cuda") > 0


class _Matmul:
    @property
    def allow_tf32(self):
        """Whether products of float32 may be multiplied as TF32 (by cuBLASLt)."""
        return _C._cuda_switch("products_tf32")

    @allow_tf32.setter
    def allow_tf32(self, value):
        _switches.set_float32_matmul_precision("high" if value else "highest")

    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False
    fp32_precision = "none"


matmul = _Matmul()
_enabled = {"flash": True, "mem_efficient": True, "math": True, "reduced": False}


def _switch(key):
    def enabled():
        return _enabled[key]

    def enable(enabled):
        _enabled[key] = bool(enabled)

    return enabled, enable


flash_sdp_enabled, enable_flash_sdp = _switch("flash")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _switch("mem_efficient")
math_sdp_enabled, enable_math_sdp = _switch("math")
fp16_bf16_reduction_math_sdp_allowed, allow_fp16_bf16_reduction_math_sdp = _switch("reduced")


def cudnn_sdp_enabled():
    """Whether attention may be cuDNN's."""
    return _C._cuda_switch("cudnn_attention")


def enable_cudnn_sdp(enabled):
    """Whether attention may be cuDNN's, where it is found and faster; else it is wick's."""
    _C._set_cuda_switch("cudnn_attention", enabled)


@contextlib.contextmanager
def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """Which ways of attention CUDA chooses from, inside a `with`: cuDNN's or wick's."""
    before, library = dict(_enabled), cudnn_sdp_enabled()
    _enabled.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient)
    enable_cudnn_sdp(enable_cudnn)
    try:
        yield {}
    finally:
        _enabled.update(before)
        enable_cudnn_sdp(library)


def is_flash_attention_available():
    """Whether there is a kernel of CUDA's: False."""
    return False


__getattr__ = _getter(__name__)

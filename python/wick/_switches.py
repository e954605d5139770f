"""Switches of torch that change little or nothing of what is computed, and what is asked of how PyTorch was built."""

from . import _C

has_lapack, has_spectral, has_mkl, has_openmp = True, True, False, False  # of wick: its own routines and threads
_warns_always = False
_precision = "highest"


def compiled_with_cxx11_abi():
    """True: kept for programs that build extensions."""
    return True


def init_num_threads():
    """Nothing: threads are started when they are needed."""


def set_flush_denormal(mode):
    """Whether tiny numbers may be taken for 0: they are not, so False."""
    return False


def set_float32_matmul_precision(precision):
    """How float32 products may be computed: on the CPU always in float32, on CUDA as TF32 unless it is "highest"."""
    global _precision
    if precision not in ("highest", "high", "medium"):
        import warnings

        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current setFloat32MatmulPrecision call has no "
            "effect.",
            stacklevel=2,
        )
        return
    _precision = precision
    _C._set_cuda_switch("products_tf32", precision != "highest")


def get_float32_matmul_precision():
    """What set_float32_matmul_precision was given last; "highest" at the start."""
    return _precision


def set_warn_always(b, /):
    """Whether warnings that are given once are given each time."""
    global _warns_always
    if not isinstance(b, bool):
        raise TypeError(f"set_warn_always(): argument 'b' (position 1) must be bool, not {type(b).__name__}")
    _warns_always = b


def is_warn_always_enabled():
    """What set_warn_always was given last."""
    return _warns_always


def set_default_tensor_type(t, /):
    """The default dtype as that of a tensor type, "torch.DoubleTensor": set_default_dtype is meant."""
    import wick

    name = t if isinstance(t, str) else getattr(t, "__name__", str(t))
    name = name.rpartition(".")[2]
    dtypes = {
        "FloatTensor": _C.float32,
        "DoubleTensor": _C.float64,
        "HalfTensor": _C.float16,
        "BFloat16Tensor": _C.bfloat16,
    }
    if name not in dtypes:
        raise TypeError(f"invalid type object: only floating-point types are supported as the default type, got {t}")
    wick.set_default_dtype(dtypes[name])


def set_anomaly_enabled(mode, check_nan=True):
    """See autograd.set_detect_anomaly."""
    _C._detect_anomaly(mode, check_nan)


# ---- autocast of devices that are not there ----


def _older(name, instead, value):
    """A function of long ago that gives `value`, with PyTorch's warning."""

    def function(*args):
        import warnings

        warnings.warn(
            f"torch.{name}({', '.join(map(str, args))}) is deprecated. Please use torch.{instead} instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        return value

    function.__name__ = function.__qualname__ = name
    return function


get_autocast_ipu_dtype = _older("get_autocast_ipu_dtype", "get_autocast_dtype('ipu')", _C.float16)
get_autocast_xla_dtype = _older("get_autocast_xla_dtype", "get_autocast_dtype('xla')", _C.bfloat16)
is_autocast_ipu_enabled = _older("is_autocast_ipu_enabled", "is_autocast_enabled('ipu')", False)
is_autocast_xla_enabled = _older("is_autocast_xla_enabled", "is_autocast_enabled('xla')", False)
set_autocast_ipu_dtype = _older("set_autocast_ipu_dtype", "set_autocast_dtype('ipu', dtype)", None)
set_autocast_xla_dtype = _older("set_autocast_xla_dtype", "set_autocast_dtype('xla', dtype)", None)
set_autocast_ipu_enabled = _older("set_autocast_ipu_enabled", "set_autocast_enabled('ipu', enabled)", None)
set_autocast_xla_enabled = _older("set_autocast_xla_enabled", "set_autocast_enabled('xla', enabled)", None)

_nesting = 0


def autocast_increment_nesting():
    """How many blocks of autocast there are now."""
    global _nesting
    _nesting += 1
    return _nesting


def autocast_decrement_nesting():
    global _nesting
    _nesting -= 1
    return _nesting


class classproperty:
    """A property of a class itself."""

    def __init__(self, func):
        self.func = func

    def __get__(self, instance, owner):
        return self.func(owner)


def to_dlpack(tensor):
    """The tensor's memory as a capsule, for from_dlpack of any library."""
    return tensor.__dlpack__()

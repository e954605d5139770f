"""autocast: which dtype operators compute in, for a block or for a function's calls. The layer is src/ops/autocast.c."""

import functools
import warnings

from .. import _C

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_TYPES = ("cpu", "cuda", "xpu", "mps")
_CPU_DTYPES = (_C.bfloat16, _C.float16)


def is_autocast_available(device_type):
    """Whether there is autocast for a type of device.

    >>> is_autocast_available("cpu")
    True
    """
    return device_type in _TYPES


def _checked_dtype(device_type, dtype, enabled):
    """Whether it can be on: other dtypes switch it off with a warning, as does a device that is not there."""
    if device_type == "cpu":
        if enabled and dtype not in _CPU_DTYPES:
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"CPU Autocast only supports dtype of {', '.join(map(str, _CPU_DTYPES))} currently.",
                stacklevel=3,
            )
            return False
    elif enabled and device_type == "cuda" and not _C._device_count("cuda"):
        warnings.warn(
            "User provided device_type of 'cuda', but CUDA is not available. Disabling", UserWarning, stacklevel=3
        )
        return False
    return enabled


class autocast:
    """autocast("cpu", dtype=torch.bfloat16): products in the dtype, inside a `with` or in a function's calls."""

    def __init__(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = _C.get_autocast_dtype(device_type) if dtype is None else dtype
        self._enabled = _checked_dtype(device_type, self.fast_dtype, enabled)
        self._cache_enabled = _C.is_autocast_cache_enabled() if cache_enabled is None else cache_enabled

    def __enter__(self):
        self.prev = _C.is_autocast_enabled(self.device)
        self.prev_fastdtype = _C.get_autocast_dtype(self.device)
        self.prev_cache_enabled = _C.is_autocast_cache_enabled()
        self._set(self._enabled, self.fast_dtype, self._cache_enabled)
        return self

    def __exit__(self, *exception):
        self._set(self.prev, self.prev_fastdtype, self.prev_cache_enabled)
        return False

    def _set(self, enabled, dtype, caches):
        _C.set_autocast_enabled(self.device, enabled)
        _C.set_autocast_dtype(self.device, dtype)
        _C.set_autocast_cache_enabled(caches)

    def __call__(self, func):
        @functools.wraps(func)
        def decorate_autocast(*args, **kwargs):
            with self:
                return func(*args, **kwargs)

        return decorate_autocast


def _cast(value, device_type, dtype):
    """The value with its floating tensors of that device in the dtype."""
    if isinstance(value, _C.Tensor):
        castable = value.is_floating_point() and value.device.type == device_type and value.dtype is not _C.float64
        return value.to(dtype) if castable else value
    if isinstance(value, dict):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = (_cast(item, device_type, dtype) for item in value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def custom_fwd(fwd=None, *, device_type, cast_inputs=None):
    """Decorates forward of an autograd.Function: under autocast, with its inputs converted and autocast off."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorate_fwd(*args, **kwargs):
        args[0]._dtype = _C.get_autocast_dtype(device_type)
        enabled = _C.is_autocast_enabled(device_type)
        args[0]._fwd_used_autocast = enabled and cast_inputs is None
        if not enabled or cast_inputs is None:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorate_fwd


def custom_bwd(bwd=None, *, device_type):
    """Decorates backward of an autograd.Function: under the autocast that forward had."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorate_bwd(*args, **kwargs):
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorate_bwd

"""The older names of torch.amp, a module for each device: torch.cuda.amp, torch.cpu.amp."""

import warnings

from . import GradScaler as _GradScaler
from . import autocast as _autocast

__all__ = ["older_names"]


def _deprecated(device, name):
    warnings.warn(
        f"`torch.{device}.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('{device}', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


def older_names(device):
    """The classes autocast and GradScaler of the device's module."""
    module = f"wick.{device}.amp"

    class autocast(_autocast):
        """torch.amp.autocast for this device."""

        def __init__(self, enabled=True, dtype=None, cache_enabled=True):
            _deprecated(device, "autocast")
            super().__init__(device, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    class GradScaler(_GradScaler):
        """torch.amp.GradScaler for this device."""

        def __init__(
            self, init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True
        ):
            _deprecated(device, "GradScaler")
            super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)

    for made in (autocast, GradScaler):
        made.__qualname__, made.__module__ = made.__name__, module
    return autocast, GradScaler

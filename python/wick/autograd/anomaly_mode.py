"""Anomaly detection: a NaN among the gradients that a node gives is an error, which names the node; a warning shows
the lines of the forward pass that made a node that fails.

The state belongs to the process, as in PyTorch. wick's errors name the operator without it, too.
"""

import warnings

from .. import _C

__all__ = ["detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly"]

_enabled, _check_nan = False, True


def _set(enabled, check_nan):
    global _enabled, _check_nan
    _enabled, _check_nan = bool(enabled), bool(check_nan)
    _C._detect_anomaly(_enabled, _check_nan)


def is_anomaly_enabled():
    """Whether anomaly detection was switched on."""
    return _enabled


def is_anomaly_check_nan_enabled():
    """Whether anomaly detection, when it is on, looks for NaN."""
    return _check_nan


class set_detect_anomaly:
    """Switches anomaly detection on or off, from here or for a block.

    with set_detect_anomaly(True):
        loss.backward()
    """

    def __init__(self, mode, check_nan=True):
        self.prev, self.prev_check_nan = _enabled, _check_nan
        _set(mode, check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        _set(self.prev, self.prev_check_nan)


class detect_anomaly:
    """Anomaly detection for a block: `with detect_anomaly(): loss.backward()`."""

    def __init__(self, check_nan=True):
        self.prev, self.prev_check_nan = _enabled, _check_nan
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self):
        self.prev, self.prev_check_nan = _enabled, _check_nan
        _set(True, self.check_nan)

    def __exit__(self, *exc):
        _set(self.prev, self.prev_check_nan)

"""Anomaly detection: accepted, and its state can be asked for; wick's errors name the operator without it."""

__all__ = ["detect_anomaly", "is_anomaly_enabled", "set_detect_anomaly"]

_enabled = False


def is_anomaly_enabled():
    """Whether anomaly detection was switched on."""
    return _enabled


class set_detect_anomaly:
    """Switches anomaly detection on or off, from here or for a block.

    with set_detect_anomaly(True):
        loss.backward()
    """

    def __init__(self, mode, check_nan=True):
        global _enabled
        self.prev, self.check_nan = _enabled, check_nan
        _enabled = bool(mode)

    def __enter__(self):
        pass

    def __exit__(self, *exc):
        global _enabled
        _enabled = self.prev


class detect_anomaly:
    """Anomaly detection for a block: `with detect_anomaly(): loss.backward()`."""

    def __init__(self, check_nan=True):
        self.check_nan = check_nan

    def __enter__(self):
        self._mode = set_detect_anomaly(True, self.check_nan)

    def __exit__(self, *exc):
        self._mode.__exit__(*exc)

"""torch.cpu: the CPU in the words of the other devices."""

from .._names import late as _late

__all__ = ["current_device", "current_stream", "device_count", "is_available", "set_device", "stream", "synchronize"]


class Stream:
    """Work runs where it is called: nothing waits."""

    def __init__(self, priority=-1):
        pass

    def wait_stream(self, stream):
        """Nothing to wait for."""

    def record_event(self):
        """Nothing to record."""

    def wait_event(self, event):
        """Nothing to wait for."""


class Event:
    """A point that has passed."""

    def query(self):
        """Whether it has passed: always."""
        return True

    def record(self, stream=None):
        """Nothing to record."""

    def synchronize(self):
        """Nothing to wait for."""

    def wait(self, stream=None):
        """Nothing to wait for."""


class StreamContext:
    """The current stream inside a `with`."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        pass


_stream = Stream()


def is_available():
    """Whether there is a CPU."""
    return True


is_initialized = is_available


def device_count():
    """The number of CPUs, which are one device."""
    return 1


def current_device():
    """The current one."""
    return "cpu"


def current_stream(device=None):
    """The only stream."""
    return _stream


def stream(stream):
    """A StreamContext."""
    return StreamContext(stream)


def set_device(device):
    """Nothing to choose."""


def synchronize(device=None):
    """Nothing to wait for."""


__getattr__ = _late(__name__, ("amp",))

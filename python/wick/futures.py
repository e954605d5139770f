"""Values that will be there: torch.futures. A future is completed by any thread; what is called when it is, by that one.
Tests: tests/parity/test_schema_parity.py."""

import threading
import types

__all__ = ["Future", "collect_all", "wait_all"]


class _Future:
    """The base of Future, which PyTorch shows as torch.Future."""


_Future.__module__, _Future.__name__, _Future.__qualname__ = "torch", "Future", "Future"


class Future(_Future):
    """A value of a computation that runs elsewhere.

    f = wick.futures.Future(); f.set_result(3); f.wait()    # 3
    """

    __class_getitem__ = classmethod(types.GenericAlias)  # Future[Tensor], in annotations

    def __init__(self, *, devices=None):
        self._changed, self._state, self._value, self._callbacks = threading.Condition(), None, None, []

    def done(self):
        """Whether there is a value or an error."""
        return self._state is not None

    def wait(self):
        """The value, when it is there; its error is raised."""
        with self._changed:
            self._changed.wait_for(self.done)
        return self.value()

    def value(self):
        """The value, which has to be there."""
        if self._state == "error":
            raise self._value
        if self._state is None:
            raise RuntimeError("Future is not completed yet; call wait() first")
        return self._value

    def _complete(self, state, value):
        with self._changed:
            if self._state is not None:
                raise RuntimeError("Future can only be marked completed once")
            self._state, self._value = state, value
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def set_result(self, result):
        """Completes it."""
        self._complete("value", result)

    def set_exception(self, result):
        """Completes it with an error."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete("error", result)

    def _when_done(self, callback):
        with self._changed:
            if self._state is None:
                self._callbacks.append(callback)
                return
        callback(self)

    def add_done_callback(self, callback):
        """Calls callback(self) when it is done; errors of the callback are printed."""

        def guarded(future):
            try:
                callback(future)
            except Exception as error:
                print(f"Got the following error when running the callback: {type(error).__name__}: {error}")

        self._when_done(guarded)

    def then(self, callback):
        """The future of callback(self)."""
        following = Future()

        def go_on(future):
            try:
                following.set_result(callback(future))
            except Exception as error:
                following.set_exception(error)

        self._when_done(go_on)
        return following


def collect_all(futures):
    """A future of the list of these futures, done when all are."""
    futures, whole, missing = list(futures), Future(), [len(futures)]
    lock = threading.Lock()

    def one_more(_future):
        with lock:
            missing[0] -= 1
            last = missing[0] == 0
        if last:
            whole.set_result(futures)

    for future in futures:
        future._when_done(one_more)
    if not futures:
        whole.set_result(futures)
    return whole


def wait_all(futures):
    """The values of all, in order; the first error is raised."""
    return [future.wait() for future in collect_all(futures).wait()]

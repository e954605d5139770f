"""torch.random: the seed and the state of the default generator, and blocks that leave it as it was."""

import contextlib

from . import _C
from ._C import default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from ._names import getter as _getter

__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state",
    "thread_safe_generator",
]  # fmt: skip


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
    """What is drawn inside leaves no trace: afterwards the generator goes on from where it was."""
    if not enabled:
        yield
        return
    before = _C.get_rng_state()
    try:
        yield
    finally:
        _C.set_rng_state(before)


def thread_safe_generator():
    """The generator of a DataLoader's worker thread; None elsewhere, where the default one is meant."""
    return None


__getattr__ = _getter(__name__)

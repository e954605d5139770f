"""Whether only algorithms are wanted that give the same bits each time. On the CPU all do; on CUDA sums that many threads add
to one place then go by another way (src/codegen/exact_sums.h), and attention's gradients by wick's own kernels."""

from . import _C

_mode = 0  # 0: any algorithm, 1: warn of others, 2: refuse them
_MODES = ("default", "warn", "error")


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Asks for algorithms that give the same bits each time; warn_only: of what has none there is a warning, not an error."""
    _set((1 if warn_only else 2) if mode else 0)


def _set(mode):
    global _mode
    _mode = mode
    _C._set_cuda_switch("deterministic", mode != 0)
    _C._set_cuda_switch("deterministic_warns", mode == 1)


def are_deterministic_algorithms_enabled():
    """Whether use_deterministic_algorithms(True) was called."""
    return _mode != 0


def is_deterministic_algorithms_warn_only_enabled():
    """Whether others were only to be warned of."""
    return _mode == 1


def set_deterministic_debug_mode(debug_mode):
    """The same by number or name: 0 "default", 1 "warn", 2 "error"."""
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got " + debug_mode
            )
        debug_mode = _MODES.index(debug_mode)
    if not 0 <= debug_mode <= 2:
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    _set(debug_mode)


def get_deterministic_debug_mode():
    """0, 1 or 2."""
    return _mode

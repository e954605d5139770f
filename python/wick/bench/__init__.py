"""wick.bench: wick and PyTorch, eager and compiled, side by side on this machine.

    python -m wick.bench --case softmax layer_norm            # built-in cases; --list names them
    python -m wick.bench my_step.py:make_step                 # a function that returns the function to time
    python -m wick.bench train.py --engines wick torch -- --steps 50          # whole programs

or from Python:

    from wick import bench
    rows = bench.compare_cases(["softmax"], ["wick", "wick.compile"])         # medians in seconds

Each engine measures in a process of its own and the processes take turns, so that a noisy machine is noisy for all.
This package is also loaded by processes that must not load wick: its modules import wick only where they say so.
"""

_LAZY = {
    "compare_cases": "compare",
    "compare_scripts": "scripts",
    "ENGINES": "engines",
    "Work": "cases",
    "CASES": "cases",
}


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__():
    return sorted({*globals(), *_LAZY})

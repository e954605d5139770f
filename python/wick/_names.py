"""The error for a name that is not there: says whether PyTorch has it."""

import os

_names = None


def _known():
    """{"torch.nn": {"Linear", ...}, ...}: PyTorch's public names, from a line per module in _torch_names.txt."""
    global _names
    if _names is None:
        path = os.path.join(os.path.dirname(__file__), "_torch_names.txt")
        try:
            with open(path, encoding="ascii") as file:
                _names = {module: set(names) for module, *names in (line.split() for line in file) if names}
        except OSError:
            _names = {}
    return _names


def missing(module, name, shown=None):
    """The AttributeError for `module.name`, where `module` is a wick module; `shown` is its name in a plain message."""
    as_torch = "torch" + module.removeprefix("wick")
    if name in _known().get(as_torch, ()) or f"{as_torch}.{name}" in _known():
        return AttributeError(f"{as_torch}.{name} exists in PyTorch 2.13 but wick does not have it yet")
    return AttributeError(f"module '{shown or module}' has no attribute '{name}'")

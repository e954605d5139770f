"""Reads the pickles of files that the program trusts (weights_only=False): Python's own unpickler, which runs what they say.

Names of torch are found in wick, whichever way wick was started.
"""

import importlib
import pickle


def _of_wick(module, name):
    """torch.nn.modules.linear, Linear: wick's class. `name` may have dots."""
    found = importlib.import_module("wick" + module.removeprefix("torch"))
    for part in name.split("."):
        found = getattr(found, part)
    return found


def make(file, find_global, persistent_load, pickle_module=None, **arguments):
    """An unpickler over a file object; find_global(module, name) knows what tensors are made by, or gives None."""

    class Unpickler((pickle_module or pickle).Unpickler):
        def find_class(self, module, name):
            known = find_global(module, name)
            if known is not None:
                return known
            if module == "torch" or module.startswith("torch."):
                return _of_wick(module, name)
            return super().find_class(module, name)

        def persistent_load(self, saved_id):
            return persistent_load(saved_id)

    arguments.setdefault("encoding", "utf-8")
    return Unpickler(file, **arguments)


def rebuild_with_type(function, new_type, arguments, state):
    """torch._tensor._rebuild_from_type_v2 of a trusted file: any function, any class derived from Tensor."""
    tensor = function(*arguments)
    if type(tensor) is not new_type:
        tensor = tensor.as_subclass(new_type)
    if hasattr(new_type, "__setstate__"):
        tensor.__setstate__(state)
        return tensor
    own, slots = state if isinstance(state, tuple) else (state, None)
    for name, value in (*(own or {}).items(), *(slots or {}).items()):
        setattr(tensor, name, value)
    return tensor

"""torch.utils.module_tracker: which modules run, forward or backward.

with ModuleTracker() as tracker:
    model(x)          # inside, tracker.parents has "Global", "Model", "Model.layer", ...

Tests: tests/python/test_flop_counter.py.
"""

import weakref

from .. import _C
from .._names import getter as _getter
from ..nn.modules._hooks import register_module_forward_hook, register_module_forward_pre_hook
from ._pytree import tree_leaves

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Names the modules whose forward or backward is going on. A backward begins where a module's outputs have their
    gradients, and ends where its inputs have theirs, or with the whole backward pass."""

    def __init__(self):
        self._forward, self._backward = {"Global"}, {"Global"}
        self._names, self._hooks = weakref.WeakKeyDictionary(), []

    @property
    def is_bw(self):
        """Whether a backward pass is going on."""
        return _C._in_backward()

    @property
    def parents(self):
        """The names of the modules that run now, and "Global"."""
        if self.is_bw:
            return self._backward
        self._backward.intersection_update({"Global"})
        return self._forward

    def _name_of(self, module):
        if module not in self._names:
            self._names[module] = type(module).__name__
        name = self._names[module]
        for key, child in module.named_children():
            if child not in self._names:
                self._names[child] = f"{name}.{key}"
                self._name_of(child)
        return name

    def _when_all(self, values, function, name):
        """function(name) whenever all tensors of `values` that require grad have got a gradient."""
        tensors = [t for t in tree_leaves(values) if isinstance(t, _C.Tensor) and t.requires_grad]
        got = []

        def note(grad):
            got.append(None)
            if len(got) % len(tensors) == 0:
                function(name)

        self._hooks += [t.register_hook(note) for t in tensors]

    def _enter(self, module, args):
        name = self._name_of(module)
        self.parents.add(name)
        self._when_all(args, self._backward.discard, name)

    def _leave(self, module, args, output):
        name = self._name_of(module)
        self.parents.discard(name)
        self._when_all(output, self._backward.add, name)

    def __enter__(self):
        self._hooks = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave)]
        return self

    def __exit__(self, *exception):
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


__getattr__ = _getter(__name__)

"""Weak references that compare by identity, since tensors compare by element: torch.utils.weak."""

import copy
import weakref
from collections.abc import MutableMapping

from .. import _C

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]

WeakRef = weakref.ref


class WeakIdRef(weakref.ref):
    """A weak reference that equals another to the same object, and hashes by its id."""

    __slots__ = ("_id",)

    def __init__(self, key, callback=None):
        self._id = id(key)
        super().__init__(key, callback)

    def __hash__(self):
        return self._id

    def __eq__(self, other):
        mine, theirs = self(), other()
        return mine is theirs if mine is not None and theirs is not None else self is other

    def __ne__(self, other):
        return not self == other


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary whose keys are objects, by identity, and which holds none of them."""

    def __init__(self, dict=None, ref_type=WeakIdRef):
        self.data, self.ref_type = {}, ref_type
        own = weakref.ref(self)

        def remove(reference):
            if own() is not None:
                own().data.pop(reference, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key):
        return self.data[self.ref_type(key)]

    def __setitem__(self, key, value):
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key):
        del self.data[self.ref_type(key)]

    def __contains__(self, key):
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # it takes no weak references
            return False

    def __len__(self):
        return sum(reference() is not None for reference in list(self.data))

    def __iter__(self):
        return (key for key, _ in self._pairs())

    def _pairs(self):
        """(key, value) of the keys that live."""
        found = [(reference(), value) for reference, value in list(self.data.items())]
        return [(key, value) for key, value in found if key is not None]

    def items(self):
        return iter(self._pairs())

    def keys(self):
        return iter(self)

    def values(self):
        return (value for _, value in self._pairs())

    def keyrefs(self):
        """The weak references."""
        return list(self.data)

    def __repr__(self):
        return f"<{type(self).__name__} at {id(self):#x}>"

    def copy(self):
        """Another one with the same keys and values."""
        return self._with(lambda value: value)

    __copy__ = copy

    def __deepcopy__(self, memo):
        return self._with(lambda value: copy.deepcopy(value, memo))

    def _with(self, change):
        other = WeakIdKeyDictionary(ref_type=self.ref_type)
        for key, value in self._pairs():
            other[key] = change(value)
        return other

    def __ior__(self, other):
        self.update(other)
        return self

    def __or__(self, other):
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other):
        made = WeakIdKeyDictionary(other, self.ref_type)
        made.update(self)
        return made

    def __eq__(self, other):
        if not isinstance(other, WeakIdKeyDictionary):
            return NotImplemented
        return {id(k): v for k, v in self._pairs()} == {id(k): v for k, v in other._pairs()}

    __hash__ = None


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor: ref() is it, or None."""

    def __init__(self, tensor):
        if not isinstance(tensor, _C.Tensor):
            raise AssertionError(f"expected torch.Tensor, got {type(tensor)}")
        self.ref = weakref.ref(tensor)

    def __call__(self):
        return self.ref()

"""torch.utils.swap_tensors."""

import copyreg
import weakref

from .. import _C


def swap_tensors(t1, t2):
    """Each becomes what the other was: memory, history, class and attributes; objects that hold them see the change.

    >>> a, b = wick.ones(2), wick.zeros(3)
    >>> swap_tensors(a, b)
    >>> a
    tensor([0., 0., 0.])
    """
    for name, tensor in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(tensor):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    slots = set(copyreg._slotnames(type(t1)))
    if slots != set(copyreg._slotnames(type(t2))):
        raise RuntimeError("Cannot swap t1 and t2 if they have different slots")
    t1.__class__, t2.__class__ = type(t2), type(t1)
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    for slot in slots:
        held = [t.__getattribute__(slot) if hasattr(t, slot) else None for t in (t1, t2)]
        there = [hasattr(t, slot) for t in (t1, t2)]
        for tensor, value, given in ((t1, held[1], there[1]), (t2, held[0], there[0])):
            if given:
                setattr(tensor, slot, value)
            elif hasattr(tensor, slot):
                delattr(tensor, slot)
    _C._swap_tensors(t1, t2)

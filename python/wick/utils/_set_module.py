"""set_module: which module an object says that it is of."""


def set_module(obj, mod):
    """Sets obj.__module__."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod

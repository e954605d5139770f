"""A backend's flags: values that are set one by one or, inside a `with`, together."""

import contextlib


def flags_of(module, names):
    """flags(name=value, ...): sets a module's values for the time of a `with`; what is not named is its default."""

    @contextlib.contextmanager
    def flags(*args, **kwargs):
        values = dict(names, **dict(zip(names, args, strict=False)), **kwargs)
        before = {name: getattr(module, name) for name in values}
        for name, value in values.items():
            setattr(module, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(module, name, value)

    return flags

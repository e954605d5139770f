"""device("meta") as a decorator: each call of the function inside `with device("meta"):`."""

import functools


def decorate(device, function):
    """The function whose new tensors are made on the device."""

    @functools.wraps(function)
    def inside(*args, **kwargs):
        with device:
            return function(*args, **kwargs)

    return inside

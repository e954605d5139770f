"""torch._subclasses.fake_tensor: see torch._subclasses."""

from . import FakeTensor, FakeTensorMode  # noqa: F401


def is_fake(x):
    """Whether x has a shape and no memory while a program is traced: nothing has."""
    return False

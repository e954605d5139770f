"""torch._subclasses.fake_tensor: see torch._subclasses."""

from . import FakeTensor, FakeTensorMode  # noqa: F401

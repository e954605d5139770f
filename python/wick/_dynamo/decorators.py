"""torch._dynamo.decorators: what marks functions and tensors, under the name that libraries import it by."""

from . import *  # noqa: F403

"""torch.distributed.nn.functional: see torch.distributed.nn."""

from . import *  # noqa: F403
from . import all_gather, all_reduce, broadcast, reduce_scatter  # noqa: F401

"""torch.distributed.nn: collectives with derivatives; they need process groups."""

from ..._names import getter as _getter
from .. import _needs_group

for _name in ("all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"):
    globals()[_name] = _needs_group(_name)

__getattr__ = _getter(__name__)

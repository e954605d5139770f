"""torch.distributed.checkpoint: files that several processes write, which needs process groups."""

from ..._names import cannot
from ..._names import late as _late
from ...distributed import _WHY

load, save, async_save = (
    cannot(f"torch.distributed.checkpoint.{name}", _WHY) for name in ("load", "save", "async_save")
)
__getattr__ = _late(__name__, ("hf_storage",))

"""torch.distributed.checkpoint.hf_storage: needs process groups."""

from ..._names import cannot_be_made
from ...distributed import _WHY

HuggingFaceStorageReader, HuggingFaceStorageWriter = (
    cannot_be_made(f"torch.distributed.checkpoint.hf_storage.{name}", _WHY)
    for name in ("HuggingFaceStorageReader", "HuggingFaceStorageWriter")
)

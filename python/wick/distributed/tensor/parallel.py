"""torch.distributed.tensor.parallel: layers split over processes, which need process groups."""

from ..._names import cannot, cannot_be_made
from ...distributed import _WHY

parallelize_module = cannot("torch.distributed.tensor.parallel.parallelize_module", _WHY)
ColwiseParallel, RowwiseParallel, SequenceParallel, ParallelStyle, PrepareModuleInput, PrepareModuleOutput = (
    cannot_be_made(f"torch.distributed.tensor.parallel.{name}", _WHY)
    for name in (
        "ColwiseParallel", "RowwiseParallel", "SequenceParallel", "ParallelStyle", "PrepareModuleInput",
        "PrepareModuleOutput",
    )
)  # fmt: skip

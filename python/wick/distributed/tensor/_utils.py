"""torch.distributed.tensor._utils: arithmetic about parts of distributed tensors, which there are none of."""

from ..._names import cannot

compute_local_shape_and_global_offset = cannot(
    "torch.distributed.tensor._utils.compute_local_shape_and_global_offset", "wick has no process groups yet"
)

"""torch.distributed._composable.fsdp: see torch.distributed.fsdp."""

from ...fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard  # noqa: F401

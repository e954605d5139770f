"""torch.distributed._composable.fsdp.fully_shard: see torch.distributed.fsdp."""

from ...fsdp import FSDPModule, fully_shard  # noqa: F401

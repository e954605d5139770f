"""torch.distributed.fsdp: parameters split over processes, which needs process groups."""

import enum
from dataclasses import dataclass

from ..._names import cannot, cannot_be_made
from ..._names import getter as _getter
from ...distributed import _WHY
from ...nn import Module

FullyShardedDataParallel = cannot_be_made("torch.distributed.fsdp.FullyShardedDataParallel", _WHY, (Module,))
FSDPModule = cannot_be_made("torch.distributed.fsdp.FSDPModule", _WHY)
fully_shard = cannot("torch.distributed.fsdp.fully_shard", _WHY)
register_fsdp_forward_method = cannot("torch.distributed.fsdp.register_fsdp_forward_method", _WHY)


class ShardingStrategy(enum.Enum):
    """What is split."""

    FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 = range(1, 6)


class BackwardPrefetch(enum.Enum):
    """When the next parameters are fetched."""

    BACKWARD_PRE, BACKWARD_POST = range(1, 3)


class StateDictType(enum.Enum):
    """The form of a state_dict."""

    FULL_STATE_DICT, LOCAL_STATE_DICT, SHARDED_STATE_DICT = range(1, 4)


@dataclass
class CPUOffload:
    """Whether parameters wait in the CPU's memory."""

    offload_params: bool = False


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of parameters, sums and results."""

    param_dtype: object = None
    reduce_dtype: object = None
    output_dtype: object = None
    cast_forward_inputs: bool = True


@dataclass
class MixedPrecision:
    """The dtypes of parameters, sums and buffers."""

    param_dtype: object = None
    reduce_dtype: object = None
    buffer_dtype: object = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Nothing waits elsewhere."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters wait in the CPU's memory."""

    pin_memory: bool = True


@dataclass
class FullStateDictConfig:
    """How a whole state_dict is gathered."""

    offload_to_cpu: bool = False
    rank0_only: bool = False


@dataclass
class ShardedStateDictConfig:
    """How a state_dict of parts is made."""

    offload_to_cpu: bool = False


__getattr__ = _getter(__name__)

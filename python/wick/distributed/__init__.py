"""torch.distributed without process groups: is_available() and is_initialized() are False, so that programs run as one
process. What needs a group raises PyTorch's error for that, and init_process_group says that there are none."""

import enum
import importlib

from .._names import cannot as _cannot
from .._names import cannot_be_made as _cannot_be_made
from .._names import missing as _missing

_WHY = "wick has no process groups yet"
_PARTS = (
    "_composable", "_functional_collectives", "algorithms", "checkpoint", "device_mesh", "distributed_c10d", "fsdp",
    "nn", "optim", "rpc", "tensor",
)  # fmt: skip


def is_available():
    """Whether processes can work together: False."""
    return False


is_initialized = is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = is_available
is_xccl_available = is_backend_available = is_torchelastic_launched = is_available


def _no_group():
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def _needs_group(name):
    def refuse(*args, **kwargs):
        _no_group()

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "Needs a process group: ValueError."
    return refuse


_COLLECTIVES = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast",
    "broadcast_object_list", "destroy_process_group", "gather", "gather_object", "get_backend", "get_backend_config",
    "get_global_rank", "get_group_rank", "get_node_local_rank", "get_process_group_ranks", "irecv", "isend",
    "monitored_barrier", "new_group", "new_subgroups", "recv", "recv_object_list", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list", "split_group",
)  # fmt: skip
for _name in _COLLECTIVES:
    globals()[_name] = _needs_group(_name)


def get_rank(group=None):
    """This process's number: needs a group."""
    _no_group()


def get_world_size(group=None):
    """How many processes there are: needs a group."""
    _no_group()


init_process_group = _cannot("torch.distributed.init_process_group", _WHY)
init_device_mesh = _cannot("torch.distributed.init_device_mesh", _WHY)


class ReduceOp(enum.Enum):
    """How all_reduce joins values."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


reduce_op = ReduceOp


class GroupMember:
    """The group of all processes: None."""

    WORLD = None
    NON_GROUP_MEMBER = -100


group = GroupMember


class Backend(str):
    """The names of the libraries that PyTorch's groups use."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"


class DistError(RuntimeError):
    """An error of a group."""


class DistBackendError(DistError):
    """An error of a group's library."""


class DistNetworkError(DistError):
    """An error of the network."""


class DistStoreError(DistError):
    """An error of a store."""


_CLASSES = (
    "DeviceMesh", "FileStore", "HashStore", "P2POp", "PrefixStore", "ProcessGroup", "Store", "TCPStore", "Work",
)  # fmt: skip
for _name in _CLASSES:
    globals()[_name] = _cannot_be_made(f"torch.distributed.{_name}", _WHY)


def __getattr__(name):
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    raise _missing(__name__, name)

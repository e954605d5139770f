"""Selective activation checkpointing: results of some operators are kept for the second run, which takes them.

The first run's block notes, for each operator call below the tape, whether its result is kept; in the second run the calls
come in the same order, by operator, and those that are kept are not computed. Calls that write something are always
computed again. Tests: tests/python/test_selective_checkpoint.py.
"""

import collections
import enum

from .. import _C
from .._ops import ops

__all__ = ["CheckpointPolicy", "SAC_IGNORED_OPS", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]

SAC_IGNORED_OPS = {ops.aten.detach.default}
_NOT_THE_SAME = (
    "This can happen if the operations in the checkpointed region are nondeterministic or depend on global state that changed "
    "between forward and backward."
)


class CheckpointPolicy(enum.Enum):
    """What is done with a result: kept, computed again, or kept in the CPU's memory. PREFER leaves it to compile()."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


class SelectiveCheckpointContext:
    """What a policy is told beside the operator and its arguments: op_output, its result."""

    def __init__(self, *, is_recompute, op_output=None):
        self.is_recompute, self.op_output = is_recompute, op_output


_SAVED = CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE
_OFFLOADED = CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD
_RECOMPUTED, _TAKEN = object(), object()


class _Kept:
    """A result of the first run, which nothing may write until it is taken."""

    def __init__(self, tensor, offloaded):
        self.device = tensor.device
        self.tensor = tensor.detach().cpu() if offloaded else tensor.detach()
        self.version = self.tensor._version

    def take(self, may_be_written):
        if self.tensor._version != self.version and not may_be_written:
            raise RuntimeError("Tensor cached during selective activation checkpoint has been mutated")
        return self.tensor.detach().to(self.device)


def _is_result(result):
    return isinstance(result, _C.Tensor) or (
        isinstance(result, tuple) and all(isinstance(item, _C.Tensor) for item in result)
    )


class _Watching:
    """Calls of this thread go through told() and before(), beside who watched them already."""

    def __enter__(self):
        self._count = collections.Counter()
        self._plain_before = _C._set_stance(1)  # compiled functions run as Python inside
        self._others = _C._watch_calls(None)
        others = self._others if isinstance(self._others, tuple) else (self._others, None)
        _C._watch_calls((self._both(self.told, others[0]), self._both(self.before, others[1])))
        return self

    def __exit__(self, *exception):
        _C._watch_calls(self._others)
        _C._set_stance(self._plain_before)

    @staticmethod
    def _both(own, other):
        def call(*args):
            given = own(*args)
            return other(*args) if given is None and other is not None else given

        return call

    def told(self, overload, args, result, in_backward):
        return None

    def before(self, overload, args, written):
        return None

    def _number(self, overload):
        """Which call of the operator it is."""
        self._count[overload] += 1
        return overload, self._count[overload] - 1


# Operators that PyTorch calls by others: a policy is asked about those, too.
def _names_of(overload, args):
    yield overload
    if overload is ops.aten.linear.default:
        yield ops.aten.mm.default if len(args) < 3 or args[2] is None else ops.aten.addmm.default


class _First(_Watching):
    """Around the first run."""

    def __init__(self, policy, storage):
        self.policy, self.storage, self.written = policy, storage, False

    def before(self, overload, args, written):
        self.written = bool(written)
        return None

    def told(self, overload, args, result, in_backward):
        if overload in SAC_IGNORED_OPS or in_backward:
            return None
        place, written = self._number(overload), self.written
        kept = None if written or not _is_result(result) else self._kept(overload, args, result)
        self.storage[place] = _RECOMPUTED if kept is None else kept
        return None

    def _kept(self, overload, args, result):
        context = SelectiveCheckpointContext(is_recompute=False, op_output=result)
        for name in _names_of(overload, args):
            policy = self.policy(context, name, *args)
            if isinstance(policy, bool):
                policy = CheckpointPolicy.MUST_SAVE if policy else CheckpointPolicy.PREFER_RECOMPUTE
            if policy in _SAVED or policy in _OFFLOADED:
                items = result if isinstance(result, tuple) else (result,)
                return [_Kept(item, policy in _OFFLOADED) for item in items]
        return None


class _Second(_Watching):
    """Around the second run."""

    def __init__(self, storage, may_be_written):
        self.storage, self.may_be_written = storage, may_be_written

    def before(self, overload, args, written):
        if overload in SAC_IGNORED_OPS:
            return None
        place = self._number(overload)
        if place not in self.storage:
            raise RuntimeError(
                f"{overload} invocation index {place[1]} encountered during backward but not found in storage. {_NOT_THE_SAME}"
            )
        kept = self.storage[place]
        if kept is _RECOMPUTED:
            return None
        if kept is _TAKEN:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under "
                "selective activation checkpoint."
            )
        self.storage[place] = _TAKEN
        items = tuple(item.take(self.may_be_written) for item in kept)
        return items if len(items) > 1 else items[0]


def _policy_of_list(listed):
    for op in listed:
        if not isinstance(op, _C.OpOverload):
            more = (
                "Please update the OpOverloadPacket to a specific OpOverload.For example, if you have `torch.ops.aten.mm`, change "
                "it to `torch.ops.aten.mm.default`."
                if isinstance(op, type(ops.aten.mm)) else ""
            )  # fmt: skip
            raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. {more}")
    return lambda context, op, *args, **kwargs: (
        CheckpointPolicy.MUST_SAVE if op in listed else CheckpointPolicy.PREFER_RECOMPUTE
    )


def create_selective_checkpoint_contexts(policy_fn_or_list, allow_cache_entry_mutation=False):
    """The two blocks of checkpoint(context_fn=...), for a list of OpOverloads whose results are kept, or a policy:
    policy(context, op, *args) gives a CheckpointPolicy. nn.Linear is asked about as aten.linear and as aten.addmm or aten.mm.

        keep = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
        y = checkpoint(block, x, use_reentrant=False, context_fn=keep)
    """
    if isinstance(policy_fn_or_list, list):
        policy = _policy_of_list(policy_fn_or_list)
    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage = {}
    return _First(policy, storage), _Second(storage, allow_cache_entry_mutation)

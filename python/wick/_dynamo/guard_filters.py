"""What a `guard_filter_fn` is asked about: guards in PyTorch's words."""

import dataclasses
import enum

from ..nn import Module


class GuardSource(enum.Enum):
    """Where a guarded object was found."""

    LOCAL = 0
    GLOBAL = 1
    LOCAL_UNSPECIALIZED_NN_MODULE = 12
    GLOBAL_UNSPECIALIZED_NN_MODULE = 13
    LOCAL_UNSPECIALIZED_BUILTIN_NN_MODULE = 14
    GLOBAL_UNSPECIALIZED_BUILTIN_NN_MODULE = 15

    def is_unspecialized_nn_module(self):
        """In a module, or it is one."""
        return self.value >= 12

    def is_unspecialized_builtin_nn_module(self):
        """In a module of torch.nn."""
        return self.value >= 14

    def is_local(self):
        """Found by way of a variable."""
        return self.value % 2 == 0


@dataclasses.dataclass(frozen=True)
class Guard:
    """A guard: its source, and its name with L['...'] or G['...'] in front."""

    name: str
    source: GuardSource
    guard_type: str

    def create_fn_name(self):
        """What kind of guard it is."""
        return self.guard_type


@dataclasses.dataclass(frozen=True)
class GuardFilterEntry:
    """One guard, as a `guard_filter_fn` gets it."""

    name: str
    has_value: bool
    value: object
    guard_type: str
    derived_guard_types: tuple
    is_global: bool
    orig_guard: Guard


def _source(is_global, module):
    if module is None:
        return GuardSource(int(is_global))
    own = type(module).__module__.startswith(Module.__module__.partition(".")[0] + ".nn.")
    return GuardSource((14 if own else 12) + is_global)


def _entry(name, value, kind, derived, module):
    is_global = name.startswith("G[")
    guard = Guard(name, _source(is_global, module), kind)
    variable, found, rest = name.partition("']")
    short = name if is_global or not found else variable.removeprefix("L['") + rest
    return GuardFilterEntry(short, True, value, kind, derived, is_global, guard)


def asking(filter):
    """The function that capture calls with what it knows of the guards: whether each is kept."""

    def ask(guards):
        entries = [_entry(*guard) for guard in guards]
        results = list(filter(entries))
        assert len(results) == len(entries), (
            f"filter_results length ({len(results)}) != sorted_guards length ({len(entries)})"
        )
        assert all(type(kept) is bool for kept in results), "All filter_results entries must be bool"
        return results

    return ask

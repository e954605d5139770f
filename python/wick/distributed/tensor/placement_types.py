"""Where a distributed tensor's parts are: values to compare, which nothing here acts on."""

from dataclasses import dataclass

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """What the others are."""

    def is_shard(self, dim=None):
        """Whether each process has a part, along `dim` if that is said."""
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self):
        """Whether each process has the whole."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op=None):
        """Whether the processes' values are still to be joined."""
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each process has a part along `dim`."""

    dim: int


@dataclass(frozen=True)
class _StridedShard(Shard):
    """The same, where another dim of the grid was cut before."""

    split_factor: int = 1


@dataclass(frozen=True)
class Replicate(Placement):
    """Each process has the whole."""


@dataclass(frozen=True)
class Partial(Placement):
    """The whole is all processes' values joined."""

    reduce_op: str = "sum"

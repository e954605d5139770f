"""torch.utils.flop_counter. wick counts in the profiler: torch.profiler.profile().key_averages() has each row's flops."""

from .._names import cannot
from .._names import getter as _getter


class FlopCounterMode:
    """It can be made, as summaries of models do in any case, and has counted nothing; entering it is refused."""

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        self.mods, self.depth, self.display = mods, depth, display

    def get_total_flops(self):
        """All operations that it has counted."""
        return 0

    def get_flop_counts(self):
        """{module: {operator: operations}}"""
        return {}

    __enter__ = cannot("torch.utils.flop_counter.FlopCounterMode", "torch.profiler counts floating point operations")

    def __exit__(self, *exception):
        return False


__getattr__ = _getter(__name__)

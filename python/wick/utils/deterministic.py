"""torch.utils.deterministic: settings that programs make for bits that are the same each time."""

from .._names import getter as _getter

fill_uninitialized_memory = True  # of torch.empty() where only deterministic algorithms are wanted: kept, and not done

__getattr__ = _getter(__name__)

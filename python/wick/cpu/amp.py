"""torch.cpu.amp: the older names of torch.amp, for the CPU."""

from ..amp._older_names import older_names as _older_names

__all__ = ["GradScaler", "autocast"]

autocast, GradScaler = _older_names("cpu")

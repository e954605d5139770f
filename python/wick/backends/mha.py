"""torch.backends.mha: the switch of PyTorch's fused attention layers."""

_fastpath = True


def get_fastpath_enabled():
    """What set_fastpath_enabled was given."""
    return _fastpath


def set_fastpath_enabled(value):
    """Kept and read back."""
    global _fastpath
    _fastpath = bool(value)

"""torch, served by wick: what `import torch` gives is wick's module, which takes this one's place."""

try:
    from wick import _as_torch
except ModuleNotFoundError as error:
    if error.name != "wick":
        raise
    raise ModuleNotFoundError(
        "torch is wick's stand-in here, and wick is not installed: pip install it from the folder above packaging/, "
        "or remove the stand-in (pip uninstall torch)",
        name="wick",
    ) from None

_as_torch.stand_in()

"""torch.utils.data._utils.collate: see torch.utils.data."""

from ..collate import default_collate, default_convert

__all__ = ["default_collate", "default_convert"]

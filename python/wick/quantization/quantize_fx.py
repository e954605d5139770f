"""torch.quantization.quantize_fx: the older name of torch.ao.quantization.quantize_fx."""

from ..ao.quantization.quantize_fx import convert_fx, fuse_fx, prepare_fx, prepare_qat_fx

__all__ = ["convert_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"]

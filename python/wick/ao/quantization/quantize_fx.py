"""torch.ao.quantization.quantize_fx: quantization of captured graphs, which needs quantized tensors."""

from ..._names import cannot

prepare_fx, prepare_qat_fx, convert_fx, fuse_fx = (
    cannot(f"torch.ao.quantization.quantize_fx.{name}", "wick has no quantized tensors")
    for name in ("prepare_fx", "prepare_qat_fx", "convert_fx", "fuse_fx")
)

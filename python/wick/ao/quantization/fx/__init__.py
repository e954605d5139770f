"""torch.ao.quantization.fx: the operators of quantized graphs."""

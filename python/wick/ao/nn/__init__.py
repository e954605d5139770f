"""torch.ao.nn: layers of quantized models."""

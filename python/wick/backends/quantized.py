"""torch.backends.quantized: there are no quantized engines."""

engine = "none"
supported_engines = ["none"]

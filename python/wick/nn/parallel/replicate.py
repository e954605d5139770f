"""Copies of a module for devices, which there are none of."""

from ..._names import cannot

replicate = cannot("torch.nn.parallel.replicate", "there are no devices to copy a module to")

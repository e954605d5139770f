"""torch.backends.miopen: a setting that programs make; there is no MIOpen."""

immediate = False

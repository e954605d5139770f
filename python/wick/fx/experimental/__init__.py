"""torch.fx.experimental."""

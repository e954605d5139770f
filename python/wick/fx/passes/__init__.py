"""torch.fx.passes: what passes write into Node.meta."""

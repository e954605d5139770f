"""torch.distributed.algorithms: needs process groups."""

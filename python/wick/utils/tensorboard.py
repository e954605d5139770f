"""torch.utils.tensorboard: wick has no writer; packages that write such files stand apart (tensorboardX)."""

raise ModuleNotFoundError(
    "torch.utils.tensorboard exists in PyTorch 2.13 but wick does not have it yet", name="tensorboard"
)

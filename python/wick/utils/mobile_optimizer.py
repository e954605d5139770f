"""torch.utils.mobile_optimizer: makes TorchScript smaller, which is not here."""

from .._names import cannot

optimize_for_mobile = cannot("torch.utils.mobile_optimizer.optimize_for_mobile", "wick has no TorchScript")

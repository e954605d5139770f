"""A linear layer and cross entropy as one loss. Tests: tests/parity/test_losses_parity.py."""

import dataclasses

from .. import functional as F
from .linear import Linear
from .module import Module

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


@dataclasses.dataclass(frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch cuts the batch; wick computes all logits at once, with the same result."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: object = None


class LinearCrossEntropyLoss(Module):
    """cross_entropy of linear(input): input (N, in_features), target (N) of classes or (N, C) of probabilities.

    loss = nn.LinearCrossEntropyLoss(16, 10)(wick.randn(3, 16), wick.tensor([1, 0, 4]))
    """

    __constants__ = [
        "in_features", "num_classes", "out_features", "bias", "reduction", "ignore_index", "label_smoothing", "options",
    ]  # fmt: skip

    def __init__(
        self, in_features, num_classes, *, out_features=(), bias=False, device=None, dtype=None, reduction="mean", weight=None,
        ignore_index=None, label_smoothing=0.0, options=None,
    ):  # fmt: skip
        super().__init__()
        self.in_features, self.num_classes, self.out_features = in_features, num_classes, tuple(out_features)
        self.bias, self.reduction, self.ignore_index = bias, reduction, ignore_index
        self.label_smoothing, self.options = label_smoothing, options
        self.register_buffer("weight", weight)
        count = num_classes
        for n in self.out_features:
            count *= n
        self.linear = Linear(in_features, count, bias, device, dtype)

    def forward(self, input, target):
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape(*shape, self.in_features), target,
            linear_bias=None if bias is None else bias.reshape(shape), weight=self.weight, reduction=self.reduction,
            ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, options=self.options,
        )  # fmt: skip

    def extra_repr(self):
        names = self.__constants__
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)

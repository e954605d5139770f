"""Dropout."""

from .. import functional as F
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "FeatureAlphaDropout", "Dropout1d", "Dropout2d", "Dropout3d"]


class _DropoutNd(Module):
    __constants__ = ["p", "inplace"]

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, zeroes each element with probability p and scales the others by 1 / (1 - p).

    y = nn.Dropout(0.1)(wick.randn(8, 4))    # any shape
    """

    def forward(self, input):
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Zeroes whole channels: input (N, C, L) or (C, L).

    y = nn.Dropout1d(0.2)(wick.randn(8, 4, 16))
    """

    def forward(self, input):
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Zeroes whole channels: input (N, C, H, W).

    y = nn.Dropout2d(0.2)(wick.randn(8, 4, 16, 16))
    """

    def forward(self, input):
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Zeroes whole channels: input (N, C, D, H, W).

    y = nn.Dropout3d(0.2)(wick.randn(8, 4, 4, 16, 16))
    """

    def forward(self, input):
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean and variance; goes with SELU.

    y = nn.AlphaDropout(0.1)(wick.randn(8, 4))
    """

    def forward(self, input):
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels.

    y = nn.FeatureAlphaDropout(0.1)(wick.randn(8, 4, 16))
    """

    def forward(self, input):
        return F.feature_alpha_dropout(input, self.p, self.training)

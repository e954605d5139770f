"""Instance normalisation: each channel of each sample over its spatial dimensions.

Tests: tests/python/test_norm_layers.py.
"""

from .. import functional as F
from .batchnorm import _LazyNormBase, _NormBase

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d",
           "LazyInstanceNorm3d"]  # fmt: skip

_OLD_STATISTICS = (
    "Unexpected running stats buffer(s) {names} for {klass} with track_running_stats=False. If state_dict is a checkpoint "
    "saved before 0.4.0, this may be expected because {klass} does not track running stats by default since 0.4.0. Please "
    "remove these keys from state_dict. If the running stats are actually needed, instead set track_running_stats=True in "
    "{klass} to enable them. See the documentation of {klass} for details."
)


class _InstanceNorm(_NormBase):
    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=False,
        track_running_stats=False,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _get_no_batch_dim(self):
        raise NotImplementedError

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing, unexpected, error_msgs):
        if local_metadata.get("version", None) is None and not self.track_running_stats:
            names = [n for n in ("running_mean", "running_var") if prefix + n in state_dict]
            if names:
                listed = " and ".join(f'"{name}"' for name in names)
                error_msgs.append(_OLD_STATISTICS.format(names=listed, klass=self.__class__.__name__))
                for name in names:
                    state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, error_msgs)

    def forward(self, input):
        self._check_input_dim(input)
        self._check_channels(input)
        if input.dim() == self._get_no_batch_dim():
            return self._normalised(input.unsqueeze(0)).squeeze(0)
        return self._normalised(input)

    def _check_channels(self, input):
        dim = input.dim() - self._get_no_batch_dim()
        channels = input.size(dim)
        if channels == self.num_features:
            return
        if self.affine:
            raise ValueError(
                f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got: {channels}."
            )
        import warnings

        warnings.warn(
            f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing in "
            "num_features, which is not used because affine=False",
            stacklevel=4,
        )

    def _normalised(self, input):
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )


class InstanceNorm1d(_InstanceNorm):
    """(x - mean) / sqrt(var + eps) for each channel of each sample.

    norm = nn.InstanceNorm1d(16)
    y = norm(wick.randn(8, 16, 32))    # (N, C, L) or (C, L)
    """

    def _get_no_batch_dim(self):
        return 2

    def _check_input_dim(self, input):
        if input.dim() not in (2, 3):
            raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class InstanceNorm2d(_InstanceNorm):
    """InstanceNorm1d for images.

    norm = nn.InstanceNorm2d(16)
    y = norm(wick.randn(8, 16, 32, 32))    # (N, C, H, W) or (C, H, W)
    """

    def _get_no_batch_dim(self):
        return 3

    def _check_input_dim(self, input):
        if input.dim() not in (3, 4):
            raise ValueError(f"expected 3D or 4D input (got {input.dim()}D input)")


class InstanceNorm3d(_InstanceNorm):
    """InstanceNorm1d for volumes.

    norm = nn.InstanceNorm3d(16)
    y = norm(wick.randn(8, 16, 4, 32, 32))    # (N, C, D, H, W) or (C, D, H, W)
    """

    def _get_no_batch_dim(self):
        return 4

    def _check_input_dim(self, input):
        if input.dim() not in (4, 5):
            raise ValueError(f"expected 4D or 5D input (got {input.dim()}D input)")


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm1d with the channels of its first input.

    y = nn.LazyInstanceNorm1d()(wick.randn(8, 16, 32))
    """

    cls_to_become = InstanceNorm1d
    _get_no_batch_dim = InstanceNorm1d._get_no_batch_dim
    _check_input_dim = InstanceNorm1d._check_input_dim


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm2d with the channels of its first input.

    y = nn.LazyInstanceNorm2d()(wick.randn(8, 16, 4, 4))
    """

    cls_to_become = InstanceNorm2d
    _get_no_batch_dim = InstanceNorm2d._get_no_batch_dim
    _check_input_dim = InstanceNorm2d._check_input_dim


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """InstanceNorm3d with the channels of its first input.

    y = nn.LazyInstanceNorm3d()(wick.randn(8, 16, 4, 4, 4))
    """

    cls_to_become = InstanceNorm3d
    _get_no_batch_dim = InstanceNorm3d._get_no_batch_dim
    _check_input_dim = InstanceNorm3d._check_input_dim

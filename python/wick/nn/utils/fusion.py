"""Convolutions and linear layers with the batch norm behind them taken into their weights, for evaluation."""

from copy import deepcopy

from ... import _C
from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fused(weight, bias, mean, var, eps, gain, shift, shape):
    """(weight, bias) as parameters: scaled by gain / sqrt(var + eps) along the dim that `shape` says."""
    bias = _C.zeros_like(mean) if bias is None else bias
    gain = _C.ones_like(mean) if gain is None else gain
    shift = _C.zeros_like(mean) if shift is None else shift
    scale = gain * _C.rsqrt(var + eps)
    new_weight = (weight * scale.reshape(shape)).to(dtype=weight.dtype)
    new_bias = ((bias - mean) * scale + shift).to(dtype=bias.dtype)
    return Parameter(new_weight, weight.requires_grad), Parameter(new_bias, bias.requires_grad)


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """The weights of both layers as one convolution's."""
    shape = [-1] + [1] * (conv_w.dim() - 1)
    if transpose:
        shape[0], shape[1] = 1, -1
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """The weights of both layers as one linear layer's."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def _check(layer, bn):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """A convolution that does what both layers do."""
    _check(conv, bn)
    made = deepcopy(conv)
    made.weight, made.bias = fuse_conv_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return made


def fuse_linear_bn_eval(linear, bn):
    """A linear layer that does what both layers do."""
    _check(linear, bn)
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    made = deepcopy(linear)
    made.weight, made.bias = fuse_linear_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return made

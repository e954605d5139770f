"""Layers on the second device give what they give on the CPU."""

import copy

import pytest

import wick
from wick import nn
from wick.nn.utils.rnn import pack_sequence


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.LSTM(3, 4, 2, bidirectional=True), (5, 2, 3)),
        (nn.BatchNorm2d(3), (2, 3, 4, 4)),
        (nn.Upsample(scale_factor=2, mode="bicubic"), (1, 2, 3, 3)),
        (nn.TransformerEncoderLayer(4, 2, 8, 0.0), (3, 2, 4)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_layers(layer, shape, device):
    wick.manual_seed(0)
    x, there = wick.randn(shape), copy.deepcopy(layer).to(device)
    mine, other = layer(x), there(x.to(device))
    if isinstance(mine, tuple):
        mine, other = mine[0], other[0]
    assert other.device.type == device
    if device == "cuda" and isinstance(layer, (nn.TransformerEncoderLayer, nn.Upsample)):  # ROUNDING says why
        wick.testing.assert_close(mine, other.cpu(), rtol=1e-5, atol=1e-5)
    else:
        assert wick.equal(mine, other.cpu())


def test_packed_sequences(device):
    gru, packed = nn.GRU(3, 4), pack_sequence([wick.ones(3, 3), wick.ones(2, 3)])
    expected = gru(packed)[0].data
    assert wick.equal(gru.to(device)(packed.to(device))[0].data.cpu(), expected)

"""Transformers: compiled steps, derivatives, masks. Values: tests/parity/test_transformer_parity.py."""

import copy

import pytest

import wick
from wick import nn


def numbers(*shape):
    wick.manual_seed(len(shape))
    return wick.randn(shape)


@pytest.mark.parametrize(
    "layer",
    [nn.TransformerEncoderLayer(8, 2, 16, 0.0), nn.TransformerEncoderLayer(8, 2, 16, 0.2, batch_first=True, norm_first=True)],
    ids=["plain", "dropout"],
)  # fmt: skip
def test_compiled_steps_have_eager_bits(layer):
    other = copy.deepcopy(layer)
    compiled = wick.compile(other, fullgraph=True)
    for step in range(3):
        x, again = numbers(4, 3, 8).requires_grad_(), numbers(4, 3, 8).requires_grad_()
        wick.manual_seed(step)
        a = layer(x)
        (a * a).sum().backward()
        wick.manual_seed(step)
        b = compiled(again)
        (b * b).sum().backward()
        assert wick.equal(a, b)
        assert wick.equal(x.grad, again.grad)
    for p, q in zip(layer.parameters(), other.parameters(), strict=True):
        assert wick.equal(p.grad, q.grad)


def test_compiled_transformer_with_masks():
    model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    later = model.generate_square_subsequent_mask(5)
    padding = wick.zeros(3, 4).bool()
    padding[0, -1] = True
    options = {"tgt_mask": later, "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    compiled = wick.compile(model)
    for _ in range(3):
        assert wick.equal(
            model(numbers(3, 4, 8), numbers(3, 5, 8), **options),
            compiled(numbers(3, 4, 8), numbers(3, 5, 8), **options),
        )


@pytest.mark.parametrize("need_weights", [True, False])
def test_derivatives(need_weights):
    attention = nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True).double()
    x = numbers(3, 2, 4).double().requires_grad_()
    later = wick.ones(3, 3).triu(1).bool()
    assert wick.autograd.gradcheck(lambda x: attention(x, x, x, attn_mask=later, need_weights=need_weights)[0], (x,))


def test_what_is_masked_does_not_matter():
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x, padding = numbers(2, 5, 8), wick.tensor([[False] * 4 + [True]] * 2)
    before, weights = attention(x, x, x, key_padding_mask=padding)
    assert weights[..., -1].abs().max() == 0
    x[:, -1] += 7
    after = attention(x, x, x, key_padding_mask=padding)[0]
    assert wick.equal(before[:, :-1], after[:, :-1])


def test_state_dict_of_older_files():
    attention = nn.MultiheadAttention(8, 2)
    state = dict(attention.__dict__)
    del state["_qkv_same_embed_dim"]
    other = nn.MultiheadAttention.__new__(nn.MultiheadAttention)
    other.__setstate__(state)
    assert other._qkv_same_embed_dim
    assert wick.equal(other(*[numbers(3, 2, 8)] * 3)[0], attention(*[numbers(3, 2, 8)] * 3)[0])

"""Attention and transformers against PyTorch: weights from a seed, outputs, gradients, masks, dropout, errors."""

import warnings

import pytest
from compare import same
from test_layers_parity import TOLERANCE, trained


def masks(t, name, batch, length, source, heads):
    """Masks of every kind by name: what the layer is given."""
    later = t.ones(length, source).triu(1).bool()
    padding = t.zeros(batch, source).bool()
    padding[0, -2:] = True
    return {
        "none": {},
        "bool": {"attn_mask": later},
        "float": {"attn_mask": later * -3.0},
        "heads": {"attn_mask": t.rand(batch * heads, length, source)},
        "padding": {"key_padding_mask": padding},
        "float padding": {"key_padding_mask": padding * -2.0},
        "both": {"attn_mask": later, "key_padding_mask": padding},
        "mixed": {"attn_mask": later * -1.0, "key_padding_mask": padding},
        "causal": {"attn_mask": t.zeros(length, source).masked_fill(later, float("-inf")), "is_causal": True},
    }[name]


def attended(t, options, mask, call, batch=2, length=5, source=5):
    layer = t.nn.MultiheadAttention(8, 2, **options)
    q = t.randn(batch, length, 8).requires_grad_()
    k = t.randn(batch, source, options.get("kdim", 8)).requires_grad_()
    v = t.randn(batch, source, options.get("vdim", 8)).requires_grad_()
    given = [x if options.get("batch_first") else x.transpose(0, 1) for x in (q, k, v)]
    given = [given[0]] * 3 if call.pop("alone", False) else given
    result, weights = layer(*given, **masks(t, mask, batch, length, source, 2), **call)
    (result * t.linspace(-1, 1, result.numel()).view(result.shape)).sum().backward()
    return result, weights, [x.grad for x in (q, k, v)], [p.grad for p in layer.parameters()], t.rand(1)


@pytest.mark.parametrize(
    "mask", ["none", "bool", "float", "heads", "padding", "float padding", "both", "mixed", "causal"]
)
@pytest.mark.parametrize("need_weights", [True, False])
def test_masks(mask, need_weights):
    same(lambda t: attended(t, {}, mask, {"need_weights": need_weights, "alone": True}), tolerance=TOLERANCE)


@pytest.mark.parametrize(
    ("options", "call"),
    [
        ({"bias": False}, {}),
        ({"add_bias_kv": True}, {}),
        ({"add_zero_attn": True}, {}),
        ({"add_bias_kv": True, "add_zero_attn": True}, {"need_weights": False}),
        ({"kdim": 3, "vdim": 5}, {}),
        ({"kdim": 3, "vdim": 5, "bias": False}, {"need_weights": False}),
        ({"batch_first": True}, {"average_attn_weights": False}),
        ({"dropout": 0.3}, {"need_weights": False}),
        ({"dropout": 0.3}, {}),
        ({}, {"alone": True}),
    ],
    ids=str,
)
def test_options(options, call):
    for mask in ("none", "both"):
        same(lambda t, mask=mask: attended(t, options, mask, dict(call)), tolerance=TOLERANCE)


def test_without_a_batch():
    def run(t):
        layer, x = t.nn.MultiheadAttention(8, 2), t.randn(5, 8)
        return layer(x, x, x), layer(x, x, x, attn_mask=t.rand(2, 5, 5), key_padding_mask=t.zeros(5))

    same(run, tolerance=TOLERANCE)


LAYERS = [
    "TransformerEncoderLayer(8, 2, 16)",
    "TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=True, batch_first=True, activation='gelu')",
    "TransformerEncoderLayer(8, 2, 16, bias=False)",
    "TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)",
    "TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, nn.LayerNorm(8))",
]


@pytest.mark.parametrize("make", LAYERS)
def test_encoders(make):
    same(lambda t: trained(t, eval(f"nn.{make}", {"nn": t.nn}), t.randn(3, 5, 8)), tolerance=5e-5)


@pytest.mark.parametrize(
    "make",
    [
        "TransformerDecoderLayer(8, 2, 16)",
        "TransformerDecoderLayer(8, 2, 16, norm_first=True, activation=nn.functional.silu)",
        "TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2, nn.LayerNorm(8))",
        "Transformer(8, 2, 1, 2, 16)",
        "Transformer(8, 2, 1, 1, 16, dropout=0.0, norm_first=True)",
    ],
)
def test_decoders(make):
    same(lambda t: trained(t, eval(f"nn.{make}", {"nn": t.nn}), t.randn(4, 2, 8), t.randn(5, 2, 8)), tolerance=5e-5)


def test_masks_of_transformers():
    def run(t):
        model = t.nn.Transformer(8, 2, 1, 1, 16, batch_first=True, dropout=0.0)
        src, tgt, later = t.randn(2, 4, 8), t.randn(2, 5, 8), model.generate_square_subsequent_mask(5)
        padding = t.tensor([[False, False, False, True], [False, False, False, False]])
        results = [model(src, tgt, tgt_mask=later, src_key_padding_mask=padding, memory_key_padding_mask=padding)]
        model.eval()
        with t.no_grad(), warnings.catch_warnings():  # here PyTorch leaves out what is padded, by nested tensors
            warnings.simplefilter("ignore")
            results.append(model.encoder(src, src_key_padding_mask=padding))
            results.append(model.encoder(src, mask=model.generate_square_subsequent_mask(4)))
            results.append(model(src, tgt, tgt_mask=later, tgt_is_causal=True))
        return results

    same(run, tolerance=TOLERANCE)


def forward(t, *changes, **more):
    """multi_head_attention_forward with some arguments changed, given as (position, value)."""
    q, weight, bias = t.rand(4, 2, 8), t.rand(24, 8), t.rand(24)
    arguments = [q, q, q, 8, 2, weight, bias, None, None, False, 0.0, t.rand(8, 8), None]
    for position, value in changes:
        arguments[position] = value
    return t.nn.functional.multi_head_attention_forward(*arguments, **more)


def apart(t, *sizes):
    weights = [t.rand(*size) for size in sizes]
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    return forward(t, use_separate_proj_weight=True, **dict(zip(names, weights, strict=False)))


def layer(t, *sizes, **options):
    inputs = [t.rand(*size) for size in sizes]
    return t.nn.MultiheadAttention(8, 2)(*inputs, **options)[1]


ALIKE = ((4, 2, 8),) * 3
ERRORS = {
    "key rank": lambda t: layer(t, (2, 8), (4, 2, 8), (4, 2, 8)),
    "query rank": lambda t: layer(t, (8,), (4, 2, 8), (4, 2, 8)),
    "padding rank": lambda t: layer(t, *ALIKE, key_padding_mask=t.zeros(4)),
    "padding size": lambda t: layer(t, *ALIKE, key_padding_mask=t.zeros(4, 2)),
    "padding length": lambda t: layer(t, *ALIKE, key_padding_mask=t.zeros(2, 5)),
    "mask rank": lambda t: layer(t, *ALIKE, attn_mask=t.zeros(4)),
    "mask size": lambda t: layer(t, *ALIKE, attn_mask=t.zeros(4, 3)),
    "mask heads": lambda t: layer(t, *ALIKE, attn_mask=t.zeros(3, 4, 4)),
    "mask dtype": lambda t: layer(t, *ALIKE, attn_mask=t.zeros(4, 4, dtype=t.int64)),
    "mask without batch": lambda t: layer(t, (2, 8), (2, 8), (2, 8), attn_mask=t.zeros(3, 4, 4)),
    "causal without mask": lambda t: layer(t, *ALIKE, is_causal=True),
    "features": lambda t: layer(t, (4, 2, 6), (4, 2, 8), (4, 2, 8)),
    "lengths": lambda t: layer(t, (4, 2, 8), (4, 2, 8), (3, 2, 8)),
    "heads": lambda t: t.nn.MultiheadAttention(7, 2),
    "nothing": lambda t: t.nn.MultiheadAttention(0, 2),
    "only bias_k": lambda t: forward(t, (7, t.rand(1, 1, 8))),
    "only bias_v": lambda t: forward(t, (8, t.rand(1, 1, 8))),
    "no weight": lambda t: forward(t, (5, None)),
    "heads of the function": lambda t: forward(t, (4, 3)),
    "static key": lambda t: forward(t, static_k=t.rand(3, 4, 4)),
    "static key's size": lambda t: forward(t, static_k=t.rand(4, 4, 3)),
    "static key with bias": lambda t: forward(t, (7, t.rand(1, 1, 8)), (8, t.rand(1, 1, 8)), static_k=t.rand(4, 4, 4)),
    "no query weight": lambda t: apart(t),
    "query weight": lambda t: apart(t, (7, 8), (8, 8), (8, 8)),
    "key weight": lambda t: apart(t, (8, 8), (8, 7), (8, 8)),
    "value weight": lambda t: apart(t, (8, 8), (8, 8), (7, 8)),
    "activation": lambda t: t.nn.TransformerEncoderLayer(8, 2, activation="foo"),
    "batch": lambda t: t.nn.Transformer(8, 2, 1, 1, 8)(t.rand(3, 2, 8), t.rand(4, 3, 8)),
    "features of a transformer": lambda t: t.nn.Transformer(8, 2, 1, 1, 8)(t.rand(3, 2, 7), t.rand(4, 2, 7)),
    "nested": lambda t: repr(t.nn.TransformerEncoder(t.nn.TransformerEncoderLayer(9, 3, batch_first=True), 1)),
    "nested bias": lambda t: repr(
        t.nn.TransformerEncoder(t.nn.TransformerEncoderLayer(8, 2, batch_first=True, bias=False), 1)
    ),
    "nested norm first": lambda t: repr(
        t.nn.TransformerEncoder(t.nn.TransformerEncoderLayer(8, 2, norm_first=True), 1)
    ),
    "nested activation": lambda t: repr(
        t.nn.TransformerEncoder(t.nn.TransformerEncoderLayer(8, 2, batch_first=True, activation=t.tanh), 1)
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_and_printed_forms(name):
    same(ERRORS[name])

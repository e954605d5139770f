"""Losses, distances, embedding bags and a few activations against PyTorch: values, gradients, printed forms, errors."""

import pytest
from compare import same
from test_layers_parity import TOLERANCE

CALLS = [
    "MarginRankingLoss(0.2)(x[0], y[0], sign)",
    "HingeEmbeddingLoss(0.5)(x, signs)",
    "SoftMarginLoss()(x, signs)",
    "CosineEmbeddingLoss(0.1)(x, y, sign4)",
    "CosineEmbeddingLoss()(x[0], y[0], sign4[0])",
    "PoissonNLLLoss()(x, p * 3)",
    "PoissonNLLLoss(False, True)(p, p * 3)",
    "GaussianNLLLoss()(x, y, p)",
    "GaussianNLLLoss(full=True)(x, y, p[:, :1])",
    "GaussianNLLLoss(eps=0.5)(x, y, p)",
    "MultiMarginLoss()(x, c)",
    "MultiMarginLoss(2, 0.5, w)(x, c)",
    "MultiMarginLoss()(x[0], c[0])",
    "MultiLabelMarginLoss()(x, labels)",
    "MultiLabelMarginLoss()(x[0], labels[0])",
    "MultiLabelSoftMarginLoss()(x, p)",
    "MultiLabelSoftMarginLoss(w)(x, p)",
    "TripletMarginLoss()(x, y, z)",
    "TripletMarginLoss(2.0, 1.0, swap=True)(x, y, z)",
    "TripletMarginWithDistanceLoss()(x, y, z)",
    "TripletMarginWithDistanceLoss(distance_function=t.nn.CosineSimilarity(), swap=True)(x, y, z)",
    "PairwiseDistance()(x, y)",
    "PairwiseDistance(1.0, keepdim=True)(x, y)",
    "CosineSimilarity()(x, y)",
    "Softshrink()(x)",
    "Hardshrink(0.3)(x)",
    "RReLU()(x)",
    "RReLU().eval()(x)",
    "Softmax2d()(x.view(4, 2, 3))",
]


def called(t, call):
    x, y, z, p, w = t.randn(4, 6), t.randn(4, 6), t.randn(4, 6), t.rand(4, 6) + 0.1, t.rand(6)
    signs = t.randn(4, 6).sign()
    leaves = [v.requires_grad_() for v in (x, y, z)]
    names = {
        "x": x, "y": y, "z": z, "p": p, "w": w, "signs": signs, "sign": signs[1], "sign4": signs[:, 0], "t": t, "nn": t.nn,
        "c": t.tensor([1, 0, 5, 2]), "labels": t.tensor([[3, 0, -1, 1, 2, 2], [-1] * 6, [5, 4, 3, 2, 1, 0], [0, 0, 1, -1, 0, 0]]),
    }  # fmt: skip
    return eval(f"nn.{call}", names), leaves


@pytest.mark.parametrize("call", CALLS)
def test_values_and_gradients(call):
    def run(t):
        result, leaves = called(t, call)
        (result * t.linspace(1, 2, result.numel()).view(result.shape)).sum().backward()
        layer = repr(eval("nn." + call.split(")(")[0] + ")", {"nn": t.nn, "t": t, "w": t.rand(6)}))
        return result, [v.grad for v in leaves], layer if "eval" not in call else "", t.rand(1)

    same(run, tolerance=TOLERANCE)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("call", [c for c in CALLS if "Loss" in c and "=t." not in c])  # those end at their first ")("
def test_reductions(call, reduction):
    kind, rest = call.split(")(", 1)
    comma = "" if kind.endswith("(") else ", "
    same(lambda t: called(t, f"{kind}{comma}reduction='{reduction}')({rest}")[0], tolerance=TOLERANCE)


def test_pdist():
    for p in (0.5, 1.0, 2.0, float("inf")):
        same(lambda t, p=p: t.nn.functional.pdist(t.randn(5, 3), p), tolerance=TOLERANCE)


def test_adaptive_log_softmax():
    def run(t):
        layer = t.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2, head_bias=True)
        x, target = t.randn(6, 8, requires_grad=True), t.tensor([0, 4, 5, 9, 10, 19])
        output, loss = layer(x, target)
        loss.backward()
        grads = [p.grad for p in layer.parameters()]
        return output, loss, x.grad, grads, layer.log_prob(x), layer.predict(x), repr(layer), list(layer.state_dict())

    same(run, tolerance=TOLERANCE)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    "options", [{}, {"padding_idx": 2}, {"max_norm": 0.7}, {"include_last_offset": True}, {"padding_idx": -1}], ids=str
)
def test_embedding_bag(mode, options):
    def run(t):
        bag = t.nn.EmbeddingBag(7, 3, mode=mode, **options)
        numbers, offsets = t.tensor([1, 2, 4, 5, 4, 3, 2, 6]), t.tensor([0, 2, 2, 5, 8] if options else [0, 4, 4])
        results = [bag(numbers, offsets)] if options else [bag(numbers, offsets), bag(numbers.view(2, 4))]
        if not options and mode == "sum":
            results.append(bag(numbers, offsets, t.rand(8)))
        sum((r * t.linspace(1, 2, r.numel()).view(r.shape)).sum() for r in results).backward()
        return results, bag.weight.grad, bag.weight, repr(bag), t.rand(1)

    same(run, tolerance=TOLERANCE)


X, BAG = (4, 6), (3, 2)
ERRORS = {
    "ranking": lambda t: t.nn.functional.margin_ranking_loss(t.ones(2), t.ones(2, 1), t.ones(2)),
    "cosine": lambda t: t.nn.functional.cosine_embedding_loss(t.ones(X), t.ones(X), t.ones(X)),
    "cosine ranks": lambda t: t.nn.functional.cosine_embedding_loss(t.ones(4), t.ones(X), t.ones(4)),
    "variance": lambda t: t.nn.functional.gaussian_nll_loss(t.ones(X), t.ones(X), -t.ones(X)),
    "variance's size": lambda t: t.nn.functional.gaussian_nll_loss(t.ones(X), t.ones(X), t.ones(3)),
    "gaussian reduction": lambda t: t.nn.functional.gaussian_nll_loss(t.ones(X), t.ones(X), t.ones(X), reduction="foo"),
    "margin p": lambda t: t.nn.MultiMarginLoss(3),
    "margin weight": lambda t: t.nn.MultiMarginLoss(weight=t.ones(2, 2)),
    "triplet margin": lambda t: t.nn.TripletMarginLoss(-1),
    "triplet ranks": lambda t: t.nn.functional.triplet_margin_loss(t.ones(X), t.ones(4), t.ones(X)),
    "pdist": lambda t: t.nn.functional.pdist(t.ones(3)),
    "softmax2d": lambda t: t.nn.Softmax2d()(t.ones(2, 2)),
    "bag input": lambda t: t.nn.functional.embedding_bag(t.ones(1, 1, 1, dtype=t.int64), t.ones(BAG)),
    "bag weight": lambda t: t.nn.functional.embedding_bag(t.ones(1, 1, dtype=t.int64), t.ones(3)),
    "bag offsets": lambda t: t.nn.functional.embedding_bag(t.ones(1, dtype=t.int64), t.ones(BAG)),
    "bag mode": lambda t: t.nn.functional.embedding_bag(t.ones(1, 1, dtype=t.int64), t.ones(BAG), mode="foo"),
    "bag max": lambda t: t.nn.functional.embedding_bag(
        t.ones(1, 1, dtype=t.int64), t.ones(BAG), mode="max", scale_grad_by_freq=True
    ),
    "bag weights": lambda t: t.nn.functional.embedding_bag(
        t.ones(1, 1, dtype=t.int64), t.ones(BAG), per_sample_weights=t.ones(2)
    ),
    "bag weights' mode": lambda t: t.nn.functional.embedding_bag(
        t.ones(1, 1, dtype=t.int64), t.ones(BAG), per_sample_weights=t.ones(1, 1)
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    same(ERRORS[name])


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"reduction": "sum"}, {"ignore_index": 2}, {"label_smoothing": 0.1},
                                     {"out_features": (3,)}])  # fmt: skip
def test_linear_cross_entropy(options):
    def run(t):
        t.manual_seed(0)
        layer = t.nn.LinearCrossEntropyLoss(4, 5, **options)
        x = t.randn(6, 4, requires_grad=True)
        target = t.tensor([0, 2, 4, 1, 2, 3])
        target = target.unsqueeze(1).expand(6, 3).contiguous() if "out_features" in options else target
        loss = layer(x, target)
        loss.backward()
        return loss.tolist(), x.grad.flatten().tolist(), layer.linear.weight.grad.flatten().tolist(), repr(layer)

    import torch

    import wick

    ours, theirs = run(wick), run(torch)
    assert ours[3] == theirs[3] and ours[0] == pytest.approx(theirs[0], rel=1e-5)
    for a, b in zip(ours[1:3], theirs[1:3], strict=True):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-6)

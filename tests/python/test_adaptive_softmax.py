"""nn.AdaptiveLogSoftmaxWithLoss: one distribution over all classes, computed in parts."""

import pytest

import wick
from wick import nn


@pytest.fixture
def layer():
    wick.manual_seed(0)
    return nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0, head_bias=True)


def test_all_classes_together_have_probability_one(layer):
    assert wick.allclose(layer.log_prob(wick.randn(6, 8)).exp().sum(1), wick.ones(6))


def test_targets_have_the_log_probability_that_all_classes_say(layer):
    x, target = wick.randn(6, 8), wick.tensor([0, 4, 5, 9, 10, 19])
    output, loss = layer(x, target)
    assert wick.allclose(output, layer.log_prob(x).gather(1, target.unsqueeze(1)).squeeze(1))
    assert wick.allclose(loss, -output.mean())
    assert wick.allclose(layer(x[3], target[3]).output, output[3])


def test_the_likeliest_class_is_predicted(layer):
    x = 4 * wick.randn(50, 8)
    assert layer.predict(x).tolist() == layer.log_prob(x).argmax(1).tolist()


def test_gradients_are_those_of_the_whole_distribution(layer):
    x, target = wick.randn(6, 8, requires_grad=True), wick.tensor([0, 4, 5, 9, 10, 19])
    layer(x, target).loss.backward()
    parts, x.grad = x.grad, None
    nn.functional.nll_loss(layer.log_prob(x), target).backward()
    assert wick.allclose(parts, x.grad, atol=1e-6)


def test_wrong_arguments(layer):
    for cutoffs, text in (([], "larger than 0"), ([3, 2], "unique, positive"), ([3, 20], "n_classes-1")):
        with pytest.raises(ValueError, match=text):
            nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs)
    for target, text in (([1, 20], r"should be in \[0, 19\]"), ([[1], [2]], "multi-target"), ([1], "batch dimension")):
        with pytest.raises(RuntimeError, match=text):
            layer(wick.zeros(2, 8), wick.tensor(target))

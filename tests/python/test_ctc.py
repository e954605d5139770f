"""torch.ctc_loss, F.ctc_loss, nn.CTCLoss: the loss against a sum over all ways, its derivative, what is refused."""

import itertools
import math

import pytest

import wick as torch
import wick.nn.functional as F
from wick import nn


def collapse(way):
    """Repetitions become one, blanks (0) go."""
    return [k for k, _ in itertools.groupby(way) if k]


def sum_over_all_ways(log_probs, target):
    """-log of the sum of the probabilities of all sequences that collapse to the target: log_probs (T, C)."""
    steps, classes = log_probs.shape
    ways = [way for way in itertools.product(range(classes), repeat=steps) if collapse(way) == target]
    sums = [sum(log_probs[t, k] for t, k in enumerate(way)) for way in ways]
    return -torch.logsumexp(torch.stack(sums), 0) if sums else torch.tensor(math.inf, dtype=log_probs.dtype)


TARGETS = [[1, 2], [2, 2], [1], [], [1, 2, 1]]


@pytest.fixture
def log_probs():
    torch.manual_seed(0)
    return torch.randn(5, 5, 3, dtype=torch.float64).log_softmax(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("joined", [False, True])
def test_the_sum_over_all_ways(log_probs, joined, dtype):
    inputs, outputs = [5, 4, 3, 2, 5], [len(target) for target in TARGETS]
    padded = torch.tensor([target + [0] * (3 - len(target)) for target in TARGETS])
    targets = torch.tensor(sum(TARGETS, [])) if joined else padded
    wanted = torch.stack([sum_over_all_ways(log_probs[:n, b], TARGETS[b]) for b, n in enumerate(inputs)])
    losses = F.ctc_loss(log_probs.to(dtype), targets, inputs, outputs, reduction="none")
    torch.testing.assert_close(losses, wanted.to(dtype))
    counts = torch.tensor([max(1, n) for n in outputs])
    loss = F.ctc_loss(log_probs.to(dtype), targets, torch.tensor(inputs), torch.tensor(outputs, dtype=torch.int32))
    torch.testing.assert_close(loss, (wanted / counts).mean().to(dtype))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_derivative(log_probs, reduction):
    """Of logits: that of log_probs takes them for normalised, as PyTorch's does."""
    targets = torch.tensor([[1, 2], [2, 2], [1, 0], [0, 0], [2, 1]])

    def loss(logits):
        losses = F.ctc_loss(logits.log_softmax(2), targets, (5, 4, 3, 2, 5), (2, 2, 1, 0, 2), 0, reduction)
        return losses.sum()

    logits = torch.randn(5, 5, 3, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(loss(logits), logits)
    with torch.no_grad():
        for place in ((0, 0, 1), (4, 0, 2), (3, 1, 0), (2, 2, 1), (3, 2, 1), (1, 3, 0)):
            step = torch.zeros_like(logits)
            step[place] = 1e-6
            wanted = (loss(logits + step) - loss(logits - step)) / 2e-6
            assert found[place].item() == pytest.approx(wanted.item(), abs=1e-7)


def test_impossible_targets():
    log_probs = torch.zeros(2, 2, 3).log_softmax(2).requires_grad_()
    targets = torch.tensor([[1, 1], [1, 2]])  # 1, 1 needs a blank between
    assert F.ctc_loss(log_probs, targets, [2, 2], [2, 2], reduction="none")[0] == math.inf
    loss = nn.CTCLoss(zero_infinity=True, reduction="sum")(log_probs, targets, [2, 2], [2, 2])
    assert loss.item() == pytest.approx(2 * math.log(3), rel=1e-6)
    loss.backward()
    assert not log_probs.grad[:, 0].any() and log_probs.grad[:, 1].any()


def test_one_sequence_and_another_blank(log_probs):
    loss = torch.ctc_loss(log_probs[:, 0], torch.tensor([1, 2]), torch.tensor(5), torch.tensor(2))
    assert loss.shape == () and loss.item() == pytest.approx(sum_over_all_ways(log_probs[:, 0], [1, 2]).item() / 2)
    moved = F.ctc_loss(log_probs.roll(-1, 2), torch.tensor([[0, 1]] * 5), [5] * 5, [2] * 5, blank=2)
    torch.testing.assert_close(moved, F.ctc_loss(log_probs, torch.tensor([[1, 2]] * 5), [5] * 5, [2] * 5))


def test_compiled(log_probs):
    def step(logits):
        loss = F.ctc_loss(logits.log_softmax(2), torch.ones(5, 2, dtype=torch.int64), [5] * 5, [2] * 5)
        loss.backward()
        return loss

    eager, compiled = (log_probs.clone().requires_grad_() for _ in range(2))
    assert torch.equal(step(eager), torch.compile(step)(compiled)) and torch.equal(eager.grad, compiled.grad)


LOG_PROBS, TARGET = torch.zeros(5, 2, 4), torch.ones(2, 2, dtype=torch.int64)


@pytest.mark.parametrize(
    "arguments,text",
    [
        ((LOG_PROBS, TARGET, [6, 5], [2, 2]), "Expected input_lengths to have value at most 5, but got value 6"),
        ((LOG_PROBS, TARGET, [-1, 5], [2, 2]), "Expected input_lengths to have value at least 0, but got value -1"),
        ((LOG_PROBS, TARGET, [5], [2, 2]), "input_lengths must be of size batch_size"),
        ((LOG_PROBS, TARGET, [5, 5], [2]), "target_lengths must be of size batch_size"),
        ((LOG_PROBS, TARGET, [5, 5], [3, 2]), "Expected tensor to have size at least 3 at dimension 1, but got size 2"),
        ((LOG_PROBS, TARGET.flatten(), [5, 5], [2, 1]), "Expected tensor to have size 3 at dimension 0"),
        ((LOG_PROBS, TARGET, [5, 5], [2, 2], 4), "blank must be in label range"),
        ((LOG_PROBS, TARGET, torch.ones(2), torch.ones(2)), "input_lengths must be integral"),
        ((LOG_PROBS[:0], TARGET, [0, 0], [2, 2]), "log_probs tensor must not be empty"),
        ((LOG_PROBS, TARGET[None], [5, 5], [2, 2]), "Expected 1 to 2 dimensions, but got 3-dimensional tensor"),
        ((LOG_PROBS.half(), TARGET, [5, 5], [2, 2]), "\"ctc_loss_cpu\" not implemented for 'Half'"),
    ],
)
def test_what_is_refused(arguments, text):
    with pytest.raises((RuntimeError, NotImplementedError)) as error:
        F.ctc_loss(*arguments)
    assert text in str(error.value)


def test_targets_out_of_range():
    with pytest.raises((RuntimeError, IndexError), match="target 9 is out of bounds"):
        F.ctc_loss(LOG_PROBS, torch.full((2, 2), 9), [5, 5], [2, 2])

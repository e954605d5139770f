"""A softmax over many classes, of which few are frequent (Grave, Joulin, Cisse, Grangier, Jegou: Efficient softmax
approximation for GPUs, 2017). Tests: tests/python/test_adaptive_softmax.py, tests/parity/test_losses_parity.py.
"""

from collections import namedtuple

from ... import _C
from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of classes that are sorted by how frequent they are, and the mean of what is lost.

    The head tells the classes below cutoffs[0] and the clusters of all others apart; each cluster has a product through
    fewer features, in_features / div_value ** (its number + 1), and is computed for the rows that are in it.

    loss = nn.AdaptiveLogSoftmaxWithLoss(64, 1000, cutoffs=[10, 100])(wick.randn(8, 64), wick.randint(1000, (8,))).loss
    """

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(set(cutoffs)) or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1 or any(
            int(c) != c for c in cutoffs
        ):  # fmt: skip
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value "
                "is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        made = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList(self._cluster(k, made) for k in range(self.n_clusters))

    def _cluster(self, k, made):
        features, classes = int(self.in_features // self.div_value ** (k + 1)), self.cutoffs[k + 1] - self.cutoffs[k]
        return Sequential(
            Linear(self.in_features, features, bias=False, **made), Linear(features, classes, bias=False, **made)
        )

    def reset_parameters(self):
        """New random weights."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input, target):
        """(N, in_features), (N) or without N -> the log-probability of each target, and the mean of what is lost."""
        if target.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if (target.dim() == 1 and input.size(0) != target.size(0)) or (target.dim() == 1) != (input.dim() == 2):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        rows, classes = (input, target) if target.dim() else (input.unsqueeze(0), target.unsqueeze(0))
        output = self._log_prob_of(rows, classes)
        output = output if target.dim() else output.squeeze(0)
        return _ASMoutput(output, (-output).mean())

    def _log_prob_of(self, input, target):
        """(N, in_features), (N) -> (N)"""
        if target.numel() and not (0 <= int(target.min()) and int(target.max()) < self.n_classes):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{target.min().item()}, "
                f"{target.max().item()}] were found. "
            )
        place, within = target, []  # of the head; what each cluster adds
        for k, cluster in enumerate(self.tail):
            low, high = self.cutoffs[k], self.cutoffs[k + 1]
            mine = (target >= low) & (target < high)
            place = _C.where(mine, self.shortlist_size + k, place)
            rows = mine.nonzero().squeeze(1)
            if rows.numel():
                found = F.log_softmax(cluster(input.index_select(0, rows)), dim=1)
                within.append((rows, found.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)))
        output = F.log_softmax(self.head(input), dim=1).gather(1, place.unsqueeze(1)).squeeze(1)
        for rows, found in within:
            output = output.index_add(0, rows, found)
        return output

    def log_prob(self, input):
        """(N, in_features) -> the log-probabilities of all classes (N, n_classes)"""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, : self.shortlist_size]]
        for k, cluster in enumerate(self.tail):
            of_cluster = head[:, self.shortlist_size + k].unsqueeze(1)
            parts.append(F.log_softmax(cluster(input), dim=1) + of_cluster)
        return _C.cat(parts, 1)

    def predict(self, input):
        """(N, in_features) -> the likeliest class of each row (N). Where the head has a class of its own for the likeliest,
        no cluster has a likelier one."""
        best = self.head(input).argmax(1)
        rows = (best >= self.shortlist_size).nonzero().squeeze(1)
        return best.index_copy(0, rows, self.log_prob(input[rows]).argmax(1)) if rows.numel() else best

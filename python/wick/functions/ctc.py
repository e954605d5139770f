"""torch.ctc_loss: lengths as tensors or as numbers. Tests: tests/python/test_ctc.py."""

import wick

from .. import _C


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=1, zero_infinity=False):
    """-log of the probability that log_probs (T, N, C) gives the sequences targets, (N, S) or one behind the other.

    input_lengths, target_lengths: (N) each, a tensor or numbers. reduction: 0 none, 1 mean, 2 sum.
    """
    if _C._overrides and _C._has_torch_function_variadic(log_probs, targets):
        return _C._dispatch_torch_function(
            ctc_loss,
            (log_probs, targets),
            (log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity),
            {},
        )
    lengths = [
        of if isinstance(of, wick.Tensor) else wick.tensor(of, dtype=wick.int64)
        for of in (input_lengths, target_lengths)
    ]
    return _C.ctc_loss(log_probs, targets, *lengths, blank, reduction, zero_infinity)

"""What is asked of tensors whose conjugates and negatives are computed at once.

Tests: tests/parity/test_functional_parity.py.
"""


def is_conj(input):
    """False: conjugates are computed at once."""
    return input.is_conj()


def is_neg(input):
    """False: negatives are computed at once."""
    return input.is_neg()


def resolve_conj(input):
    """The tensor, which is no view of a conjugate."""
    return input.resolve_conj()


def resolve_neg(input):
    """The tensor, which is no view of a negative."""
    return input.resolve_neg()

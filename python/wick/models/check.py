"""Judges what the engines gave for a model: whether wick's losses and gradients are PyTorch's.

    verdict = judge({"wick": {...}, "torch": {...}, "torch.float64": {...}, "wick.float64": {...}, "wick.compile": {...}})
    verdict.word, verdict.reason

Two right answers in float32 may differ by rounding, and a training amplifies that: an activation that changes sides at a
ReLU's kink, a batch normalisation of few elements, an optimizer that divides a tiny gradient by itself. How far is what
PyTorch's own float32 and float64 differ by. Where float32 is farther off, float64 decides, where rounding is 1e-16.
"""

from dataclasses import dataclass

FLOAT32 = 1e-5  # relative, at least this is allowed
GAPS = 3  # times PyTorch's own difference between float32 and float64
WIDEST = 1e-3  # what float32 may differ by before float64 has to decide
FLOAT64 = 1e-6  # relative; libraries compute parts of a float64 model in float32
# Of PyTorch's own difference, what float64 may differ by. The weights of a float64 model are made in float32, some by erfinv, where
# PyTorch's library is off by an ulp in 3 of 10,000 elements: as little beside all roundings of a training as one of them.
SHARE_OF_WEIGHTS = 0.01

EQUAL, ROUNDING, UNCHECKED, DIFFERS, FAILS, NOT_HERE = "equal", "rounding", "unchecked", "differs", "fails", "not here"
GOOD = (EQUAL, ROUNDING, UNCHECKED, NOT_HERE)


@dataclass(frozen=True)
class Verdict:
    """word: one of those above. losses, norms: the largest relative differences to PyTorch's, or None."""

    word: str
    reason: str = ""
    losses: float = None
    norms: float = None


def differences(ours, theirs):
    """Relative differences of two lists of numbers; NaN equals NaN."""
    return [_difference(x, y) for x, y in zip(ours, theirs, strict=True)]


def _difference(x, y):
    if x == y or (x != x and y != y):
        return 0.0
    found = abs(x - y) / max(abs(y), 1e-30)
    return found if found == found else float("inf")


def figures(result):
    """Losses and gradient norms as one list."""
    return result["losses"] + result.get("norms", [])


def tolerances(torch, double):
    """What each figure may differ by: from PyTorch in float32 and, unless None or an error, in float64."""
    if not _is_there(double):
        return [FLOAT32] * len(figures(torch))
    gap = max(differences(figures(torch), figures(double)))
    return [min(max(FLOAT32, GAPS * gap), WIDEST)] * len(figures(torch))


def _is_there(result):
    return result is not None and "error" not in result


def agrees_in_float32(wick, torch, double):
    """Whether each figure is within its tolerance."""
    found = differences(figures(wick), figures(torch))
    return all(x <= most for x, most in zip(found, tolerances(torch, double), strict=True))


def agrees_in_float64(wick, torch, single):
    """Whether float64 says that both compute the same. False when one of them cannot. single: PyTorch's float32."""
    if not _is_there(wick) or not _is_there(torch):
        return False
    share = min(SHARE_OF_WEIGHTS * _worst(single, torch), WIDEST)
    return _worst(wick, torch) <= max(FLOAT64, share)


def judge(results, same_compiled=True):
    """The Verdict on a model. results: {engine, or engine.float64: answer of the worker}, those that there are.

    same_compiled: whether wick's compiled figures have to be its eager ones in every bit, or only about them.
    """
    wick, torch, compiled = (results.get(name) for name in ("wick", "torch", "wick.compile"))
    if torch is not None and "error" in torch:
        return Verdict(NOT_HERE, f"under PyTorch: {first_line(torch['error'])}")
    for name, result in (("", wick), ("compiled: ", compiled)):
        if result is not None and "error" in result:
            return Verdict(FAILS, f"{name}{first_line(result['error'])} ({result.get('where', '')})")
    if wick and compiled and _worst(compiled, wick) > (0 if same_compiled else FLOAT32):
        return Verdict(DIFFERS, f"compiled: {_worst(compiled, wick):.1e} relative from eager", *_both(wick, torch))
    ours = wick or compiled
    if ours is None or torch is None:
        return Verdict(UNCHECKED)
    return _compared(ours, torch, results)


def _compared(ours, torch, results):
    losses, norms = _both(ours, torch)
    if ours["parameters"] != torch["parameters"]:
        return Verdict(DIFFERS, f"{ours['parameters']} parameters, PyTorch has {torch['parameters']}", losses, norms)
    if agrees_in_float32(ours, torch, results.get("torch.float64")):
        return Verdict(EQUAL, "", losses, norms)
    if agrees_in_float64(results.get("wick.float64"), results.get("torch.float64"), torch):
        return Verdict(ROUNDING, "float64 agrees", losses, norms)
    return Verdict(DIFFERS, f"{_worst(ours, torch):.1e} relative from PyTorch", losses, norms)


def _worst(ours, theirs):
    return max(differences(figures(ours), figures(theirs)))


def _both(ours, torch):
    if not _is_there(torch):
        return None, None
    norms = differences(ours.get("norms", []), torch.get("norms", []))
    return max(differences(ours["losses"], torch["losses"])), max(norms) if norms else None


def first_line(text):
    """The first line of a message, at most 200 characters of it."""
    return text.strip().split("\n")[0][:200]

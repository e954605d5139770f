"""MaskedTensor against PyTorch: what calls print, gradients, and errors."""

import warnings

import pytest
from compare import torch

import wick

pytest.importorskip("torch.masked.maskedtensor")
CALLS = (
    "x + x; x * 2; 1 + x; x / x; x == x; x < 2; x.exp(); -x; x**2; x.clamp(1, 2); T.maximum(x, x); T.where(m, x, x); "
    "x.sum(); x.sum(0); x.mean(1); x.prod(); x.amin(1, keepdim=True); x.amax(); x.argmin(1); x.argmax(1); x.all(1); x.var(1); x.std(); "
    "x.t(); x.view(3, 2); x[0]; x[:, 1:]; x[m]; x.unsqueeze(0); T.cat([x, x]); T.stack([x, x]); x.split(1); x.expand(2, 3); "
    "x.softmax(1); x.double(); x.to_tensor(-1); x.get_mask(); x.isnan(); x.clone(); T.ones_like(x); x.narrow(0, 0, 1); "
    "x.sigmoid(); x.shape; x[0, 0].item(); x.clone().exp_(); x.clone().add_(1); T.masked.masked_tensor(d[0], m[0]); "
    "T.masked.masked_tensor(d[0, 0], ~m[0, 0]); T.masked.masked_tensor(T.arange(3), m[0]); T.atan2(x, x)"
).split("; ")
ERRORS = (
    "T.masked.masked_tensor([1], m); T.masked.masked_tensor(d, m[0]); T.masked.masked_tensor(d, m[:1]); "
    "T.masked.masked_tensor(d, m.float()); T.masked.masked_tensor(d.bfloat16(), m); T.add(x, x, alpha=2); "
    "x + T.masked.masked_tensor(d, ~m); x.tolist(); x.numpy()"
).split("; ")
GRADIENTS = "a.sum(); (a * a).sum(); a.mean(1).sum(); a.amax(); (a + 1).prod(); a.exp().sum(0).sum()".split("; ")


def names(library):
    data = library.arange(6.0).reshape(2, 3)
    mask = library.tensor([[True, False, True], [False, False, True]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x, a = (
            library.masked.masked_tensor(data, mask),
            library.masked.masked_tensor(data.clone(), mask, requires_grad=True),
        )
    return {"T": library, "d": data, "m": mask, "x": x, "a": a}


def both(expression):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [eval(expression, names(library)) for library in (torch, wick)]


@pytest.mark.parametrize("expression", CALLS)
def test_calls(expression):
    theirs, ours = both(expression)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("expression", ERRORS)
def test_errors(expression):
    found = []
    for library in (torch, wick):
        with pytest.raises(Exception) as caught:  # noqa: B017
            eval(expression, names(library))
        found.append((type(caught.value).__name__, str(caught.value)))
    if "tolist" in expression or "numpy" in expression:
        assert found[0][0] == found[1][0]
    else:
        assert found[0] == found[1]


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradients(expression):
    printed = []
    for library in (torch, wick):
        own = names(library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(expression, own).backward()
            printed.append(repr(own["a"].grad))
    assert printed[0] == printed[1]

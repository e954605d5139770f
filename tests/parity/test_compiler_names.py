"""torch.compiler has every name that PyTorch's has, with its arguments."""

import inspect

import pytest

torch = pytest.importorskip("torch")

import wick  # noqa: E402


def test_every_name_is_there():
    missing = [name for name in torch.compiler.__all__ if not hasattr(wick.compiler, name)]
    assert missing == [] and set(torch.compiler.__all__) <= set(wick.compiler.__all__)
    settings = [name for name in torch.compiler.config.__all__ if not hasattr(wick.compiler.config, name)]
    assert settings == []


@pytest.mark.parametrize("name", [n for n in torch.compiler.__all__ if inspect.isfunction(getattr(torch.compiler, n))])
def test_arguments(name):
    if name == "compile":
        return  # takes what torch.compile does
    theirs, ours = (inspect.signature(getattr(module.compiler, name)).parameters for module in (torch, wick))
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = {p: q.default for p, q in theirs.items() if q.kind not in kinds}
    have = {p: q.default for p, q in ours.items() if q.kind not in kinds}
    assert wanted.items() <= have.items()

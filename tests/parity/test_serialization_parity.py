"""Files: PyTorch reads what wick saves, and wick reads what PyTorch saves."""

from collections import OrderedDict

import pytest
from compare import plain, torch

import wick


def content(t):
    base = t.arange(12.0).view(3, 4)
    return {
        "base": base,
        "row": base[1],
        "transposed": base.t(),
        "dtypes": [
            t.ones(3).to(getattr(t, n)) for n in ("float64", "float16", "bfloat16", "int64", "int8", "uint8", "bool")
        ],
        "empty": t.empty(0, 3),
        "number": t.tensor(3),
        "parameter": t.nn.Parameter(t.ones(2)),
        "dtype": t.float16,
        "device": t.device("cpu"),
        "size": base.shape,
        "plain": OrderedDict(a=[1, (2, None, True)], b=2**70, c=b"\0\xff", d={1}, e=1.5, f="ä"),
    }


@pytest.mark.parametrize("mmap", [None, True])
@pytest.mark.parametrize(("saver", "loader"), [(torch, wick), (wick, torch), (wick, wick)])
def test_round_trip(tmp_path, saver, loader, mmap):
    saver.save(content(saver), tmp_path / "x.pt")
    back = loader.load(tmp_path / "x.pt", mmap=mmap)
    assert plain(back) == plain(content(loader))
    assert isinstance(back["parameter"], loader.nn.Parameter)
    back["base"][1, 0] = 99
    assert back["row"][0] == 99


@pytest.mark.parametrize(("saver", "loader"), [(torch, wick), (wick, torch)])
def test_models_and_optimizers(tmp_path, saver, loader):
    def make(t):
        model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.LayerNorm(4), t.nn.Embedding(2, 2))
        optimizer = t.optim.AdamW(model.parameters())
        model[1](model[0](t.ones(1, 3))).sum().backward()
        optimizer.step()
        return model, optimizer

    model, optimizer = make(saver)
    saver.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "x.pt")
    other, other_optimizer = make(loader)
    state = loader.load(tmp_path / "x.pt", weights_only=True)
    assert str(other.load_state_dict(state["model"])) == "<All keys matched successfully>"
    other_optimizer.load_state_dict(state["optimizer"])
    assert plain(other.state_dict()) == plain(model.state_dict())
    assert plain(other_optimizer.state_dict()) == plain(optimizer.state_dict())


def test_whole_module_saved_by_wick(tmp_path):
    model = wick.nn.Sequential(wick.nn.Linear(3, 4), wick.nn.ReLU())
    wick.save(model, tmp_path / "x.pt")
    back = torch.load(tmp_path / "x.pt", weights_only=False)
    assert isinstance(back, torch.nn.Sequential) and plain(back.state_dict()) == plain(model.state_dict())

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


@pytest.mark.parametrize(("saver", "loader"), [(torch, wick), (wick, torch)])
@pytest.mark.parametrize("weights_only", [True, False])
def test_the_older_format(tmp_path, saver, loader, weights_only):
    x = saver.arange(6.0)
    state = {"x": x, "view": x[2:].view(2, 2).t(), "b": saver.ones(2).bfloat16()}
    saver.save(state, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    back = loader.load(tmp_path / "x.pt", weights_only=weights_only)
    assert plain({k: v.float() for k, v in back.items()}) == plain({k: v.float() for k, v in state.items()})
    back["x"].zero_()
    assert back["view"].sum().item() == 0


def test_whole_module_saved_by_torch(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.LSTM(4, 2))
    for zipped in (True, False):
        torch.save(model, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
        back = wick.load(tmp_path / "x.pt", weights_only=False)
        assert isinstance(back, wick.nn.Sequential) and plain(back.state_dict()) == plain(model.state_dict())
        assert back(wick.ones(2, 3))[0].shape == (2, 2)


def test_attributes_and_meta_tensors(tmp_path):
    for saver, loader in ((torch, wick), (wick, torch)):
        x, meta = saver.ones(2), saver.ones(2, 3, device="meta").t()
        x.note = 5
        saver.save([x, meta, saver.nn.Parameter(meta)], tmp_path / "x.pt")
        a, b, c = loader.load(tmp_path / "x.pt")
        assert a.note == 5 and b.device.type == c.device.type == "meta" and b.stride() == c.stride() == (1, 3)


def test_what_a_file_names_that_is_not_allowed(tmp_path):
    import collections
    import decimal

    import torch

    import wick

    file = tmp_path / "x.pt"
    torch.save({"a": torch.ones(2), "b": decimal.Decimal(1), "c": collections.OrderedDict()}, file)
    found = [t.serialization.get_unsafe_globals_in_checkpoint(file) for t in (wick, torch)]
    assert found[0] == found[1] == ["decimal.Decimal"]

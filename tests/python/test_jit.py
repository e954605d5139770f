"""torch.jit: what script() and trace() give, and their files: the same bits again, clear errors for what is no such file."""

import copy
import io
import json
import random

import pytest

import wick
from wick import _C, jit, nn, serialization
from wick.serialization.archive import FileSource, Reader, Writer


class Model(nn.Module):
    """State of every kind: parameters, statistics, a buffer that is not saved, a tied weight, a plain tensor, dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.second = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)
        self.third.weight = self.second.weight
        self.register_buffer("positions", wick.arange(100.0), persistent=False)
        self.plain, self.version, self.names = wick.full((8,), 3.0), 7, ["a", "b"]

    def forward(self, x, mask=None, scale: float = 2.0):
        y = self.third(self.second(self.drop(self.norm(self.first(x))))) * scale * self.plain + self.positions[:8]
        if mask is not None:
            y = y * mask
        return {"y": y.view(x.shape[0], 2, -1), "rest": [x, None, 3.0, (y.sum(),)]}


@pytest.fixture
def model():
    wick.manual_seed(0)
    return Model().eval()


def made(model, how, *args):
    if how == "trace":
        return jit.trace(model, args)
    scripted = jit.script(model)
    scripted(*args)
    return scripted


def stored(scripted, **options):
    file = io.BytesIO()
    jit.save(scripted, file, **options)
    file.seek(0)
    return file


def through_file(scripted):
    return jit.load(stored(scripted))


both = pytest.mark.parametrize("how", ["trace", "script"])
X = wick.linspace(-1, 1, 12).view(3, 4)


@both
def test_a_loaded_module_computes_the_same_bits(model, how):
    loaded = through_file(made(model, how, X))
    for x in (X, X[:1], wick.cat([X, X]), X.flip(0)):
        expected, result = model(x), loaded(x)
        assert wick.equal(result["y"], expected["y"])
        assert result["rest"][0] is x and result["rest"][1:3] == [None, 3.0]
        assert wick.equal(result["rest"][3][0], expected["rest"][3][0])


@both
def test_parameters_buffers_and_attributes_come_back(model, how):
    loaded = through_file(made(model, how, X))
    assert [(n, p.requires_grad) for n, p in loaded.named_parameters()] == [
        (n, p.requires_grad) for n, p in model.named_parameters()
    ]
    state, expected = loaded.state_dict(), model.state_dict()
    assert list(state) == list(expected) and all(wick.equal(state[k], expected[k]) for k in state)
    assert loaded.third.weight is loaded.second.weight
    assert wick.equal(loaded.positions, model.positions) and "positions" not in state
    assert loaded.version == 7 and loaded.names == ["a", "b"] and loaded.original_name == "Model"
    assert isinstance(loaded, jit.ScriptModule) and not loaded.training
    loaded.load_state_dict({k: v + 1 if v.is_floating_point() else v for k, v in expected.items()})
    model.load_state_dict(loaded.state_dict())
    assert wick.equal(loaded(X)["y"], model(X)["y"])


@both
def test_gradients_of_a_loaded_module(model, how):
    loaded = through_file(made(model, how, X))
    loaded(X)["y"].sum().backward()
    model(X)["y"].sum().backward()
    assert all(wick.equal(a.grad, b.grad) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))


def test_a_scripted_module_is_saved_in_both_modes(model):
    loaded = through_file(made(model, "script", X)).train()
    model.train()
    for _ in range(2):
        results = []
        for m in (loaded, model):
            wick.manual_seed(4)
            results.append(m(X)["y"])
        assert wick.equal(*results)
    assert wick.equal(loaded.norm.running_mean, model.norm.running_mean) and loaded.norm.num_batches_tracked == 2
    assert wick.equal(loaded.eval()(X)["y"], model.eval()(X)["y"])


def test_a_traced_module_keeps_the_mode_of_its_trace(model):
    traced = jit.trace(model, X)
    expected = model(X)["y"]
    assert wick.equal(traced.train()(X)["y"], expected)
    assert wick.equal(through_file(traced).train()(X)["y"], expected)


def test_tracing_leaves_the_module_and_the_random_numbers_as_they_were(model):
    model.train()
    before, state = copy.deepcopy(model.state_dict()), wick.get_rng_state()
    jit.trace(model, X)
    assert all(wick.equal(model.state_dict()[k], v) for k, v in before.items())
    assert wick.equal(wick.get_rng_state(), state)


def test_arguments_by_name_and_methods(model):
    class Two(Model):
        def encode(self, x):
            return self.first(x) + 1

    two = Two().eval()
    mask = wick.arange(8.0)
    traced = jit.trace_module(two, {"forward": (X, mask), "encode": X})
    loaded = through_file(traced)
    assert wick.equal(loaded(X, mask=mask)["y"], two(X, mask)["y"])
    assert wick.equal(loaded.encode(X), two.encode(X)) and wick.equal(traced.encode(X), two.encode(X))
    by_name = through_file(jit.trace(two, example_kwarg_inputs={"x": X, "mask": mask}))
    assert wick.equal(by_name(X, mask)["y"], two(X, mask)["y"])


def test_functions():
    @jit.script
    def twice(x, count: int = 2):
        return x * count

    assert twice.name == "twice" and wick.equal(twice(X), X * 2) and isinstance(twice, jit.ScriptFunction)
    assert wick.equal(through_file(twice)(X), X * 2)
    traced = jit.trace(lambda x, y: (x + y, x.shape[0]), (X, X))
    assert traced(X[:2], X[:2])[1] == 2  # other sizes than the graph's: the function itself
    assert wick.equal(through_file(traced)(X, X)[0], X + X)
    assert copy.deepcopy(twice) is twice


def test_a_written_argument_is_written_wherever_it_lies():
    loaded = through_file(jit.trace(lambda x: x.mul_(2), wick.ones(3, 4)))
    x = wick.ones(4, 3).t()
    loaded(x)
    assert x.sum() == 24


def test_freeze_and_optimize_for_inference(model):
    for m in (made(model, "trace", X), made(model, "script", X), through_file(made(model, "script", X))):
        frozen, fast = jit.freeze(m), jit.optimize_for_inference(m)
        assert not list(frozen.parameters()) and not frozen.state_dict()
        assert wick.equal(frozen(X)["y"], model(X)["y"]) and wick.equal(fast(X)["y"], model(X)["y"])
        assert wick.equal(through_file(frozen)(X)["y"], model(X)["y"])
    with pytest.raises(RuntimeError, match=r"Please call .eval\(\) on your module before freezing"):
        jit.freeze(jit.script(Model()))


def test_copies_have_their_own_tensors(model):
    for m in (made(model, "trace", X), through_file(made(model, "trace", X))):
        other = copy.deepcopy(m)
        with wick.no_grad():
            other.first.weight.add_(1)
        assert wick.equal(m(X)["y"], model(X)["y"]) and not wick.equal(other(X)["y"], m(X)["y"])
        assert other.third.weight is other.second.weight


def test_a_loaded_module_can_be_saved_and_compiled(model):
    loaded = through_file(through_file(made(model, "script", X)))
    assert wick.equal(loaded(X)["y"], model(X)["y"])
    assert wick.equal(wick.compile(loaded)(X)["y"], model(X)["y"])
    assert loaded.graph.startswith("graph(%input: f32[s0, s1]") and loaded.code == loaded.graph


def test_files_beside_and_paths(model, tmp_path):
    traced = jit.trace(model, X)
    traced.save(tmp_path / "model.pt", _extra_files={"labels.txt": "cat", "raw": b"\0\1"})
    extra = {"labels.txt": "", "raw": ""}
    loaded = jit.load(str(tmp_path / "model.pt"), map_location=wick.device("cpu"), _extra_files=extra)
    assert extra == {"labels.txt": b"cat", "raw": b"\0\1"} and wick.equal(loaded(X)["y"], model(X)["y"])
    with pytest.raises(RuntimeError, match="file not found"):
        jit.load(tmp_path / "model.pt", _extra_files={"other": ""})
    with pytest.raises(RuntimeError, match="Parent directory .* does not exist"):
        traced.save(tmp_path / "no" / "model.pt")
    with pytest.raises(ValueError, match="The provided filename .* does not exist"):
        jit.load(tmp_path / "missing.pt")
    with pytest.raises(ValueError, match="is a directory"):
        jit.load(tmp_path)


NEVER_CALLED = {
    "linear": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU()), [(5, 4), (2, 5, 4)]),
    "images": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        [(1, 3, 9, 12), (4, 3, 30, 30)],
    ),
    "norm": (lambda: nn.Sequential(nn.LayerNorm(6), nn.GELU()), [(3, 6)]),
    "recurrent": (lambda: nn.GRU(4, 3, batch_first=True), [(5, 7, 4)]),
}


@pytest.mark.parametrize("name", NEVER_CALLED)
def test_a_scripted_module_that_was_never_called_is_saved(name):
    make, sizes = NEVER_CALLED[name]
    wick.manual_seed(0)
    module = make().eval()
    loaded = through_file(jit.script(module))
    for size in sizes:
        x = wick.randn(size)
        for ours, expected in zip(*(wick.utils._pytree.tree_leaves(y) for y in (loaded(x), module(x))), strict=True):
            assert wick.equal(ours, expected)


def test_a_scripted_embedding_takes_integers():
    module = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 2))
    tokens = wick.tensor([[1, 2, 6], [0, 0, 3]])
    assert wick.equal(through_file(jit.script(module))(tokens), module(tokens))


def test_what_no_graph_says_is_told_at_save():
    def branches(x):
        return x + 1 if x.sum() > 0 else x

    traced = jit.trace(branches, X)
    assert wick.equal(traced(X + 5), X + 6) and wick.equal(traced(X - 5), X - 5)
    with pytest.raises(RuntimeError, match="branches cannot be saved: a branch on a tensor's value"):
        traced.save(io.BytesIO())
    with pytest.raises(RuntimeError, match="Bilinear cannot be saved: it was scripted and not called yet"):
        jit.script(nn.Bilinear(2, 2, 2)).save(io.BytesIO())
    jit.script(nn.Linear(4, 2), example_inputs=[(X,)]).save(io.BytesIO())
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'save'"):
        jit.save(nn.Linear(2, 2), io.BytesIO())


def test_calls_that_were_not_saved(model):
    loaded = through_file(made(model, "trace", X))
    for call, text in [
        (lambda: loaded(wick.ones(3, 5)), "saved for other sizes: the graph is for sizes of which s1 == 4 holds"),
        (lambda: loaded(X.double()), "expected float32"),
        (lambda: loaded(X, None, 3.0), "saved for a call of other arguments"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        loaded()
    with pytest.raises(NotImplementedError, match="Linear is a part of a saved module"):
        loaded.first(X)


# ---- files that are something else ----


def with_records(file, change):
    """The archive with records that `change` (a dict of bytes) has changed, and right checksums."""
    file.seek(0)
    archive = Reader(FileSource(file))
    records = {name: bytes(archive.get(name)) for name in archive.names()}
    change(records)
    out = io.BytesIO()
    writer = Writer(out, "archive")
    for name, data in records.items():
        writer.add(name, data)
    writer.close()
    out.seek(0)
    return out


def test_other_files_are_refused(tmp_path):
    plain = io.BytesIO()
    wick.save({"a": 1}, plain)
    plain.seek(0)
    with pytest.raises(RuntimeError, match="no program: it was written by torch.save"):
        jit.load(plain)
    for data in (b"", b"hello", b"PK\3\4" + bytes(100)):
        with pytest.raises(RuntimeError, match="PytorchStreamReader failed reading zip archive"):
            jit.load(io.BytesIO(data))
    import zipfile

    path = tmp_path / "theirs.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("theirs/data.pkl", b"x", zipfile.ZIP_STORED)
        file.writestr("theirs/code/__torch__/Net.py", "def forward(self): ...\n" * 50)
    for load in (jit.load, wick.load):
        with pytest.raises(RuntimeError, match="this is a TorchScript archive"):
            load(path)


HOSTILE = [
    lambda d: d.update(format=2),
    lambda d: d.update(name=3),
    lambda d: d.update(modules=[["a.b", "X", True, {}]]),
    lambda d: d.update(modules=[["", "X", True, {"forward": 1}]]),
    lambda d: d.update(modules=[["", "X", True, {"__class__": 1}]]),
    lambda d: d["tensors"].append(["first.bias2", "nothing", True, True, True]),
    lambda d: d["tensors"].append(["forward", "first.bias", False, True, True]),
    lambda d: d["methods"].update(__getattr__=[]),
    lambda d: d["methods"].update(state_dict=[]),
    lambda d: d["methods"]["forward"][0].update(graph=99),
    lambda d: d["methods"]["forward"][0].update(graph="../x"),
    lambda d: d["methods"]["forward"][0].update(inputs=[0]),
    lambda d: d["methods"]["forward"][0]["inputs"].__setitem__(0, 17),
    lambda d: d["methods"]["forward"][0]["inputs"].__setitem__(0, "elsewhere"),
    lambda d: d["methods"]["forward"][0]["outputs"].__setitem__(0, 99),
    lambda d: d["methods"]["forward"][0]["outputs"].__setitem__(0, -99),
    lambda d: d["methods"]["forward"][0].update(results={"tensor": 99}),
    lambda d: d["methods"]["forward"][0].update(arguments={"tensor": 10**12}),
    lambda d: d["methods"]["forward"][0].update(results={"object": "os.system"}),
    lambda d: d["methods"]["forward"][0].update(results={"dtype": "Tensor"}),
    lambda d: d["methods"]["forward"][0].update(arguments={}),
    lambda d: d["methods"]["forward"][0].update(parameters=[["a b", "NO", False, None]]),
    lambda d: d["methods"]["forward"][0].update(guards=["s0"]),
    lambda d: d["methods"]["forward"][0].update(guards=["import os == 1"]),
    lambda d: d["methods"]["forward"][0].update(guards=3),
    lambda d: d["methods"]["forward"][0].update(training="no"),
    lambda d: d["methods"]["forward"][0].pop("outputs"),
    lambda d: d.clear(),
]


@pytest.mark.parametrize("change", range(len(HOSTILE)))
def test_a_description_that_does_not_fit_is_refused(model, change):
    def changed(records):
        description = json.loads(records["program.json"])
        HOSTILE[change](description)
        records["program.json"] = json.dumps(description).encode()

    with pytest.raises(RuntimeError, match="the program in this file is damaged"):
        jit.load(with_records(stored(jit.trace(model, X)), changed))


def test_deep_or_wrong_json_is_refused(model):
    file = stored(jit.trace(model, X))
    for data in (b"[" * 100000, b"\xff", b"{}", b"3", b'{"format": NaN}'):
        with pytest.raises(RuntimeError, match="the program in this file is damaged"):
            jit.load(with_records(file, lambda records, data=data: records.update({"program.json": data})))


def test_changed_files_load_or_fail_clearly(model):
    """Random bytes of the text, the description or the whole file: a module that may raise when called, or an error."""
    random.seed(1)
    file = stored(jit.trace(model, X))
    whole = file.getvalue()

    def spoil(data):
        data = bytearray(data)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(data))
            data[at : at + random.randint(0, 2)] = bytes(random.randrange(32, 127) for _ in range(random.randint(0, 2)))
        return bytes(data)

    for _ in range(300):
        kind = random.choice(["program.json", "graphs/0.txt", "data.pkl", None])
        spoiled = io.BytesIO(spoil(whole))
        if kind:
            spoiled = with_records(file, lambda records, kind=kind: records.update({kind: spoil(records[kind])}))
        try:
            jit.load(spoiled)(X)
        except Exception as error:
            assert not isinstance(error, (SystemError, AssertionError)), error


def test_graphs_from_text_ask_their_guards():
    text = "graph(%x: f32[s0]) symbols {s0 = 4 in [2, 9]} {\n  %y: f32[s0] = relu(%x)\n  return (%y)\n}\n"
    graph = _C.LoadedGraph(text, (), False, ["3 < s0", "s0 != 6", "s0%2 == 0"])
    assert graph.output_count == 1 and graph.fits(wick.ones(4)) and graph.fits(wick.ones(8))
    assert [n for n in range(1, 12) if graph.fits(wick.ones(n))] == [4, 8]
    with pytest.raises(ValueError, match="the graph is for sizes of which s0 != 6 holds"):
        graph(wick.ones(6))
    with pytest.raises(ValueError, match="the size s0 is 10: the graph is for 2 to 9"):
        graph(wick.ones(10))
    for guards in (["s0"], ["s1 == 2"], [3], 3):
        with pytest.raises((ValueError, TypeError)):
            _C.LoadedGraph(text, (), False, guards)


def test_the_tensors_of_a_file_are_had_with_load(model):
    content = wick.load(stored(jit.trace(model, X)))
    assert wick.equal(content["state"]["first.weight"], model.first.weight)
    assert serialization.load_with(stored(jit.trace(model, X)), "cpu")[0].names()[0] == "data.pkl"

"""torch.export: what an exported program says and computes, sizes that may change, what is refused, files and back."""

import copy
import dataclasses
import io
import json
import zipfile

import pytest

import wick
from wick import nn
from wick._dynamo.exc import UserError
from wick.export import (
    AdditionalInputs,
    Dim,
    ShapesCollection,
    default_decompositions,
    dims,
    draft_export,
    export,
    load,
    register_dataclass,
    save,
    unflatten,
)
from wick.export.graph_signature import InputKind, OutputKind
from wick.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)
        self.register_buffer("scale", wick.full((8,), 2.0))
        self.register_buffer("shift", wick.ones(8), persistent=False)
        self.constant = wick.full((8,), 0.5)

    def forward(self, x, y, factor=2.0):
        z = self.norm(self.layer(x)) * self.scale + self.shift * factor * self.constant
        return {"out": z.reshape(x.shape[0] * 2, 4).relu(), "rest": (y + 1, x.shape[0] * 2, "name", None)}


class Of(nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None):
        return self.function(x) if y is None else self.function(x, y)


def model():
    wick.manual_seed(0)
    return Model().eval(), wick.randn(3, 4), wick.randn(5)


def same(found, wanted):
    assert wick.equal(found["out"], wanted["out"]) and wick.equal(found["rest"][0], wanted["rest"][0])
    assert found["rest"][1:] == wanted["rest"][1:] and type(found) is type(wanted)


def kinds(program):
    return [s.kind.name for s in program.graph_signature.input_specs]


def test_a_program_computes_what_its_module_does():
    m, x, y = model()
    program = export(m, (x, y), dynamic_shapes={"x": {0: Dim("batch")}, "y": {0: Dim.AUTO}})
    module = program.module()
    for n in (3, 1, 7):
        x, y = wick.randn(n, 4), wick.randn(n + 2)
        same(module(x, y), m(x, y))
    same(wick.compile(module, fullgraph=True)(x, y), m(x, y))
    module(x, y)["out"].sum().backward()
    found = m.layer.weight.grad
    m.layer.weight.grad = None
    m(x, y)["out"].sum().backward()
    assert wick.equal(found, m.layer.weight.grad)


def test_the_signature():
    m, x, y = model()
    program = export(m, (x, y))
    s = program.graph_signature
    assert kinds(program) == ["PARAMETER"] * 4 + ["BUFFER"] * 5 + ["CONSTANT_TENSOR"] + ["USER_INPUT"] * 2
    assert s.parameters == ("layer.weight", "layer.bias", "norm.weight", "norm.bias")
    assert s.buffers[:2] == ("scale", "shift") and s.non_persistent_buffers == ("shift",)
    assert s.lifted_tensor_constants == ("constant",) and s.inputs_to_parameters["p_norm_bias"] == "norm.bias"
    assert s.user_inputs == ("x", "y") and s.user_outputs[2:] == (6, "name", None)
    assert set(program.state_dict) == set(m.state_dict()) and set(program.constants) == {"shift", "constant"}
    assert all(a is b for a, b in zip(program.parameters(), m.parameters(), strict=True))
    assert [name for name, _ in program.named_buffers()] == list(s.buffers)
    assert "layer.weight" in program.module().state_dict() and "p_norm_bias: PARAMETER target='norm.bias'" in str(s)
    names = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    assert names[0] == "p_layer_weight" and names[-2:] == ["x", "y"]


def test_what_is_written_is_among_the_outputs():
    wick.manual_seed(0)
    m = Model()
    m.train()
    x, y = wick.randn(3, 4), wick.randn(5)
    before = {name: b.clone() for name, b in m.named_buffers()}
    program = export(m, (x, y))
    assert all(wick.equal(b, before[name]) for name, b in m.named_buffers())
    assert set(program.graph_signature.buffers_to_mutate.values()) == {
        "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    }  # fmt: skip
    program.module()(x, y)
    assert m.norm.num_batches_tracked == 1 and not wick.equal(m.norm.running_mean, before["norm.running_mean"])


def test_a_written_input():
    program = export(Of(lambda x: x.add_(1)), (wick.ones(2),))
    assert program.graph_signature.output_specs[0].kind is OutputKind.USER_INPUT_MUTATION
    x = wick.zeros(2)
    assert program.module()(x).tolist() == x.tolist() == [1, 1]


def test_what_runs_without_grad_has_none():
    def function(x):
        with wick.no_grad():
            y = x * 3
        return x * y

    x = wick.full((2,), 2.0, requires_grad=True)
    export(Of(function), (x,)).module()(x).sum().backward()
    assert x.grad.tolist() == [6, 6]


def test_results_that_are_views():
    x = wick.arange(12.0).view(3, 4)
    module = export(Of(lambda x: (x.t(), x, x[1], x.reshape(-1).view(3, 4))), (x,)).module()
    found = module(x)
    assert all(wick.equal(a, b) for a, b in zip(found, (x.t(), x, x[1], x), strict=True))
    assert wick.equal(module(x.t().contiguous().t())[3], x)  # strides are not part of the program


def test_printing():
    program = export(Of(lambda x: x.reshape(-1) * 2), (wick.ones(3, 4),), dynamic_shapes=({0: Dim("n", max=9)},))
    text = str(program)
    assert text.startswith("ExportedProgram:\n    class GraphModule(torch.nn.Module):\n        def forward(self, x: ")
    assert 'x: "f32[s0, 4]"' in text and 'mul_1: "f32[4*s0]" = torch.ops.aten.mul.Scalar(view, 2)' in text
    assert text.endswith("# outputs\n    mul_1: USER_OUTPUT\n    \nRange constraints: {s0: VR[0, 9]}\n")


def test_guards_of_the_module():
    x = wick.ones(3, 4)
    n = Dim("n", min=2, max=10)
    module = export(Of(lambda x, y: x + y), (x, x.clone()), dynamic_shapes=({0: n}, {0: n})).module()
    assert module(wick.ones(10, 4), wick.ones(10, 4)).shape == (10, 4)
    for sizes, text in [
        (((11, 4), (11, 4)), r"x.size\(\)\[0\] <= 10"), (((3, 5), (3, 5)), r"x.size\(\)\[1\] == 4"),
        (((1, 4), (1, 4)), r"x.size\(\)\[0\] >= 2"), (((3, 4), (4, 4)), r"y.size\(\)\[0\] == x.size\(\)\[0\]"),
        (((3, 4, 1), (3, 4)), r"x.dim\(\) == 2"),
    ]:  # fmt: skip
        with pytest.raises(AssertionError, match="Guard failed: " + text):
            module(*map(wick.ones, sizes))
    with pytest.raises(ValueError, match="Trying to flatten user inputs with exported input tree spec: \nTreeSpec"):
        module(x)
    with pytest.raises(ValueError, match="keyword mismatch"):
        module(x, x, z=3)
    with pytest.raises(NotImplementedError, match=r"Calling train\(\)"):
        module.train()


def test_dims_that_follow_from_others():
    d = Dim("d", max=8)
    assert (repr(d), repr(2 * d - 1), (2 * d + 1).max, dims("a", "b", min=3)[1].min) == (
        "Dim('d', min=0, max=8)", "2*d - 1", 17, 3,
    )  # fmt: skip
    module = export(
        Of(lambda x, y: wick.cat([x, y])), (wick.ones(3), wick.ones(6)), dynamic_shapes=({0: d}, {0: 2 * d})
    ).module()
    assert module(wick.ones(5), wick.ones(10)).shape == (15,)
    with pytest.raises(AssertionError, match="Guard failed"):
        module(wick.ones(5), wick.ones(11))
    for wrong in (lambda: d * 0, lambda: d + d, lambda: 1 - d):
        with pytest.raises(NotImplementedError, match="Only increasing linear operations"):
            wrong()
    with pytest.raises(AssertionError, match="inconsistent min=5, max=3"):
        Dim("a", min=5, max=3)
    with pytest.raises(AssertionError, match="valid identifier"):
        Dim("a b")


def branches(x):
    return x + 1 if x.shape[0] > 5 else x * 2


def test_a_size_that_the_program_limits():
    x = wick.ones(8)
    with pytest.raises(UserError, match=r"Constraints violated \(n\)") as caught:
        export(Of(branches), (x,), dynamic_shapes=({0: Dim("n")},))
    assert "n = Dim('n', min=6)" in str(caught.value) and "draft_export()" in str(caught.value)
    for hint in (Dim.AUTO, Dim.DYNAMIC):
        program = export(Of(branches), (x,), dynamic_shapes=({0: hint},))
        assert str(program.range_constraints) == "{s0: VR[6, int_oo]}"
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(wick.ones(5))
    report = draft_export(Of(branches), (x,), dynamic_shapes=({0: Dim("n")},))._report
    assert not report.successful() and draft_export(Of(branches), (x,))._report.successful()


def test_a_size_that_the_program_fixes():
    m, x = Of(lambda x: x.reshape(3, 4)), wick.ones(3, 4)
    for dim, name in ((Dim("n"), "n"), (Dim.DYNAMIC, r"L\['x'\].size\(\)\[0\]")):
        with pytest.raises(UserError, match=rf"(?s)\({name}\).*specialized it to be a constant \(3\)"):
            export(m, (x,), dynamic_shapes=({0: dim},))
    program = export(m, (x,), dynamic_shapes=({0: Dim.AUTO},))
    assert program.range_constraints == {} and '"f32[3, 4]"' in str(program)


def test_a_size_of_one_is_another_program():
    def function(x):
        return x.sum() if x.shape[0] == 1 else x * 2

    program = export(Of(function), (wick.ones(3),), dynamic_shapes=({0: Dim("n")},))
    assert str(program.range_constraints) == "{s0: VR[2, int_oo]}"
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(wick.ones(1))


def test_what_dynamic_shapes_may_not_be():
    m, x = Of(lambda x, y: x["a"] + y), wick.ones(3, 4)
    args = ({"a": x}, x.clone())
    q = Dim("q")
    for shapes, text in [
        ({"x": None}, r"its top-level keys must be the arg names \['x', 'y'\] of `inputs`, but here they are \['x'\]"),
        ([None], "`inputs` has 2 elements, but `dynamic_shapes` has 1 elements"),
        (({"b": None}, None), r"`inputs\[.x.\]` has keys \['a'\]|has keys \['b'\]"),
        (({"a": "q"}, None), r"Unexpected input tensor shape q specified at `dynamic_shapes\[0\]\['a'\]`"),
        (({"a": {0: "q"}}, None), "Unexpected dimension mapped to index 0"),
        (({"a": [q]}, None), r"to have the same length as the actual tensor shape torch.Size\(\[3, 4\]\)"),
        (({"a": {0: q}}, {0: Dim("q", min=3)}), "Found different definitions"),
    ]:
        with pytest.raises(UserError, match=text):
            export(m, args, dynamic_shapes=shapes)
    with pytest.raises(ConstraintViolationError, match="Static shape constraint of 4 does not match input size of 3"):
        export(m, args, dynamic_shapes=({"a": {0: 4}}, None))


def test_what_export_refuses():
    with pytest.raises(ValueError, match="instance of `torch.nn.Module`"):
        export(lambda x: x, (wick.ones(1),))
    with pytest.raises(UserError, match="Expecting `args` to be a tuple"):
        export(nn.ReLU(), wick.ones(1))
    with pytest.raises(GuardOnDataDependentSymNode, match="Could not guard on data-dependent expression"):
        export(Of(lambda x: x + 1 if x.sum() > 0 else x), (wick.ones(1),))
    with pytest.raises(UserError, match="cannot be exported as one graph"):
        export(Of(lambda x: x.nonzero()), (wick.ones(3),))
    with pytest.raises(UserError, match="cannot be exported as one graph"):
        export(Of(lambda x: x.nonzero() + 1), (wick.ones(3),))
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        export(nn.ReLU(), (wick.ones(1),))(wick.ones(1))


class Box:
    def __init__(self, x):
        self.x = x


def test_containers_that_are_not_known():
    with pytest.raises(ValueError, match="Unsupported input type <class '.*Box'>"):
        export(Of(lambda box: box.x + 1), (Box(wick.ones(1)),))
    with pytest.raises(RuntimeError, match="Found <class '.*Box'> in output, which is not a known type"):
        export(Of(lambda x: Box(x + 1)), (wick.ones(1),))


def test_shapes_by_tensor_and_by_examples():
    m, x, y = Of(lambda x, y: x["a"] * 2 + y[0]), wick.ones(3, 4), wick.ones(3, 4)
    args = ({"a": x}, [y])
    shapes = ShapesCollection()
    shapes[x] = {0: Dim.DYNAMIC}
    shapes[y][0] = Dim.DYNAMIC
    assert len(shapes) == 2 and shapes.dynamic_shapes(m, args)["y"] == [{0: Dim.DYNAMIC}]
    examples = AdditionalInputs()
    examples.add(({"a": wick.ones(7, 4)}, [wick.ones(7, 4)]))
    for given in (shapes, examples):
        program = export(m, args, dynamic_shapes=given)
        assert program.module()({"a": wick.ones(9, 4)}, [wick.ones(9, 4)]).shape == (9, 4)
    examples.verify(program)
    shapes[wick.ones(1)] = {}
    with pytest.raises(ValueError, match="were not found in args"):
        shapes.dynamic_shapes(m, args)


@dataclasses.dataclass
class Pair:
    first: wick.Tensor
    factor: int = 2


register_dataclass(Pair, serialized_type_name="tests.Pair")


def test_dataclasses_and_constants():
    x = wick.ones(3)
    program = export(Of(lambda p: Pair(p.first * p.factor, 7)), (Pair(x, 5),))
    for module in (program.module(), saved(program).module()):
        found = module(Pair(x, 5))
        assert isinstance(found, Pair) and found.first.tolist() == [5, 5, 5] and found.factor == 7
        with pytest.raises(AssertionError, match="Guard failed: x_factor == 5"):
            module(Pair(x, 6))
    with pytest.raises(ValueError, match="not a dataclass"):
        register_dataclass(int)


def saved(program):
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return load(file)


def test_a_file_and_back(tmp_path):
    m, x, y = model()
    program = export(m, (x, y), dynamic_shapes={"x": {0: Dim("batch", max=64)}, "y": None})
    save(program, tmp_path / "model.pt2", extra_files={"labels": "a b"})
    extra = {"labels": ""}
    loaded = load(tmp_path / "model.pt2", extra_files=extra)
    assert extra == {"labels": "a b"} and str(loaded) == str(program)
    assert loaded.range_constraints == program.range_constraints and loaded.call_spec == program.call_spec
    assert loaded.module().state_dict().keys() == m.state_dict().keys()
    same(loaded.module()(x, y), m(x, y))
    with pytest.raises(AssertionError, match="Guard failed"):
        loaded.module()(wick.ones(65, 4), y)
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:  # the graph is text
        text = archive.read(next(n for n in archive.namelist() if n.endswith("program.json")))
    assert [row[2] for row in json.loads(text)["graph"] if row[0] == "call_function"][0] == "aten.linear.default"


def test_files_that_do_not_fit(tmp_path):
    m, x, y = model()
    save(export(m, (x, y)), tmp_path / "model.pt2")
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in records if n.endswith("program.json"))
    description = json.loads(records[name])

    def damaged(change):
        other = json.loads(json.dumps(description))
        change(other)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for path, data in records.items():
                archive.writestr(path, json.dumps(other) if path == name else data)
        file.seek(0)
        return file

    calls = [i for i, row in enumerate(description["graph"]) if row[0] == "call_function"]
    changes = [
        lambda d: d.update(format=99), lambda d: d["graph"].pop(0), lambda d: d["signature"][1].pop(),
        lambda d: d["graph"][calls[0]].__setitem__(2, "os.system.default"),
        lambda d: d["graph"][calls[0]].__setitem__(2, "aten.__class__.__init__"),
        lambda d: d["in_spec"].update(type="os.stat_result"), lambda d: d.pop("guards"),
        lambda d: d["parameters"].append(["nothing", True]),
    ]  # fmt: skip
    load(damaged(lambda d: None))
    for change in changes:
        with pytest.raises(RuntimeError, match="the program in this file cannot be read"):
            load(damaged(change))
    file = io.BytesIO()
    wick.save({}, file)
    file.seek(0)
    with pytest.raises(RuntimeError, match="no exported program"):
        load(file)
    with pytest.raises(TypeError, match="must be an instance of 'ExportedProgram'"):
        save(3, tmp_path / "x")


def test_decompositions():
    m, x, y = model()
    program = export(m, (x, y), dynamic_shapes={"x": {0: Dim("batch")}, "y": None})
    assert [n.name for n in program.run_decompositions({}).graph.nodes] == [n.name for n in program.graph.nodes]
    core = program.run_decompositions()
    assert not {n.target for n in core.graph.nodes} & default_decompositions().keys()
    assert core.graph_signature.lifted_tensor_constants == ("constant",) and kinds(core).count("BUFFER") == 5
    for n in (3, 6):
        x = wick.randn(n, 4)
        found, wanted = core.module()(x, y), m(x, y)
        wick.testing.assert_close(found["out"], wanted["out"])
        assert found["rest"][1] == 2 * n and not found["out"].requires_grad
    calls = []

    def relu(x):
        calls.append(1)
        return x.clamp(min=0) * 1

    own = program.run_decompositions({wick.ops.aten.relu.default: relu})
    targets = [str(n.target) for n in own.graph.nodes]
    assert "aten.relu.default" not in targets and any("clamp" in t for t in targets)
    same(own.module()(x, y), m(x, y))
    with pytest.raises(NotImplementedError, match="own decompositions"):
        gelu = wick.ops.aten.linear.default
        program.run_decompositions({gelu: default_decompositions()[gelu]})


def test_an_edited_program():
    program = export(Of(lambda x: x.relu()), (wick.ones(3),))
    for node in program.graph.nodes:
        if node.target is wick.ops.aten.relu.default:
            node.target = wick.ops.aten.neg.default
    program.graph_module.recompile()
    assert program.module()(wick.ones(3)).tolist() == [-1, -1, -1]


def test_unflatten():
    m, x, y = model()
    module = unflatten(export(m, (x, y)))
    assert module.state_dict().keys() == m.state_dict().keys() and module.layer.weight is m.layer.weight
    same(module(x, y), m(x, y))


def test_prepare_pt2e_takes_the_module():
    from wick.ao.quantization.quantize_pt2e import convert_pt2e, prepare_pt2e
    from wick.ao.quantization.quantizer import X86Quantizer, get_default_x86_quantization_config

    m, x = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)).eval(), wick.randn(4, 64)
    prepared = prepare_pt2e(export(m, (x,)).module(), X86Quantizer().set_global(get_default_x86_quantization_config()))
    prepared(x)
    quantized = convert_pt2e(prepared)
    assert any("quantized_decomposed" in str(n.target) for n in quantized.graph.nodes)
    assert (quantized(x) - m(x)).abs().max() < 0.05


def test_arguments_by_name_and_star():
    class Star(nn.Module):
        def forward(self, x, *rest, **named):
            return x + rest[0] + named["z"]

    one = wick.ones(2)
    program = export(Star(), (one, one.clone()), {"z": one.clone()})
    assert program.graph_signature.user_inputs == ("x", "rest_0", "z")
    assert program.module()(one, one, z=one).tolist() == [3, 3]
    assert InputKind.USER_INPUT.value == 1


# ---- control flow ----


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(3, 3), wick.tensor([1.0, 2, 3])

    def forward(self, x):
        small = wick.tensor([0.5, 1, 2])
        y = wick.cond(x.sum() > 3, lambda x: self.layer(x) * small, lambda x: x.sin() + self.table, (x,))
        return wick.while_loop(lambda y: y.abs().sum() < 30, lambda y: (y * 2 + 1,), (y,))[0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_functions_of_control_flow_are_graphs(tmp_path, dynamic):
    model = Branches()
    program = export(model, (wick.ones(2, 3),), dynamic_shapes=({0: Dim("rows")},) if dynamic else None)
    assert "class true_graph_0(torch.nn.Module)" in str(program)
    assert "torch.ops.higher_order.while_loop(while_loop_cond_graph_1, while_loop_body_graph_1" in str(program)
    save(program, tmp_path / "branches.pt2")
    again = load(tmp_path / "branches.pt2")
    rows = [2, 5] if dynamic else [2]
    for made in program, again, copy.deepcopy(program):
        for x in [value * wick.ones(n, 3) for value in (1, -1, 0.1) for n in rows]:
            assert wick.equal(made.module()(x), model(x))
            assert wick.equal(wick.compile(made.module())(x), model(x))
    assert str(again) == str(program)
    leaf = wick.ones(2, 3, requires_grad=True)
    program.module()(leaf).sum().backward()
    grad, leaf.grad = leaf.grad, None
    model(leaf).sum().backward()
    assert wick.equal(grad, leaf.grad)


def test_attention_for_all_sizes():
    wick.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    program = export(layer, (wick.randn(2, 7, 16),), dynamic_shapes=({0: Dim("batch"), 1: Dim("time")},))
    for sizes in ((2, 7, 16), (3, 5, 16), (6, 2, 16)):
        x = wick.randn(sizes)
        wick.testing.assert_close(program.module()(x), layer(x))
    weights = nn.MultiheadAttention(16, 4)
    compiled = wick.compile(lambda x: weights(x, x, x), dynamic=True)
    for n in (5, 6, 7, 8):
        compiled(wick.randn(n, 2, 16))
    assert compiled.captures == 1


def test_sizes_of_an_argument_that_has_the_name_of_a_builtin():
    layer = nn.Linear(2, 3)
    program = export(layer, (wick.ones(4, 2),), dynamic_shapes={"input": {0: Dim("rows")}})
    x = wick.rand(7, 2)
    assert wick.equal(program.module()(x), layer(x))

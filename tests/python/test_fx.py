"""torch.fx: graphs as Python objects. Texts and errors are those of torch.fx 2.13."""

import copy
import gc
import operator
import pickle
import subprocess
import sys
import warnings
import weakref

import pytest

import wick
from wick import _C, fx, nn
from wick.fx.experimental.proxy_tensor import make_fx

torch = wick
aten = wick.ops.aten


def small_graph():
    """(x + 1) * (x + 1), and its nodes."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    add = graph.call_function(torch.add, (x, 1))
    mul = graph.call_function(torch.mul, (add, add))
    output = graph.output(mul)
    return graph, x, add, mul, output


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape and wick.equal(a, b)


# ---- nodes ----


def test_nodes_say_what_they_are():
    graph, x, add, mul, output = small_graph()
    assert [n.op for n in graph.nodes] == ["placeholder", "call_function", "call_function", "output"]
    assert [n.name for n in graph.nodes] == ["x", "add", "mul", "output"]
    assert (x.target, add.target, output.target) == ("x", torch.add, "output")
    assert add.args == (x, 1) and add.kwargs == {} and output.args == (mul,)
    assert add.users == {mul: None} and mul.users == {output: None} and not output.users
    assert mul.all_input_nodes == [add] and x.all_input_nodes == []
    assert add.next is mul and mul.prev is add and add.graph is graph
    assert add.meta == {} and add.type is None and add.stack_trace is None
    assert isinstance(add, fx.Node) and repr(add) == "add" and x < mul and not mul < x
    assert (
        next(iter(graph.nodes)) is x and list(reversed(graph.nodes)) == [output, mul, add, x] and len(graph.nodes) == 4
    )
    add.meta["mine"] = 1
    add.own = 2
    assert add.meta == {"mine": 1} and add.own == 2


def test_arguments_keep_the_users_right():
    _, x, add, mul, _ = small_graph()
    mul.args = (add, x)
    assert x.users == {add: None, mul: None}
    mul.args = (x, [x, {"a": (x, slice(x, None))}])
    assert add.users == {} and x.users == {add: None, mul: None} and mul.all_input_nodes == [x]
    mul.update_arg(1, add)
    assert mul.args == (x, add) and add.users == {mul: None}
    mul.insert_arg(1, 7)
    mul.update_kwarg("alpha", 3)
    assert mul.args == (x, 7, add) and mul.kwargs == {"alpha": 3}
    mul.replace_input_with(add, x)
    assert mul.args == (x, 7, x) and add.users == {}
    add.kwargs = {"other": x}
    assert x.users == {add: None, mul: None}


def test_arguments_cannot_be_changed_in_place():
    _, x, add, _, _ = small_graph()
    add.args = (x, [1, 2])
    assert add.args == (x, [1, 2])
    with pytest.raises(TypeError, match="'immutable_list' object does not support mutation"):
        add.args[1].append(3)
    with pytest.raises(TypeError, match="'immutable_dict' object does not support mutation"):
        add.kwargs["a"] = 1
    with pytest.raises(AssertionError, match="args must be a tuple, got <class 'list'>"):
        add.args = [1]
    with pytest.raises(AssertionError, match="kwargs must be a dict"):
        add.kwargs = (1,)


def test_replace_all_uses():
    graph, x, add, mul, output = small_graph()
    assert add.replace_all_uses_with(x, lambda user: False) == []
    assert add.replace_all_uses_with(x) == [mul] and mul.args == (x, x)
    assert add.users == {} and x.users == {add: None, mul: None}
    new = graph.call_function(torch.neg, (x,))
    mul.meta["val"] = 5
    assert mul.replace_all_uses_with(new, propagate_meta=True) == [output] and new.meta == {"val": 5}
    with pytest.raises(AssertionError, match="already has .meta keys"):
        x.replace_all_uses_with(new, propagate_meta=True)


def test_names():
    graph, _, add, _, _ = small_graph()
    add.name = "hello"
    assert add.name == "hello" and "%hello" in str(graph)
    add.name = "x"
    assert add.name == "x_1"
    make = lambda name: graph.create_node("call_function", torch.neg, (), name=name).name  # noqa: E731
    names = [
        "x",
        "x_1",
        "sum",
        "max_3",
        "3a",
        "a.b",
        "for",
        "y_7",
        "y_7",
        "torch",
        "inf",
        "self",
        "_",
        "",
        "q_",
        "q_01",
        "q_01",
    ]
    assert [make(n) for n in names] == [
        "x_2", "x_3", "sum_1", "max_3", "_3a", "a_b", "for_1", "y_7", "y_8", "torch_1", "inf_1", "self", "_",
        "_unnamed", "q_", "q_01", "q_2",
    ]  # fmt: skip
    for target, name in ((aten.add.Tensor, "add_tensor"), (aten.sum.dim_IntList, "sum_dim_int_list"), (len, "len_1")):
        assert graph.call_function(target, ()).name == name
    assert graph.get_attr("layers.0.weight").name == "layers_0_weight"


def test_wrong_nodes_are_refused():
    graph, x, *_ = small_graph()
    with pytest.raises(AssertionError, match="op 'nope' is not in _legal_ops"):
        graph.create_node("nope", "x")
    with pytest.raises(ValueError, match="target x has type str but a Callable is expected"):
        graph.create_node("call_function", "x")
    with pytest.raises(ValueError, match="but a str is expected"):
        graph.create_node("call_method", torch.add)
    with pytest.raises(AssertionError, match="args must be a tuple, got <class 'list'>"):
        graph.create_node("call_function", torch.add, [1])
    with pytest.raises(TypeError):
        _C.GraphNode()
    with pytest.raises(AttributeError):
        x.users = {}


# ---- the list ----


def test_nodes_are_moved_and_inserted():
    graph, x, add, mul, output = small_graph()
    with graph.inserting_before(add):
        neg = graph.call_function(torch.neg, (x,))
        absolute = graph.call_function(torch.abs, (neg,))
    with graph.inserting_after(add):
        sin = graph.call_function(torch.sin, (x,))
        cos = graph.call_function(torch.cos, (x,))
    with graph.inserting_after():
        last = graph.call_function(torch.neg, (x,))
    with graph.inserting_before():
        first = graph.call_function(torch.neg, (x,))
    assert list(graph.nodes) == [first, x, neg, absolute, add, cos, sin, mul, output, last]
    x.prepend(last)
    mul.append(sin)
    assert list(graph.nodes) == [first, last, x, neg, absolute, add, cos, mul, sin, output]
    other = fx.Graph().placeholder("y")
    with pytest.raises(AssertionError, match="Attempting to move a Node into a different Graph"):
        x.append(other)
    with pytest.raises(AssertionError, match="Node to insert before is not in graph"):
        graph.inserting_before(other)
    with pytest.raises(AssertionError, match="Node to insert after is not in graph"):
        graph.inserting_after(other)


def test_erasing():
    graph, x, add, mul, output = small_graph()
    with pytest.raises(
        RuntimeError, match=r"Tried to erase Node add but it still had 1 users in the graph: {mul: None}!"
    ):
        graph.erase_node(add)
    mul.replace_all_uses_with(add)
    graph.erase_node(mul)
    assert list(graph.nodes) == [x, add, output] and add.users == {output: None} and mul.args == (None, None)
    with pytest.warns(UserWarning, match=r"erase_node\(mul\) on an already erased node"):
        graph.erase_node(mul)
    with pytest.raises(RuntimeError, match="Attempting to remove y from wrong graph!"):
        graph.erase_node(fx.Graph().placeholder("y"))
    with pytest.raises(TypeError):
        graph.erase_node("add")


def test_loops_go_on_when_the_list_changes():
    graph, x, add, mul, output = small_graph()
    met = []
    for node in graph.nodes:
        met.append(node.name)
        if node is add:
            with graph.inserting_after(node):
                graph.call_function(torch.neg, (x,))
        if node is mul:
            mul.replace_all_uses_with(add)
            graph.erase_node(mul)
    assert met == ["x", "add", "neg", "mul", "output"]
    for node in reversed(graph.nodes):
        if not node.users and node.op == "call_function":
            graph.erase_node(node)
    assert [n.name for n in graph.nodes] == ["x", "add", "output"]
    with graph.inserting_before(output):
        graph.erase_node(output)
        graph.output(add)
    assert [n.op for n in graph.nodes][-1] == "output"


def test_lint():
    graph, x, add, mul, _ = small_graph()
    graph.lint()
    add.append(x)
    with pytest.raises(RuntimeError, match="Argument 'x' of Node 'add' was used before it has been defined!"):
        graph.lint()
    x.append(add)
    mul.args = (fx.Graph().placeholder("y"), add)
    with pytest.raises(RuntimeError, match="Argument 'y' of Node 'mul' does not belong to this Graph"):
        graph.lint()


def test_find_nodes():
    graph, x, add, mul, output = small_graph()
    assert graph.find_nodes(op="call_function", target=torch.mul) == [mul]
    assert graph.find_nodes(op="placeholder") == [x] and graph.find_nodes(op="get_attr") == []
    assert graph.output_node() is output
    with pytest.raises(AssertionError, match="target must not be None for call_function op"):
        graph.find_nodes(op="call_function")


def test_dead_code():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.placeholder("unused")
    dead = graph.call_function(torch.add, (x, 1))
    graph.call_function(torch.neg, (dead,))
    graph.call_function(torch.rand, ((2,),))
    graph.call_function(aten.add_.Tensor, (x, 1))
    graph.call_function(operator.setitem, (x, 0, 1))
    graph.output(x)
    assert graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "unused", "rand", "add__tensor", "setitem", "output"]
    assert not graph.eliminate_dead_code()
    assert graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    assert [n.name for n in graph.nodes] == ["x", "unused", "output"]
    assert x.is_impure() and not dead.is_impure()


def test_copies_into_other_graphs():
    graph, x, _, mul, _ = small_graph()
    mul.meta["mine"] = [1]
    other, values = fx.Graph(), {}
    y = other.placeholder("y")
    values[x] = y
    result = other.graph_copy(graph, values)
    assert result is values[mul] and result.graph is other and result.meta == {"mine": [1]}
    other.output(result)
    assert [n.name for n in other.nodes] == ["y", "add", "mul", "output"]
    with pytest.raises(KeyError):
        fx.Graph().node_copy(mul, {}.__getitem__)
    twin = copy.deepcopy(graph)
    assert str(twin) == str(graph) and not set(twin.nodes) & set(graph.nodes)
    assert wick.equal(fx.GraphModule({}, twin)(wick.ones(2)), wick.full((2,), 4.0))


# ---- text ----


def long_graph():
    graph = fx.Graph()
    x = graph.placeholder("x")
    add = graph.call_function(torch.add, (x, 1), {"alpha": 2})
    item = graph.call_function(operator.getitem, (add, (slice(None, None, None), 0)))
    overload = graph.call_function(aten.add.Tensor, (item, [x, 1.5]))
    relu = graph.call_method("relu", (overload,))
    relu_1 = graph.call_function(nn.functional.relu, (relu,), {"inplace": False})
    plus = graph.call_function(operator.add, (relu_1, torch.float32))
    zeros = graph.call_function(torch.zeros, ((2, 3),), {"dtype": torch.float32, "device": torch.device("cpu")})
    length = graph.call_function(len, (zeros,))
    shape = graph.call_function(getattr, (zeros, "shape"))
    graph.output((plus, {"a": zeros, "b": None}, length, shape))
    return graph


def test_text_of_a_graph():
    assert str(long_graph()) == (
        "graph():\n"
        "    %x : [num_users=2] = placeholder[target=x]\n"
        "    %add : [num_users=1] = call_function[target=torch.add](args = (%x, 1), kwargs = {alpha: 2})\n"
        "    %getitem : [num_users=1] = call_function[target=operator.getitem]"
        "(args = (%add, (slice(None, None, None), 0)), kwargs = {})\n"
        "    %add_tensor : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor]"
        "(args = (%getitem, [%x, 1.5]), kwargs = {})\n"
        "    %relu : [num_users=1] = call_method[target=relu](args = (%add_tensor,), kwargs = {})\n"
        "    %relu_1 : [num_users=1] = call_function[target=torch.nn.functional.relu]"
        "(args = (%relu,), kwargs = {inplace: False})\n"
        "    %add_1 : [num_users=1] = call_function[target=operator.add](args = (%relu_1, torch.float32), kwargs = {})\n"
        "    %zeros : [num_users=3] = call_function[target=torch.zeros]"
        "(args = ((2, 3),), kwargs = {dtype: torch.float32, device: cpu})\n"
        "    %len_1 : [num_users=1] = call_function[target=builtins.len](args = (%zeros,), kwargs = {})\n"
        "    %getattr_1 : [num_users=1] = call_function[target=builtins.getattr](args = (%zeros, shape), kwargs = {})\n"
        "    return (add_1, {'a': zeros, 'b': None}, len_1, getattr_1)"
    )


def test_source_text():
    code = long_graph().python_code("self")
    assert code.src == (
        "\n\n\ndef forward(self, x):\n"
        "    add = torch.add(x, 1, alpha = 2)\n"
        "    getitem = add[(slice(None, None, None), 0)];  add = None\n"
        "    add_tensor = torch.ops.aten.add.Tensor(getitem, [x, 1.5]);  getitem = x = None\n"
        "    relu = add_tensor.relu();  add_tensor = None\n"
        "    relu_1 = torch.nn.functional.relu(relu, inplace = False);  relu = None\n"
        "    add_1 = relu_1 + torch.float32;  relu_1 = None\n"
        "    zeros = torch.zeros((2, 3), dtype = torch.float32, device = device(type='cpu'))\n"
        "    len_1 = len(zeros)\n"
        "    getattr_1 = zeros.shape\n"
        "    return (add_1, {'a': zeros, 'b': None}, len_1, getattr_1)\n    "
    )


def named(value):
    return value


def test_source_text_of_every_kind_of_call():
    graph = fx.Graph()
    x = graph.placeholder("x")
    for f in (
        operator.add,
        operator.truediv,
        operator.pow,
        operator.matmul,
        operator.and_,
        operator.le,
        operator.getitem,
    ):
        graph.call_function(f, (x, 2))
    for f in (operator.neg, operator.invert, operator.not_):
        graph.call_function(f, (x,))
    graph.call_function(operator.iadd, (x, 2))
    graph.call_function(operator.setitem, (x, 0, 1))
    graph.call_function(torch.cat, ([x, x],), {"dim": -1})
    graph.call_function(aten.full.default, ((2,), float("inf")), {"memory_format": torch.preserve_format})
    graph.call_function(aten.add, (x, 1))
    graph.call_function(named, (x,))
    graph.call_method("view", (x, -1), {"k": x})
    graph.call_module("layers.0", (x,))
    graph.get_attr("layers.0.weight")
    graph.output(None)
    code = graph.python_code("self")
    assert code.src.split("\n")[4:] == [
        "    add = x + 2;  add = None",
        "    truediv = x / 2;  truediv = None",
        "    pow_1 = x ** 2;  pow_1 = None",
        "    matmul = x @ 2;  matmul = None",
        "    and_ = x & 2;  and_ = None",
        "    le = x <= 2;  le = None",
        "    getitem = x[2];  getitem = None",
        "    neg = -x;  neg = None",
        "    invert = ~x;  invert = None",
        "    not_ = operator_not_(x);  not_ = None",
        "    x += 2;  iadd = x;  iadd = None",
        "    x[0] = 1;  setitem = x;  setitem = None",
        "    cat = torch.cat([x, x], dim = -1);  cat = None",
        "    full_default = torch.ops.aten.full.default((2,), inf, memory_format = torch.preserve_format);  "
        "full_default = None",
        "    add_1 = torch.ops.aten.add(x, 1);  add_1 = None",
        f"    named = {named.__module__.replace('.', '_')}_named(x);  named = None",
        "    view = x.view(-1, k = x);  view = None",
        '    layers_0 = getattr(self.layers, "0")(x);  x = layers_0 = None',
        '    layers_0_weight = getattr(self.layers, "0").weight;  layers_0_weight = None',
        "    return None",
        "    ",
    ]
    assert code.globals["torch"] is wick and named in code.globals.values()
    assert operator.not_ in code.globals.values() and code.globals["inf"] == float("inf")


def test_source_text_runs():
    graph, *_ = small_graph()
    code = graph.python_code("self")
    space = dict(code.globals)
    exec(code.src, space)
    assert wick.equal(space["forward"](None, wick.ones(2)), wick.full((2,), 4.0))


def test_defaults_annotations_and_small_graphs():
    graph = fx.Graph()
    x = graph.placeholder("x", default_value=3)
    y = graph.placeholder("y", int, None)
    graph.output([x, y])
    module = fx.GraphModule({}, graph, "Named")
    assert module.code == "\n\n\ndef forward(self, x = 3, y : int = None):\n    return [x, y]\n    "
    assert str(graph) == (
        "graph():\n    %x : [num_users=1] = placeholder[target=x](default=3)\n"
        "    %y : int [num_users=1] = placeholder[target=y](default=None)\n    return [x, y]"
    )
    assert repr(module) == "Named()" and str(module).startswith("Named()\n\n\n\ndef forward(self, x = 3")
    assert module(1, 2) == [1, 2] and module(y=3) == [3, 3] and module() == [3, None] and type(module()) is list
    assert fx.GraphModule({}, fx.Graph()).code == "\n\n\ndef forward(self):\n    pass\n    "
    assert fx.GraphModule({}, fx.Graph())() is None


def test_wrong_arguments():
    graph = fx.Graph()
    graph.output((graph.placeholder("x"), graph.placeholder("y", default_value=1)))
    module = fx.GraphModule({}, graph)
    for call, text in (
        (lambda: module(), "missing 1 required positional argument: 'x'"),
        (lambda: module(1, 2, 3), "forward() takes from 2 to 3 positional arguments but 4 were given"),
        (lambda: module(1, z=2), "forward() got an unexpected keyword argument 'z'"),
        (lambda: module(1, x=2), "forward() got multiple values for argument 'x'"),
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert text in str(error.value)


def test_star_arguments():
    graph = fx.Graph()
    graph.output((graph.placeholder("a"), graph.placeholder("*args"), graph.placeholder("**kwargs")))
    module = fx.GraphModule({}, graph)
    assert module(1, 2, 3, k=4) == (1, (2, 3), {"k": 4})
    assert "def forward(self, a, *args, **kwargs):" in module.code


def test_table(capsys):
    small_graph()[0].print_tabular()
    assert capsys.readouterr().out == (
        "opcode         name    target                                args        kwargs\n"
        "-------------  ------  ------------------------------------  ----------  --------\n"
        "placeholder    x       x                                     ()          {}\n"
        "call_function  add     <built-in method add of type object>  (x, 1)      {}\n"
        "call_function  mul     <built-in method mul of type object>  (add, add)  {}\n"
        "output         output  output                                (mul,)      {}\n"
    )


def test_readable_text(capsys):
    module = make_fx(lambda a, b: (a + b).max(0))(wick.ones(2, 3), wick.ones(3))
    text = module.print_readable(print_output=False)
    assert text == (
        "class GraphModule(torch.nn.Module):\n"
        '    def forward(self, a_1: "f32[2, 3]", b_1: "f32[3]"):\n'
        "        # No stacktrace found for following nodes\n"
        '        add: "f32[2, 3]" = torch.ops.aten.add.Tensor(a_1, b_1);  a_1 = b_1 = None\n'
        "        max_1 = torch.ops.aten.max.dim(add, 0);  add = None\n"
        '        getitem: "f32[3]" = max_1[0]\n'
        '        getitem_1: "i64[3]" = max_1[1];  max_1 = None\n'
        "        return (getitem, getitem_1)\n"
    ).replace("class GraphModule", f"class {type(module).__name__}")
    assert module.print_readable() == text and capsys.readouterr().out == text + "\n"


# ---- torch.ops ----


def test_overloads():
    add = aten.add.Tensor
    assert add is aten.add.Tensor and add is _C._overload("add.Tensor") and isinstance(add, _C.OpOverload)
    assert str(add) == "aten.add.Tensor" and repr(add) == "<OpOverload(op='aten.add', overload='Tensor')>"
    assert (add.__name__, add.__module__, add.namespace, add.name()) == (
        "add.Tensor",
        "torch._ops.aten",
        "aten",
        "aten::add.Tensor",
    )
    assert add._schema == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert add.overloadpacket is aten.add and (add._opname, add._overloadname) == ("add", "Tensor")
    assert aten.relu.default.name() == "aten::relu" and repr(aten.add) == "<OpOverloadPacket(op='aten.add')>"
    assert "Tensor" in aten.add.overloads() and aten.add_.overloads() and str(aten.add) == "aten.add"
    x = wick.ones(2)
    assert (
        add(x, x, alpha=2).tolist() == [3, 3]
        and aten.add(x, 2).tolist() == [3, 3]
        and aten.add(x, x).tolist() == [2, 2]
    )
    assert aten.add_.Tensor(x, x) is x and x.tolist() == [2, 2]
    assert (
        copy.deepcopy(add) is add
        and pickle.loads(pickle.dumps(add)) is add
        and pickle.loads(pickle.dumps(aten.add)) is aten.add
    )
    for find, text in (
        (lambda: aten.nope, "'_OpNamespace' 'aten' object has no attribute 'nope'"),
        (lambda: aten.add.nope, "The underlying op of 'aten.add' has no overload name 'nope'"),
        (lambda: wick.ops.nope.x, "'_OpNamespace' 'nope' object has no attribute 'x'"),
    ):
        with pytest.raises(AttributeError) as error:
            find()
        assert str(error.value) == text


def test_functional_twins_of_operators_that_mutate():
    x = wick.ones(3)
    y = aten.exponential.default(x)
    assert x.tolist() == [1, 1, 1] and y.tolist() != [1, 1, 1]
    sums = aten._foreach_add.Scalar([x, y], 1)
    assert x.tolist() == [1, 1, 1] and sums[0].tolist() == [2, 2, 2] and len(sums) == 2
    same(aten.copy.default(wick.zeros(3), x), x)


# ---- running ----


def test_the_classic_rewrite():
    def f(x, y):
        return torch.add(x, y) * 2

    module = make_fx(f)(wick.ones(2), wick.ones(2))
    x, y = wick.tensor([2.0, 3.0]), wick.tensor([5.0, 7.0])
    assert module(x, y).tolist() == [14, 20]
    for node in module.graph.nodes:
        if node.target == aten.add.Tensor:
            with module.graph.inserting_after(node):
                new = module.graph.call_function(torch.mul, node.args, node.kwargs)
            node.replace_all_uses_with(new)
            module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()
    assert "torch.mul(x_1, y_1)" in module.code
    assert module(x, y).tolist() == [20, 42]
    assert module(x, y).tolist() == [20, 42]  # from the executor
    assert module(wick.ones(3), wick.full((3,), 2.0)).tolist() == [4, 4, 4]


def test_a_changed_target_holds_at_once():
    graph, _, add, mul, _ = small_graph()
    module = fx.GraphModule({}, graph)
    x = wick.tensor([1.0, 2.0])
    for _ in range(3):
        assert module(x).tolist() == [4, 9]
    mul.target = torch.sub
    add.args = (add.args[0], 5)
    module.recompile()
    for _ in range(3):
        assert module(x).tolist() == [0, 0]
    assert "torch.sub(add, add)" in module.code


@pytest.mark.parametrize("count", [1, 12])
def test_results_do_not_depend_on_the_way(count):
    """Traced, from the executor, node by node (a function that cannot be traced, too many shapes)."""
    graph, x, add, mul, output = small_graph()
    with graph.inserting_before(output):
        total = graph.call_method("sum", (mul,))
        item = graph.call_function(operator.getitem, (mul, 0))
    output.args = ([total, {"first": item, "same": mul, "again": mul, "x": x, "n": 5}],)
    module = fx.GraphModule({}, graph)
    for size in range(2, 2 + count):
        for _ in range(2):
            value = wick.arange(size * 2.0).reshape(size, 2)
            total, rest = module(value)
            expected = (value + 1) * (value + 1)
            same(total, expected.sum())
            same(rest["first"], expected[0])
            same(rest["same"], expected)
            assert rest["again"] is rest["same"] and rest["x"] is value and rest["n"] == 5


def test_results_are_fresh_and_arguments_are_themselves():
    graph, x, _, mul, output = small_graph()
    output.args = ((x, mul),)
    module = fx.GraphModule({}, graph)
    value = wick.ones(2)
    for _ in range(3):
        first, second = module(value)
        assert first is value
        second.zero_()
    assert module(value)[1].tolist() == [4, 4]


def test_views_of_arguments_stay_views():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_method("view", (x, -1)))
    module = fx.GraphModule({}, graph)
    value = wick.zeros(2, 2)
    for _ in range(3):
        module(value).add_(1)
    assert value.tolist() == [[3, 3], [3, 3]]


def test_side_effects_happen_at_each_call():
    log = []

    def note(value):
        log.append(value.sum().item())
        return value

    graph, x, add, mul, _ = small_graph()
    with graph.inserting_before(mul):
        noted = graph.call_function(note, (add,))
    mul.args = (noted, add)
    module = fx.GraphModule({}, graph)
    for _ in range(3):
        assert module(wick.ones(2)).tolist() == [4, 4]
    assert log == [4, 4, 4]


def test_gradients_flow():
    module = fx.GraphModule({}, small_graph()[0])
    for _ in range(3):
        x = wick.ones(2, requires_grad=True)
        y = module(x)
        assert y.requires_grad
        y.sum().backward()
        assert x.grad.tolist() == [4, 4]
    with wick.no_grad():
        assert not module(x).requires_grad
    assert not module(wick.ones(2)).requires_grad
    traced = make_fx(lambda x: (x + 1) * (x + 1))(wick.ones(2))
    for _ in range(3):
        x = wick.ones(2, requires_grad=True)
        traced(x).sum().backward()
        assert x.grad.tolist() == [4, 4]
    assert traced(wick.ones(2)).tolist() == [4, 4]


def test_random_numbers_are_drawn_anew():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.rand_like, (x,)))
    module = fx.GraphModule({}, graph)
    wick.manual_seed(3)
    got = [module(wick.ones(4)) for _ in range(3)]
    wick.manual_seed(3)
    for value in got:
        same(value, wick.rand(4))


def test_errors_of_operators_come_out():
    module = make_fx(lambda a, b: a @ b)(wick.ones(2, 3), wick.ones(3, 2))
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        module(wick.ones(2, 3), wick.ones(2, 3))
    with pytest.raises(TypeError):
        module(wick.ones(2, 3), "b")


def test_other_shapes_than_traced_with():
    module = make_fx(lambda a, b: (a + b).relu())(wick.ones(2), wick.ones(2))
    same(module(wick.ones(3, 1), wick.ones(1, 4)), wick.full((3, 4), 2.0))
    same(module(wick.ones(3, dtype=wick.float64), wick.ones(3)), wick.full((3,), 2.0, dtype=wick.float64))


# ---- traced functions ----


def test_a_traced_function():
    def f(a, b):
        values, indices = torch.max(a + b, 0)
        return values * 2, {"indices": indices}, None, 3

    module = make_fx(f)(wick.ones(3, 2), wick.ones(2))
    assert [n.name for n in module.graph.nodes] == [
        "a_1",
        "b_1",
        "add",
        "max_1",
        "getitem",
        "getitem_1",
        "mul",
        "output",
    ]
    assert [n.target for n in module.graph.nodes][2:6] == [
        aten.add.Tensor,
        aten.max.dim,
        operator.getitem,
        operator.getitem,
    ]
    a = wick.tensor([[1.0, 5.0], [4.0, 2.0]])
    a = wick.cat([a, a])[:3]
    for _ in range(2):
        values, rest, none, three = module(a, wick.zeros(2))
        assert values.tolist() == [8, 10] and rest["indices"].tolist() == [1, 0] and none is None and three == 3
    assert type(module).__name__ == "f" and isinstance(module, fx.GraphModule) and not module.graph._edited
    add = module.graph.find_nodes(op="call_function", target=aten.add.Tensor)[0]
    assert add.meta["val"].shape == (3, 2) and add.meta["val"].dtype == wick.float32
    assert add.meta["tensor_meta"].shape == (3, 2) and add.meta["tensor_meta"].stride == (2, 1)
    maximum = module.graph.find_nodes(op="call_function", target=aten.max.dim)[0]
    assert [v.shape for v in maximum.meta["val"]] == [(2,), (2,)]


def test_mutation_is_a_copy_at_the_end():
    def f(a):
        b = a[0]
        b.mul_(3)
        return a.sum()

    module = make_fx(f)(wick.ones(2, 2))
    last = list(module.graph.nodes)[-2]
    assert last.target is aten.copy_.default and last.args[0].op == "placeholder" and last.is_impure()
    for edit in (False, True):
        a = wick.ones(2, 2)
        assert module(a).item() == 8 and a.tolist() == [[3, 3], [1, 1]]
        if not edit:
            module.graph.eliminate_dead_code()
            module.graph.find_nodes(op="output")[0].meta["seen"] = True
            list(module.graph.nodes)[1].name = "renamed"
            list(module.graph.nodes)[0].type = wick.Tensor
            assert module.graph._edited
    a = wick.ones(2, 2)
    whole = a.view(4)
    two = make_fx(lambda x, y: x.add_(y))(wick.ones(4), wick.ones(4))
    two(whole, whole)  # overlapping memory: node by node
    assert whole.tolist() == [2, 2, 2, 2]


def test_captured_tensors_are_attributes():
    weight, scale = nn.Parameter(wick.full((2,), 3.0)), wick.full((2,), 2.0)

    def f(x):
        return x * weight + scale

    module = make_fx(f)(wick.ones(2))
    assert [n.target for n in module.graph.nodes if n.op == "get_attr"] == ["_param_constant0", "_tensor_constant1"]
    assert module._param_constant0 is weight and list(module.parameters()) == [weight]
    assert list(module.state_dict()) == ["_param_constant0", "_tensor_constant1"]
    with wick.no_grad():
        assert module(wick.ones(2)).tolist() == [5, 5]
        weight.fill_(1)
        assert module(wick.ones(2)).tolist() == [3, 3]
    module(wick.ones(2)).sum().backward()
    assert weight.grad.tolist() == [1, 1]
    module._tensor_constant1 = wick.zeros(2)
    assert module(wick.ones(2)).tolist() == [1, 1]


def test_constants_made_inside():
    module = make_fx(lambda x: x + torch.tensor([1.0, 2.0]))(wick.zeros(2))
    assert list(module.state_dict()) == ["_tensor_constant0"]
    assert module(wick.ones(2)).tolist() == [2, 3]
    module._tensor_constant0 = wick.full((2,), 9.0)
    assert module(wick.ones(2)).tolist() == [10, 10]


def test_gradients_inside_a_traced_function():
    def f(x):
        y = (x * x).sum()
        return torch.autograd.grad(y, x)[0]

    module = make_fx(f)(wick.ones(3, requires_grad=True))
    with wick.no_grad():
        assert module(wick.tensor([1.0, 2.0, 3.0])).tolist() == [2, 4, 6]


def test_what_cannot_be_traced_is_an_error():
    with pytest.raises(RuntimeError, match="the function cannot be traced"):
        make_fx(lambda x: x + x.sum().item())(wick.ones(2))
    with pytest.raises(ZeroDivisionError):
        make_fx(lambda x: 1 / 0)(wick.ones(2))
    with pytest.raises(TypeError, match="traced with tensors"):
        _C._trace_graph(lambda x: x, 3)
    assert make_fx(lambda x: x + 1)(wick.ones(2))(wick.ones(2)).tolist() == [2, 2]  # and nothing is left on


# ---- GraphModule as a module ----


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.scale = nn.Parameter(wick.ones(2))
        self.register_buffer("shift", wick.full((2,), 0.5))
        self.unused = nn.Linear(3, 3)


def net_module():
    net, graph = Net(), fx.Graph()
    x = graph.placeholder("x")
    scale, shift, bias = graph.get_attr("scale"), graph.get_attr("shift"), graph.get_attr("layer.bias")
    y = graph.call_module("layer", (x,))
    y = graph.call_function(torch.mul, (y, scale))
    y = graph.call_function(torch.add, (y, shift))
    graph.output(graph.call_function(torch.add, (y, bias)))
    return net, fx.GraphModule(net, graph)


def test_attributes_come_from_the_root():
    net, module = net_module()
    assert module.scale is net.scale and module.layer is net.layer and not hasattr(module, "unused")
    assert set(module.state_dict()) == {"scale", "shift", "layer.weight", "layer.bias"}
    assert set(module.parameters()) == {net.scale, net.layer.weight, net.layer.bias}
    x = wick.randn(3, 2)
    expected = net.layer(x) * net.scale + net.shift + net.layer.bias
    same(module(x), expected)
    same(module(x), expected)
    module(x).sum().backward()
    assert net.scale.grad is not None and net.layer.weight.grad is not None
    assert repr(module) == "GraphModule(\n  (layer): Linear(in_features=2, out_features=2, bias=True)\n)"
    module.eval()
    assert not module.layer.training
    module.to(wick.float64)
    assert module(x.double()).dtype == wick.float64


def test_attributes_come_from_a_dict():
    graph = fx.Graph()
    graph.output(graph.call_function(torch.add, (graph.placeholder("x"), graph.get_attr("a.w"))))
    module = fx.GraphModule({"a.w": wick.ones(2)}, graph)
    assert list(module.state_dict()) == ["a.w"] and module(wick.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="Node a_w referenced target a.w but that target was not provided in"):
        fx.GraphModule({}, graph)
    with pytest.raises(RuntimeError, match="Unsupported type 3 passed for root!"):
        fx.GraphModule(3, graph)


def test_missing_attributes():
    net, module = net_module()
    assert module.graph.owning_module is module
    module.graph.lint()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module.graph.get_attr("missing")
    assert len(caught) == 1 and caught[0].category is UserWarning
    with pytest.raises(RuntimeError, match="Node missing target missing references nonexistent attribute missing"):
        module.graph.lint()
    list(module.graph.nodes)[0].append(list(module.graph.nodes)[-1])
    with pytest.raises(AttributeError, match="missing"):
        module(wick.ones(1, 2))
    module.graph.erase_node(list(module.graph.nodes)[1])
    assert module.add_submodule("block.layer", nn.Linear(2, 2)) and "block.layer.weight" in module.state_dict()
    module.delete_all_unused_submodules()
    assert not hasattr(module, "block") and hasattr(module, "layer")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_and_pickles(copied):
    x = wick.randn(3, 2)
    scale = wick.full((2,), 2.0)
    for module in (net_module()[1], make_fx(lambda x: (x * scale).max(0))(x), fx.GraphModule({}, small_graph()[0])):
        other = copied(module)
        expected, got = module(x), other(x)
        for a, b in zip(*((t if isinstance(t, tuple) else (t,)) for t in (expected, got)), strict=True):
            same(a, b)
        assert other.code == module.code and type(other).__name__ == type(module).__name__
        assert list(other.state_dict()) == list(module.state_dict())
        assert other.graph is not module.graph and other.graph.owning_module is other
        for a, b in zip(module.parameters(), other.parameters(), strict=True):
            assert a is not b


def test_hooks_and_modules_around_it():
    module = fx.GraphModule({}, small_graph()[0])
    outer = nn.Sequential(module, nn.ReLU())
    calls = []
    module.register_forward_hook(lambda m, args, out: calls.append(out))
    assert outer(wick.ones(2)).tolist() == [4, 4] and len(calls) == 1
    module.graph = small_graph()[0]
    assert outer(wick.ones(2)).tolist() == [4, 4]
    with pytest.raises(AssertionError, match="Expected a Graph instance"):
        module.graph = 3


# ---- interpreters ----


def test_interpreter():
    _, module = net_module()
    x = wick.randn(3, 2)
    same(fx.Interpreter(module).run(x), module(x))

    class Logged(fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            self.seen.append(n.name)
            return result

        def call_function(self, target, args, kwargs):
            if target is torch.mul:
                return args[0]
            return super().call_function(target, args, kwargs)

    logged = Logged(module)
    logged.seen = []
    same(logged.run(x), module.layer(x) + module.shift + module.layer.bias)
    assert logged.seen == [n.name for n in module.graph.nodes]
    add = module.graph.find_nodes(op="call_function", target=torch.mul)[0]
    assert fx.Interpreter(module).run(x, initial_env={add: wick.zeros(3, 2)}).shape == (3, 2)
    node = fx.Graph().call_function(torch.add, (add, 1))
    with pytest.raises(RuntimeError, match="referenced nonexistent value mul"):
        fx.Interpreter(module).fetch_args_kwargs_from_env(node)
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter x"):
        fx.Interpreter(module).run()


def test_transformer():
    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.sub if target is torch.mul else target, args, kwargs)

    module = Swap(fx.GraphModule({}, small_graph()[0])).transform()
    assert module(wick.ones(2)).tolist() == [0, 0] and "torch.sub(add, add)" in module.code


def test_map_arg():
    _, x, add, _, _ = small_graph()
    mapped = fx.map_arg((x, [add, 1], {"k": slice(x, None)}, "s"), lambda n: n.name)
    assert mapped == ("x", ["add", 1], {"k": slice("x", None)}, "s")


# ---- what compile() gives ----


def test_backends_get_graph_modules():
    given = []

    def backend(module, inputs):
        given.append((module, inputs))
        for node in module.graph.nodes:
            if node.target is aten.mul.Scalar:
                node.target = aten.add.Scalar
        module.recompile()
        return module.forward

    @wick.compile(backend=backend)
    def f(x, y):
        z = x * 2
        y.add_(z)
        return z, z.max(dim=0)

    x = wick.tensor([[1.0, 2.0], [3.0, 4.0]])
    f(x, wick.zeros(2, 2))
    for _ in range(2):
        y = wick.zeros(2, 2)
        z, (values, indices) = f(x, y)
        assert z.tolist() == y.tolist() == [[3, 4], [5, 6]] and values.tolist() == [5, 6] and indices.tolist() == [1, 1]
    (module, inputs), *more = given
    assert not more and len(inputs) == 2 and inputs[0] is x and isinstance(module, fx.GraphModule)
    assert "z = x * 2" in module.print_readable(print_output=False)
    assert 'File "' + __file__ in module.graph.find_nodes(op="call_function", target=aten.add.Scalar)[0].stack_trace


@pytest.mark.parametrize("edit", [False, True])
def test_captured_graphs_keep_their_tape(edit):
    layer = nn.Linear(2, 2)

    def backend(module, inputs):
        if edit:
            for node in module.graph.nodes:
                node.name = node.name + "_again"
            module.graph.find_nodes(op="output")[0].type = tuple
            module.graph.eliminate_dead_code()
        return module

    @wick.compile(backend=backend)
    def f(x):
        with wick.no_grad():
            plain = layer(x)
        return layer(x).sum(), plain

    x = wick.ones(3, 2)
    expected = layer(x).sum()
    (expected_grad,) = wick.autograd.grad(expected, layer.weight)
    for _ in range(3):
        layer.weight.grad = None
        total, plain = f(x)
        same(total.detach(), expected.detach())
        assert not plain.requires_grad
        total.backward()
        same(layer.weight.grad, expected_grad)


class Options:
    pass


OPTIONS = Options()


def test_changing_numbers_reach_the_backend():
    given = []

    def backend(module, inputs):
        given.append((module.code, inputs))
        return module

    @wick.compile(backend=backend)
    def f(x):
        return x.add(x, alpha=OPTIONS.alpha)

    for i in range(5):
        OPTIONS.alpha = 0.5 + i
        assert f(wick.ones(2)).tolist() == [1.5 + i] * 2
    assert len(given) == 2 and given[1][1][1] == 1.5 and "alpha = number" in given[1][0]


DYNAMIC = """graph(%x: f32[s0, s1], %y: f32[s0]) symbols {s0 = 8 in [2, inf), s1 = 4 in [2, inf)} {
  %view: f32[s0*s1] = view(%x, [s0*s1])
  %slice: f32[s0*s1 - 1] = slice.Tensor(%view, 0, 0, s0*s1 - 1)
  %zeros: f32[s0, s1 + 1] = zeros([s0, s1 + 1])
  return (%slice, %zeros)
}
"""


def test_symbolic_sizes():
    module = _C._parse_graph(DYNAMIC)
    other = _C._parse_graph(DYNAMIC)
    names = [n.name for n in other.graph.nodes]
    assert names[:4] == ["x", "y", "sym_size_int", "sym_size_int_1"]
    assert "view = torch.ops.aten.view.default(x, [mul])" in other.code
    assert "sym_size_int = torch.ops.aten.sym_size.int(x, 0)" in other.code
    for node in other.graph.nodes:
        if node.name == "zeros":
            node.target = aten.ones.default
    for sizes in ((3, 4), (5, 6), (5, 6), (3, 4)):
        x = wick.arange(float(sizes[0] * sizes[1])).reshape(sizes)
        for m, made in ((module, wick.zeros), (other, wick.ones)):
            flat, filled = m(x, x[:, 0])
            same(flat, x.view(-1)[:-1])
            same(filled, made(sizes[0], sizes[1] + 1))
    assert not module.graph._edited and other.graph._edited


# ---- life ----


def test_nothing_leaks():
    def once():
        module = make_fx(lambda x: (x + 1).max(0))(wick.ones(2, 2))
        list(module.graph.nodes)[1].meta  # noqa: B018
        list(module.graph.nodes)[1].name = "other"
        module.graph.eliminate_dead_code()
        module(wick.ones(2, 2))
        module(wick.ones(2, 2))
        copy.deepcopy(module)
        with pytest.raises(RuntimeError):
            module.graph.erase_node(list(module.graph.nodes)[0])
        return weakref.ref(module), weakref.ref(module.graph), weakref.ref(list(module.graph.nodes)[1])

    references = once()
    gc.collect()
    assert [r() for r in references] == [None, None, None]
    if not hasattr(_C, "_live_allocations"):
        return
    counts = []
    for _ in range(4):
        once()
        gc.collect()
        counts.append(_C._live_allocations())
    assert counts[-1] == counts[-2]


def test_reference_counts():
    x = wick.ones(2)
    graph, *_ = small_graph()
    module = fx.GraphModule({}, graph)
    for _ in range(3):
        module(x)
    before = sys.getrefcount(x), sys.getrefcount(torch.add)
    for _ in range(200):
        module(x)
        str(graph)
        graph.python_code("self")
        node = graph.call_function(torch.add, (None, 1))
        graph.erase_node(node)
    del node
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(torch.add)) == before


def test_a_node_keeps_its_graph():
    node = list(small_graph()[0].nodes)[1]
    gc.collect()
    assert [n.name for n in node.graph.nodes] == ["x", "add", "mul", "output"] and node.next.name == "mul"


def test_import_is_lazy():
    code = "import sys, wick; assert 'wick.fx' not in sys.modules and 'wick._ops' not in sys.modules; wick.fx.Graph"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_traced_value_in_a_list():
    graph = fx.symbolic_trace(lambda x, y: wick.cat([x, y], 1) + wick.stack((x, y)).sum(0)[:, :1])
    assert "torch.cat([x, y], 1)" in graph.code
    x, y = wick.ones(2, 2), wick.zeros(2, 2)
    assert graph(x, y).tolist() == (wick.cat([x, y], 1) + wick.stack((x, y)).sum(0)[:, :1]).tolist()
    with pytest.raises(TypeError, match="expected Tensor as element 0 in argument 0, but got int"):
        wick.cat([1, 2])


def test_one_tensor_for_two_inputs_of_an_edited_graph_after_a_capture():
    wick.compile(lambda x: x + 1, backend="eager", fullgraph=True)(wick.ones(2))  # its graph is run node by node
    graph = wick.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(graph.call_function(wick.add, (x, y)))
    one = wick.ones(2)
    assert wick.fx.GraphModule({}, graph)(one, one).tolist() == [2, 2]

"""compiler.load_graph: stages of the compiler from their text, run from Python; what does not fit is refused, hostile text too."""

import random
import re

import pytest

import wick
import wick.nn.functional as F  # noqa: N812
from wick import _C, compiler


def function(x, w, b, labels):
    y = F.gelu(x @ w + b)
    x.mul_(2)
    return F.softmax(y * 0.5, dim=-1), F.cross_entropy(y, labels), y.gather(1, labels[:, None])


def inputs():
    wick.manual_seed(3)
    return wick.randn(8, 16), wick.randn(16, 32), wick.randn(32), wick.randint(0, 32, (8,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("stages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WICK_DEBUG_DIR", str(path))
        wick.compile(function)(*inputs())
    return path


@pytest.fixture
def fused(folder):
    (file,) = folder.glob("*.fuse.txt")
    return file


def results(graph):
    tensors = inputs()
    return [repr(t.tolist()) for t in [*graph(*tensors), *tensors]]


def test_stages_give_what_the_function_gives(folder):
    found = (f for f in folder.glob("graph_*.txt") if re.search(r"\.\d+\.", f.name))
    files = sorted(found, key=lambda f: int(f.name.split(".")[1]))
    assert [f.name.split(".")[2] for f in files] == [
        "captured",
        "sizes",
        "decompose",
        "fold",
        "common",
        "parts",
        "cats",
        "bytes",
        "dead",
        "layout",
        "weights",
        "casts",
        "fuse",
        "together",
    ]
    for file in files:
        assert results(compiler.load_graph(file)) == results(function)
        assert results(compiler.load_graph(file, compiled=True)) == results(function)


def test_a_kernel_is_defined_in_front_of_the_graph(fused):
    text = fused.read_text()
    assert re.search(
        r"^kernel_\d+ = kernel \{\n# %add = add.Tensor  .*test_load_graph.py:\d+ in function\n", text, re.M
    )
    graph = compiler.load_graph(fused)
    assert type(graph).__name__ == "LoadedGraph"
    assert "# %add" not in str(graph) and str(_C.LoadedGraph(str(graph))) == str(graph)
    assert graph.inputs == [
        ("input", wick.float32, (8, 16), (16, 1)),
        ("input_1", wick.float32, (16, 32), (32, 1)),
        ("input_2", wick.float32, (32,), (1,)),
        ("input_3", wick.int64, (8,), (1,)),
    ]


def test_inputs_that_do_not_fit_are_refused(fused):
    graph = compiler.load_graph(fused)
    x, w, b, labels = inputs()
    with pytest.raises(TypeError, match="takes 4 tensors but 1 were given"):
        graph(x)
    with pytest.raises(TypeError, match="no keyword arguments"):
        graph(x, w, b, labels=labels)
    with pytest.raises(TypeError, match="input %input_1 is a Tensor, not int"):
        graph(x, 3, b, labels)
    with pytest.raises(ValueError, match="input %input_2: expected float32"):
        graph(x, w, b.double(), labels)
    with pytest.raises(ValueError, match="input %input: expected a size of 8, not 7"):
        graph(x[1:], w, b, labels)
    with pytest.raises(ValueError, match="input %input_1: expected a stride of 32, not 1"):
        graph(x, wick.randn(32, 16).t(), b, labels)
    with pytest.raises(ValueError, match="input %input_2: expected a tensor of 1 dimensions"):
        graph(x, w, b[None], labels)
    flat = wick.randn(128 + 512)
    with pytest.raises(ValueError, match="share memory, and the graph writes inputs"):
        graph(flat[:128].view(8, 16), flat[128:].view(16, 32), b, labels)
    with pytest.raises(RuntimeError, match="index 57 is out of bounds"):
        graph(x, w, b, labels * 0 + 57)


def test_symbolic_sizes(tmp_path, monkeypatch):
    monkeypatch.setenv("WICK_DEBUG_DIR", str(tmp_path))

    def rows(x):
        return F.softmax(x.t() * x.shape[0], dim=0).sum(0)

    wick.compile(rows, dynamic=True)(wick.randn(5, 7))
    (file,) = tmp_path.glob("*.fuse.txt")
    graph = compiler.load_graph(file)
    assert graph.inputs == [("input", wick.float32, (5, 7), (7, 1))]
    for shape in ((5, 7), (3, 9), (40, 1000), (2, 2)):
        x = wick.randn(shape)
        assert wick.equal(graph(x)[0], rows(x))
    with pytest.raises(ValueError, match="expected a stride of 5, not 1"):
        graph(wick.randn(5, 6).t())


def test_constants_lie_beside_the_stages(tmp_path, monkeypatch):
    monkeypatch.setenv("WICK_DEBUG_DIR", str(tmp_path))

    def table(x):
        return x + wick.tensor([float(i) for i in range(100)]) * wick.tensor([2.0])

    x = wick.randn(3, 100)
    expected = wick.compile(table)(x)
    files = sorted(f for f in tmp_path.glob("graph_*.txt") if re.search(r"\.\d+\.", f.name))
    assert (tmp_path / "graph_{}.constants.safetensors".format(files[0].name.split(".")[0][6:])).exists()
    for file in files:
        assert wick.equal(compiler.load_graph(file)(x)[0], expected)
    (file,) = tmp_path.glob("*.captured.txt")
    alone = tmp_path / "alone.txt"
    alone.write_text(file.read_text())
    with pytest.raises(ValueError, match="a constant that was given"):
        compiler.load_graph(alone)
    constants = [wick.tensor([float(i) for i in range(100)])]
    assert wick.equal(compiler.load_graph(alone, constants)(x)[0], expected)
    with pytest.raises(TypeError, match="constants are Tensors"):
        compiler.load_graph(alone, [1])


NEAR = """{name} = kernel {{
loops 1 at 0
bind 0: input 0 offset 1 strides 2
bind 1: result 0 offset 3 strides 4
result 0: f32[1] sizes 5 strides 6
nest free (i0 < s0_0)
buffer 0: float32[1]
buffer 1: float32[1] written
%1 = load float32 0[i0]
%2 = neg float32 %1
store 1[i0] %2
}}
graph(%x: f32[4]) {{
  %y: f32[4] = {name}([%x], [4, 0, 1, 0, 1, 4, 1])
  return (%y)
}}
"""


def test_a_kernel_by_hand():
    graph = _C.LoadedGraph(NEAR.format(name="turned_round"))
    assert graph(wick.tensor([1.0, 2.0, 3.0, 4.0]))[0].tolist() == [-1, -2, -3, -4]


def is_refused(text, old, new, error):
    """The text with one thing changed."""
    assert old in text
    with pytest.raises(ValueError, match=error):
        _C.LoadedGraph(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("turned_round =", "neg =", "there are two operators neg"),
        ("= kernel", "= product", "expected a kernel or control flow, not 'product'"),
        ("strides 6\n", "strides 6\nbind\n", "line 5.*expected a smaller number|expected"),
        ("bind 1: result 0", "bind 1: result 1", "a buffer of a result that there is not"),
        ("bind 1: result 0", "bind 1: input 0", "results are written, inputs read"),
        ("loops 1 at 0\n", "", "sizes"),
        ("nest free", "nest", "`loops` is for a nest that is free of geometry"),
        ("result 0: f32", "result 0: f64", "another dtype"),
        ("0[i0]", "0[i0*i0]", "sum of loop variables|coordinate|free"),
        ("strides 6", "strides 7", "there are not all|described otherwise"),
        ("sizes 5", "sizes 900", "described otherwise"),
        ("offset 1", "offset 99", "there are not all numbers"),
        ("input 0 offset", "input 1 offset", "there are not all inputs"),
        ("}\ngraph", "graph", "expected a buffer, params, a store or a value"),
        ("}\ngraph", "} graph", "expected a buffer, params, a store or a value"),
        ("f32[4] = turned_round", "f32[5] = turned_round", "described otherwise"),
        ("%x: f32[4]", "%x: i64[4]", "another dtype than the buffer"),
    ],
)
def test_kernels_that_do_not_fit_are_refused(old, new, error):
    text = NEAR.format(name="turned_round")
    is_refused(text, old, new, error)


@pytest.mark.parametrize("numbers", ["[4, 1, 1, 0, 1, 4, 1]", "[4, -1, 1, 0, 1, 4, 1]", "[4, 0, 2, 0, 1, 4, 1]", "[5, 0, 1, 0, 0, 4, 1]",
                                     "[4, 0, 1, 1, 1, 4, 1]", "[4, 0, 1, 0, -1, 4, 1]", "[-1, 0, 1, 0, 1, 4, 1]",
                                     "[4, 0, 4611686018427387904, 0, 1, 4, 1]", "[9223372036854775807, 0, 1, 0, 1, 4, 1]"])  # fmt: skip
def test_launches_that_leave_memory_are_refused(numbers):
    graph = _C.LoadedGraph(NEAR.format(name="turned_round").replace("[4, 0, 1, 0, 1, 4, 1]", numbers))
    with pytest.raises(ValueError, match="would leave the memory of a tensor"):
        graph(wick.ones(4))


AGAIN = """both = kernel {
loops 1 at 0
bind 0: input 0 offset 1 strides 2
bind 1: result 0 offset 3 strides 4
result 0: f32[1] sizes 5 strides 6
result 1: f32[1] sizes 12 strides 13
again
loops 1 at 7
bind 0: input 1 offset 8 strides 9
bind 1: result 1 offset 10 strides 11
nest free (i0 < s0_0)
buffer 0: float32[1]
buffer 1: float32[1] written
%1 = load float32 0[i0]
%2 = neg float32 %1
store 1[i0] %2
}
graph(%x: f32[4], %y: f32[3]) {
  %a: (f32[4], f32[3]) = both([%x, %y], [4, 0, 1, 0, 1, 4, 1, 3, 0, 1, 0, 1, 3, 1])
  %b: f32[4] = item(%a, 0)
  %c: f32[3] = item(%a, 1)
  return (%b, %c)
}
"""


def test_a_kernel_of_two_launches():
    graph = _C.LoadedGraph(AGAIN)
    assert str(_C.LoadedGraph(str(graph))) == str(graph) and "again" in str(graph)
    assert [t.tolist() for t in graph(wick.arange(4.0), wick.arange(3.0) + 4)] == [[-0.0, -1, -2, -3], [-4, -5, -6]]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("bind 1: result 1 offset 10 strides 11\n", "", "as many buffers before it as the first launch has"),
        ("bind 1: result 0 offset 3 strides 4\n", "", "as many buffers before it as the first launch has|each result"),
        ("loops 1 at 7\n", "", "sizes"),
        ("loops 1 at 7", "loops 1 at 900", "there are not all numbers"),
        ("offset 8 strides 9", "offset 8 strides 99", "there are not all numbers"),
        ("input 1 offset 8", "input 2 offset 8", "there are not all inputs"),
        ("result 1 offset", "result 2 offset", "a buffer of a result that there is not"),
        ("result 1 offset", "result 0 offset", "each result needs a buffer"),
        ("result 1 offset", "input 0 offset", "results are written, inputs read"),
        ("again\n", "again\n" + "again\n" * 40, "fewer launches|as many buffers"),
        ("strides 13\nagain", "strides 13\nproduct mm 0 1 in 0\nagain", "several launches|a product needs"),
        ("%y: f32[3]", "%y: i64[3]", "another dtype than the buffer"),
    ],
)
def test_further_launches_that_do_not_fit_are_refused(old, new, error):
    is_refused(AGAIN, old, new, error)


@pytest.mark.parametrize(
    "numbers", ["4, 0, 1, 0, 1, 3, 1", "3, 1, 1, 0, 1, 3, 1", "3, 0, 1, 0, 2, 3, 1", "-1, 0, 1, 0, 1, 3, 1"]
)
def test_further_launches_that_leave_memory_are_refused(numbers):
    graph = _C.LoadedGraph(AGAIN.replace("3, 0, 1, 0, 1, 3, 1]", numbers + "]"))
    with pytest.raises(ValueError, match="would leave the memory of a tensor"):
        graph(wick.ones(4), wick.ones(3))


DRAWN = """dropped = kernel {
loops 2 at 0
bind 0: drawn offset 2 strides 3
bind 1: input 0 offset 5 strides 6
bind 2: result 0 offset 8 strides 9
result 0: f32[2] sizes 11 strides 13
draw _dropout_mask 0 in -
nest free (i0 < s1_0)
buffer 0: bool[1]
buffer 1: float32[1]
buffer 2: float32[1] written
%1 = load bool 0[i0]
%2 = cast float32 %1
%3 = load float32 1[i0]
%4 = mul float32 %3 %2
store 2[i0] %4
}
graph(%x: f32[40, 50]) {
  %y: f32[40, 50] = dropped([%x], [40, 50, 0, 50, 1, 0, 50, 1, 0, 50, 1, 40, 50, 50, 1], 0.25)
  return (%y)
}
"""


def kept(text):
    """With the mask as a second result."""
    for old, new in (
        ("drawn", "result 1"),
        ("in -", "in 1"),
        ("\ndraw", "\nresult 1: bool[2] sizes 11 strides 13\ndraw"),
        ("  %y: f32[40, 50] = dropped", "  %l: (f32[40, 50], bool[40, 50]) = dropped"),
        ("  return (%y)", "  %y: f32[40, 50] = item(%l, 0)\n  %m: bool[40, 50] = item(%l, 1)\n  return (%y, %m)"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    return text


def test_a_draw_by_hand():
    x = wick.arange(2000.0).reshape(40, 50)
    wick.manual_seed(4)
    mask = wick.empty(40, 50).bernoulli_(0.75)
    after = wick.rand(3)
    for text in (DRAWN, kept(DRAWN)):
        graph = _C.LoadedGraph(text)
        assert str(_C.LoadedGraph(str(graph))) == str(graph)
        wick.manual_seed(4)
        outputs = graph(x)
        assert wick.equal(outputs[0], x * mask) and wick.equal(wick.rand(3), after)
        assert all(wick.equal(m, mask.bool()) for m in outputs[1:])


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("draw _dropout_mask 0 in -\n", "", "results are written, inputs read"),
        ("draw _dropout_mask", "draw neg", "expected a draw of random values"),
        ("draw _dropout_mask", "draw none", "expected the name of an operator"),
        ("_dropout_mask 0", "_dropout_mask 12", "expected a smaller number"),
        ("in -", "in 0", "results are written, inputs read"),
        ("in -", "in 7", "random values need"),
        ("in -\n", "in -\nproduct mm 0 0 in 0\n", "no product beside them"),
        ("bind 2: result 0", "bind 2: drawn", "results are written, inputs read"),
        ("bind 1: input 0", "bind 1: drawn", "results are written, inputs read"),
        ("loops 2 at 0", "loops 3 at 0", "random values need"),
    ],
)
def test_draws_that_do_not_fit_are_refused(old, new, error):
    is_refused(DRAWN, old, new, error)


@pytest.mark.parametrize("numbers", ["[40, 50, 1, 50, 1,", "[40, 50, 0, 1, 1,", "[40, 50, 0, 50, 0,", "[40, 50, -1, 50, 1,",
                                     "[-40, 50, 0, 50, 1,", "[40, 51, 0, 51, 1,", "[4611686018427387904, 4, 0, 4, 1,"])  # fmt: skip
def test_draws_that_leave_memory_are_refused(numbers):
    for text in (DRAWN, kept(DRAWN)):
        graph = _C.LoadedGraph(text.replace("[40, 50, 0, 50, 1,", numbers))
        with pytest.raises(ValueError, match="would leave the memory of a tensor"):
            graph(wick.ones(40, 50))
    graph = _C.LoadedGraph(kept(DRAWN).replace("[40, 50, 0, 50, 1,", "[39, 50, 0, 50, 1,"))
    with pytest.raises(ValueError, match="would leave the memory of a tensor"):
        graph(wick.ones(40, 50))


def test_probability_of_a_draw_from_text():
    with pytest.raises(RuntimeError, match=r"p to be in \[0, 1\], but got p=-1"):
        _C.LoadedGraph(DRAWN.replace("0.25)", "2.0)"))(wick.ones(40, 50))


MADE = """of_exp = kernel {
loops 2 at 0
bind 0: input 0 offset 2 strides 3
bind 1: made offset 5 strides 6
result 0: f32[2] sizes 8 strides 10
product mm 1 - in 0
made 1: 2 at 12 transposed
nest free (i0 < s1_0)
buffer 0: float32[1]
buffer 1: float32[1] written
%1 = load float32 0[i0]
%2 = exp float32 %1
store 1[i0] %2
}
graph(%w: f32[5, 4], %x: f32[3, 4]) {
  %y: f32[3, 5] = of_exp([%w, %x], [5, 4, 0, 4, 1, 0, 4, 1, 3, 5, 5, 1, 4, 5])
  return (%y)
}
"""


def test_an_operand_by_hand():
    graph, w, x = _C.LoadedGraph(MADE), wick.rand(5, 4), wick.rand(3, 4)
    assert str(_C.LoadedGraph(str(graph))) == str(graph)
    assert wick.equal(graph(w, x)[0], x @ w.exp().t())


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("product mm 1 - in 0\n", "", "an operand needs a product"),
        ("made 1: 2 at 12 transposed\n", "", "results are written, inputs read"),
        ("made 1:", "made 0:", "an operand that is made is no input"),
        ("mm 1 -", "mm 1 0", "an operand that is made is no input"),
        ("made 1:", "made 2:", "expected a smaller number"),
        ("made 1: 2", "made 1: 1", "expected at least two dims"),
        ("at 12", "at 13", "there are not all numbers"),
        ("bind 1: made", "bind 1: result 0", "results are written, inputs read"),
        ("bind 0: input 0", "bind 0: made", "results are written, inputs read"),
        ("loops 2 at 0", "loops 3 at 0", "needs .*a kernel over its rows and columns"),
        ("in 0", "in 1", "needs a result"),
    ],
)
def test_operands_that_do_not_fit_are_refused(old, new, error):
    is_refused(MADE, old, new, error)


@pytest.mark.parametrize("old, new", [("transposed", ""), ("mm 1 -", "mm - -"),
                                      ("4, 5])", "4, 4])"), ("4, 5])", "-4, -5])"), ("4, 5])", "4611686018427387904, 4])"),
                                      ("[5, 4, 0", "[4, 5, 0"), ("[5, 4, 0", "[5, 4, 1"), ("[5, 4, 0", "[6, 4, 0")])  # fmt: skip
def test_operands_that_leave_memory_are_refused(old, new):
    assert old in MADE
    graph = _C.LoadedGraph(MADE.replace(old, new, 1))
    with pytest.raises((ValueError, RuntimeError), match="would leave the memory of a tensor|cannot be multiplied"):
        graph(wick.rand(5, 4), wick.rand(3, 4))


SCORED = """scored = kernel {
loops 2 at 0
bind 0: input 0 offset 2 strides 3
bind 1: made offset 5 strides 6
result 0: f32[4] sizes 8 strides 12
product _scaled_dot_product_flash_attention_for_cpu - 1 1 = 0x0p+0 true - = 0x1p-1 in 0
made 0: 4 at 16
nest free (i0 < s1_0)
buffer 0: float32[1]
buffer 1: float32[1] written
%1 = load float32 0[i0]
%2 = exp float32 %1
store 1[i0] %2
}
graph(%x: f32[1, 1, 2, 3], %k: f32[1, 1, 4, 3]) {
  %y: f32[1, 1, 2, 3] = scored([%x, %k], [2, 3, 0, 3, 1, 0, 3, 1, 1, 1, 2, 3, 6, 6, 3, 1, 1, 1, 2, 3])
  return (%y)
}
"""


def test_attention_by_hand():
    graph, x, k = _C.LoadedGraph(SCORED), wick.rand(1, 1, 2, 3), wick.rand(1, 1, 4, 3)
    assert str(_C.LoadedGraph(str(graph))) == str(graph)
    expected = wick.nn.functional.scaled_dot_product_attention(x.exp(), k, k, is_causal=True, scale=0.5)
    assert wick.equal(graph(x, k)[0], expected)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("true", "-", "what the product's parameter takes"),
        ("= 0x1p-1", "false", "what the product's parameter takes"),
        ("= 0x1p-1", "= x", "expected a number"),
        ("- 1 1", "- 1 = 1", "what the product's parameter takes"),
        ("- 1 1", "0 1 1", "an operand that is made is no input"),
    ],
)
def test_attention_that_does_not_fit_is_refused(old, new, error):
    is_refused(SCORED, old, new, error)


@pytest.mark.parametrize("old, new", [("made 0: 4 at 16", "made 0: 3 at 17"), ("- 1 1", "- 1 -"), ("2, 3])", "3, 2])"),
                                      ("1, 1, 2, 3])", "1, 2, 1, 3])"), ("true -", "true 0")])  # fmt: skip
def test_attention_that_leaves_memory_is_refused(old, new):
    assert old in SCORED
    graph = _C.LoadedGraph(SCORED.replace(old, new, 1))
    with pytest.raises((ValueError, RuntimeError), match="would leave the memory of a tensor|should"):
        graph(wick.rand(1, 1, 2, 3), wick.rand(1, 1, 4, 3))


def test_hostile_text(fused):
    """Changed at random it is refused, or gives something or an error, and nothing worse."""
    text, chance = str(compiler.load_graph(fused)), random.Random(5)
    numbers = ["0", "1", "2", "3", "7", "8", "9", "31", "33", "512", "-1", "1000000", "4611686018427387904"]
    words = sorted({*re.findall(r"[\w.%]+", text), "}", "{", "[", "f64", "i0 + r0", "\n"})
    loaded = ran = 0
    for _ in range(1500):
        changed = text
        for _ in range(chance.choice((1, 1, 2))):
            number = chance.random() < 0.8
            found = chance.choice(list(re.finditer(r"\b\d+\b" if number else r"[\w.%]+|[^\s\w]", changed)))
            by = chance.choice(numbers) if number else chance.choice(words) if chance.random() < 0.8 else ""
            changed = changed[: found.start()] + by + changed[found.end() :]
        try:
            graph = _C.LoadedGraph(changed)
            loaded += 1
            graph(*inputs())
            ran += 1
        except (ValueError, RuntimeError, IndexError, TypeError, NotImplementedError, MemoryError):
            pass
    assert loaded > 100 and ran > 50


# ---- compiled as far as asked ----

TWO_KERNELS = """graph(%x: f32[70, 70]) {
  %exp: f32[70, 70] = exp(%x)
  %add: f32[70, 70] = add.Tensor(%exp, %x)
  %cumsum: f32[70, 70] = cumsum(%add, 0)
  %sin: f32[70, 70] = sin(%cumsum)
  %mul: f32[70, 70] = mul.Tensor(%sin, %cumsum)
  return (%mul)
}
"""


def test_limits_of_passes_kernels_and_native_code():
    x = wick.randn(70, 70)
    (plain,) = _C.LoadedGraph(TWO_KERNELS)(x)
    counts = {}
    for limits in [(0, None, 0), (None, 0, 0), (None, 1, 0), (None, None, 0), (None, None, 1), (None, None, None)]:
        graph = _C.LoadedGraph(TWO_KERNELS, limits=limits)
        kernels = graph.report()["kernels"]
        counts[limits] = len(kernels), sum(kernel["native"] for kernel in kernels)
        assert wick.equal(graph(x)[0], plain)
    most = counts[None, None, 0][0]
    assert counts[0, None, 0][0] == counts[None, 0, 0][0] == 0 and counts[None, 1, 0][0] == 1 < most
    assert counts[None, None, 1][1] <= counts[None, None, 0][1] + 1 and counts[None, None, None][0] == most


@pytest.mark.parametrize("limits", [(1, 2), [1, 2, 3], ("a", None, None)])
def test_limits_are_three_numbers(limits):
    with pytest.raises(TypeError):
        _C.LoadedGraph(TWO_KERNELS, limits=limits)

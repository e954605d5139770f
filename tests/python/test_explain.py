"""What explain(), its page, Compiled.kernels() and WICK_DEBUG_DIR tell of a captured function."""

import gc
import html.parser
import os
import re
import shutil
import subprocess
import sys
import weakref

import pytest

import wick
import wick.nn.functional as F  # noqa: N812
from wick._dynamo import ExplainOutput, explain
from wick._dynamo.explain_hints import hint_of


def plain(x):
    return (x * 2).relu() + 1


def broken(x):
    y = x * 2
    print("<between>", y, end="")
    return y @ y


# ---- Compiled.kernels() ----


def kernels_of(function, *args):
    compiled = wick.compile(function)
    compiled(*args)
    return compiled, compiled.kernels()


def test_a_fused_graph():
    _, (graph,) = kernels_of(plain, wick.ones(2, 3))
    (kernel,) = graph["kernels"]
    assert (graph["kind"], graph["derivative"], graph["halves"]) == ("graph", False, [])
    assert [line.split()[2] for line in kernel["origin"].splitlines()] == ["mul.Scalar", "relu", "add.Scalar"]
    assert "test_explain.py" in kernel["origin"] and kernel["nest"].startswith("nest ")
    assert f"{kernel['name']}(" in graph["graph"]
    (step,) = graph["steps"]
    assert (step["kernel"], step["op"], step["runs"]) == (kernel["name"], kernel["name"], 0)
    assert step["bytes"] == 2 * 24 and step["flops"] == 0  # read and written once
    assert step["place"][0] == __file__ and step["place"][1] == "plain"


def test_segments_in_order_and_those_without_operators(capsys):
    def later(x):
        print(x, end="")
        return x @ x

    _, (first, second) = kernels_of(later, wick.ones(2, 2))
    assert first is None
    assert [step["op"] for step in second["steps"]] == ["mm"] and second["kernels"] == []


def test_halves_of_a_derivative():
    x = wick.ones(2, 3, requires_grad=True)
    compiled, (graph,) = kernels_of(lambda x: x.exp().sum(), x)
    assert graph["derivative"] and [half["kind"] for half in graph["halves"]] == ["forward"]
    assert graph["steps"] == [] and "taped exp" in graph["graph"]
    compiled(x).backward()
    (graph,) = compiled.kernels()
    assert [half["kind"] for half in graph["halves"]] == ["forward", "backward"]
    assert all(half["kernels"] and half["steps"] for half in graph["halves"])
    numbers = [graph["number"], *(half["number"] for half in graph["halves"])]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    "function, shapes, flops",
    [
        (lambda a, b: a @ b, [(2, 3), (3, 5)], 2 * 2 * 3 * 5),
        (wick.bmm, [(4, 2, 3), (4, 3, 5)], 4 * 2 * 2 * 3 * 5),
        (wick.addmm, [(2, 5), (2, 3), (3, 5)], 2 * 2 * 3 * 5),
        (lambda x, w, b: wick.nn.functional.linear(x, w, b), [(7, 2, 3), (5, 3), (5,)], 7 * 2 * 2 * 3 * 5),
        (lambda *a: wick.nn.functional.scaled_dot_product_attention(*a), [(1, 2, 3, 4)] * 3, 4 * 2 * 3 * 3 * 4),
    ],
)
def test_operations_of_products(function, shapes, flops):
    _, (graph,) = kernels_of(lambda *args: function(*args), *(wick.ones(shape) for shape in shapes))
    assert sum(step["flops"] for step in graph["steps"]) == flops


def bytes_of(function, *args):
    _, (graph,) = kernels_of(function, *args)
    return sum(step["bytes"] for step in graph["steps"])


def test_bytes_count_what_is_touched_once():
    x = wick.ones(4, 8)
    assert bytes_of(lambda x: x @ x.t(), x) == 4 * (32 + 32 + 16)  # the view itself is free
    assert bytes_of(lambda x, b: x + b, x, wick.ones(8)) == 4 * (32 + 8 + 32)  # expanded, read once
    assert bytes_of(lambda x: wick.zeros_like(x), x) == 4 * 32
    assert bytes_of(lambda x: (x - x.sum()).exp(), x) == 4 * (32 + 32)  # two passes over one input
    weight, index = wick.ones(1000, 8), wick.tensor([1, 2])
    assert bytes_of(lambda w, i: w[i], weight, index) < 4 * 1000  # a gather does not read the table


def test_times_while_profiling():
    compiled, _ = kernels_of(plain, wick.ones(3))
    before = wick._C._set_profiling(True)
    try:
        compiled(wick.ones(3))
    finally:
        assert wick._C._set_profiling(before) is True
    compiled(wick.ones(3))
    (step,) = compiled.kernels()[0]["steps"]
    assert step["runs"] == 1 and step["nanoseconds"] > 0


# ---- explain ----


def test_breaks_have_hints(capsys):
    output = explain(broken)(wick.ones(2, 2))
    assert output.break_reasons == [
        ("print() of other things than values", __file__, broken.__code__.co_firstlineno + 2)
    ]
    assert output.hints == [hint_of("print() of other things than values")] and output.hints[0]
    assert f"    Hint: {output.hints[0]}" in str(output)
    assert [graph is None for graph in output.kernels] == [False, False]


@pytest.mark.parametrize(
    "reason",
    [
        "a branch on a tensor's value", "Tensor.tolist() needs the tensor's value", "float() of a tensor's value",
        "a call of time.time()", "a call of _json.dumps()", "a call of a function that compiler.disable() keeps out",
        "an import that has to load or find a module",
    ],
)  # fmt: skip
def test_hints_for_usual_reasons(reason):
    assert len(hint_of(reason)) > 20


def test_no_hint_for_unknown_reasons():
    assert hint_of("an unknown reason") == ""


def test_modules_and_compiled_functions():
    model = wick.nn.Sequential(wick.nn.Linear(2, 2), wick.nn.ReLU())
    assert explain(model)(wick.ones(2)).op_count == explain(wick.compile(model))(wick.ones(2)).op_count == 2
    compiled = wick.compile(plain)
    compiled(wick.ones(2))
    assert explain(compiled)(wick.ones(2)).op_count == 3
    assert ExplainOutput.of(compiled).op_count == 3 and compiled.captures == 1


def test_places_name_the_calls():
    def outer(x):
        return plain(x)

    (segment,) = explain(outer)(wick.ones(2)).segments
    assert len(segment["places"]) == 3
    assert [function for _, function, _ in segment["places"][0]] == ["plain", "outer"]
    assert [code.co_name for code in segment["codes"]] == ["outer"]


def test_nothing_outlives_the_output():
    def function(x):
        return x + 1

    alive = weakref.ref(function)
    output = explain(function)(wick.ones(2))
    output.to_html()
    del output, function
    gc.collect()
    assert alive() is None


LEAVES_NOTHING = """
import gc, wick
counts = []
for _ in range(4):
    output = wick._dynamo.explain(lambda x: (x @ x).exp().sum())(x := wick.ones(2, 2, requires_grad=True))
    with wick.profiler.profile() as prof:
        output.compiled(x).backward()
    prof.key_averages().table()
    output.to_html()
    del output, prof, x
    gc.collect()
    counts.append(wick._C._live_allocations())
assert counts[2] == counts[3], counts
"""


@pytest.mark.skipif(not hasattr(wick._C, "_live_allocations"), reason="a release build")
def test_reports_leave_nothing_behind():
    """In a process of its own: what other tests compile in the background comes and goes."""
    done = subprocess.run([sys.executable, "-c", LEAVES_NOTHING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- the page ----


class Checker(html.parser.HTMLParser):
    """Tags close in order; text by the tag around it; nothing is fetched from anywhere."""

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "link", "img", "iframe") and not {"src", "href"} & dict(attributes).keys()
        self.seen.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def text_of(page):
    return "".join(Checker(page).text)


def test_page_tells_everything(tmp_path, capsys):
    file = tmp_path / "out.html"
    output = explain(broken, html=file)(wick.ones(2, 2))
    assert text_of(file.read_text())
    output.compiled.wait_for_native()  # which kernels have native code stands on the page
    output.to_html(file)
    text = text_of(file.read_text())
    assert file.read_text() == output.to_html()
    assert 'print("<between>", y, end="")' in text  # source lines, escaped
    assert "graph break 1: print() of other things than values" in text and output.hints[0] in text
    for segment in output.segments:
        assert segment["graph"].rstrip() in text
        assert all(guard in text for guard in segment["guards"])
    for graph in output.kernels:
        assert graph["graph"].rstrip() in text
        assert all(kernel["nest"].rstrip() in text for kernel in graph["kernels"])
    assert "time a run" not in text


def test_page_has_times_of_what_ran_since():
    output = explain(plain)(wick.ones(2))
    with wick.profiler.profile():
        output.compiled(wick.ones(2))
        output.compiled(wick.ones(3))  # captured again
    text = text_of(output.to_html())
    assert "time a run" in text and "Segment 2" in text
    output.compiled.reset()
    assert "Segment 1" in text_of(output.to_html())


def test_page_without_source():
    scope = {}
    exec("def f(x):\n    return x * 2", scope)
    assert "No source was found" in text_of(explain(scope["f"])(wick.ones(2)).to_html())


# ---- WICK_DEBUG_DIR ----


PASSES = ["captured", "decompose", "fold", "common", "parts", "cats", "dead", "weights", "casts", "fuse", "together"]


def files_of(folder):
    """number -> {rest of the name: text}"""
    found = {}
    for name in sorted(os.listdir(folder)):
        number, rest = re.fullmatch(r"graph_(\d{4,})\.(.+)", name).groups()
        found.setdefault(int(number), {})[rest] = (folder / name).read_text()
    return found


def test_files_of_a_graph(tmp_path, monkeypatch):
    folder = tmp_path / "made" / "here"
    monkeypatch.setenv("WICK_DEBUG_DIR", str(folder))
    _, (graph,) = kernels_of(plain, wick.ones(2, 3))
    ((number, files),) = files_of(folder).items()
    assert number == graph["number"]
    names = sorted((name for name in files if name[0].isdigit()), key=lambda name: int(name.split(".")[0]))
    assert [name.split(".")[1] for name in names if name.split(".")[1] in PASSES] == PASSES
    assert "relu" in files["0.captured.txt"] and files[names[-1]] == graph["graph"]
    (kernel,) = graph["kernels"]
    assert kernel["nest"] in files["kernels.txt"] and kernel["origin"] in files["kernels.txt"]
    assert "wk_kernel_0_pointwise" in files["unit.c"]


@pytest.mark.skipif(not shutil.which("cc"), reason="no cc")
def test_the_unit_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("WICK_DEBUG_DIR", str(tmp_path))
    _, (graph,) = kernels_of(lambda x: (x - x.sum(-1, keepdim=True)).exp(), wick.ones(2, 3))
    flags = ["-std=gnu11", "-march=native", "-ffp-contract=off", "-w", "-fsyntax-only"]
    subprocess.run(["cc", *flags, str(tmp_path / f"graph_{graph['number']:04d}.unit.c")], check=True)


def test_files_of_a_derivative(tmp_path, monkeypatch):
    monkeypatch.setenv("WICK_DEBUG_DIR", str(tmp_path))
    x = wick.ones(2, 3, requires_grad=True)
    compiled, _ = kernels_of(lambda x: x.exp().sum(), x)
    compiled(x).backward()
    (graph,) = compiled.kernels()
    files = files_of(tmp_path)
    assert set(files[graph["number"]]) == {"0.captured.txt", "derivative.txt"}
    halves = [f"{half['kind']}: graph_{half['number']:04d}" for half in graph["halves"]]
    assert files[graph["number"]]["derivative.txt"].splitlines() == halves
    assert all("kernels.txt" in files[half["number"]] for half in graph["halves"])


def test_nothing_is_written_unasked(tmp_path, monkeypatch):
    monkeypatch.delenv("WICK_DEBUG_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    kernels_of(plain, wick.ones(2))
    assert os.listdir(tmp_path) == []


def test_one_warning_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    program = (
        "import wick\n"
        "f = wick.compile(lambda x: x * 2 + 1)\n"
        "print(f(wick.ones(1)).tolist(), f(wick.ones(2)).tolist(), f(wick.ones(3).double()).tolist())"
    )
    environment = os.environ | {"WICK_DEBUG_DIR": str(tmp_path / "file" / "below")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[3.0] [3.0, 3.0] [3.0, 3.0, 3.0]\n"
    assert done.stderr.count("[wick] WICK_DEBUG_DIR: ") == 1 and len(done.stderr.splitlines()) == 1


# ---- sizes that the guards say are equal ----


def two_inputs(x, y):
    return ((x * 2).exp() + (y * 3).exp()).sum(-1)


def loss(x, y):
    return F.cross_entropy(x.view(-1, 7), y.view(-1))


@pytest.mark.parametrize(
    "function,make",
    [
        (two_inputs, lambda n: [wick.rand(n, n + 3), wick.rand(n, n + 3)]),
        (loss, lambda n: [wick.rand(n, n + 1, 7), wick.arange(n * (n + 1)).view(n, n + 1) % 7]),
    ],
)
def test_equal_sizes_of_two_inputs_fuse_as_one(function, make):
    """The symbols of the second input are those of the first, and their products are."""
    counts = []
    for dynamic in (False, True):
        compiled = wick.compile(function, dynamic=dynamic)
        for n in (5, 8, 4):
            args = make(n)
            assert wick.equal(compiled(*args), function(*args))
        counts.append([len(graph["kernels"]) for graph in compiled.kernels()])
    assert len(counts[0]) == 3 and counts[1] == counts[0][:1]

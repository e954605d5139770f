"""minify(): a program that fails when it is compiled, cut down to the smallest graph that shows it, as a file that runs.

In: a function and its arguments. Out: a file with a module of a few operators, its inputs beside it, and what was found:
the pass of the compiler behind which results differ, or that it is native code. A graph is cut in two ways: at the end,
other values become its outputs; at the beginning, values in the middle become inputs. Both keep what fails.
Tests: tests/python/test_minify.py.
"""

import contextlib
import glob
import os
import re
import tempfile

import wick

# ---- graphs and their inputs ----


class Case:
    """A GraphModule with inputs, which failed."""

    def __init__(self, module, inputs):
        self.module, self.inputs = module, inputs

    @property
    def operators(self):
        return [node for node in self.module.graph.nodes if node.op.startswith("call_")]


def _cases_of(function, args, kwargs):
    """The graphs that a call of the function runs, each with what it is given: a second call, whose first one captures."""
    cases = []

    def recorder(module, examples):
        def run(*inputs):
            cases.append(Case(module, [_copy_of(value) for value in inputs]))
            return module.forward(*inputs)

        return run

    compiled = wick.compile(function, backend=recorder, dynamic=False)
    compiled(*wick.utils._pytree.tree_map(_copy_of, args), **wick.utils._pytree.tree_map(_copy_of, kwargs))
    cases.clear()
    compiled(*args, **kwargs)
    return cases


def _copy_of(value):
    return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, wick.Tensor) else value


def _run(function, inputs):
    """(results, inputs as they are afterwards), always with the same random numbers."""
    inputs = [_copy_of(value) for value in inputs]
    wick.manual_seed(0)
    return wick.utils._pytree.tree_leaves(function(*inputs)), inputs


def _same(a, b, tolerance):
    if not isinstance(a, wick.Tensor) or not isinstance(b, wick.Tensor):
        return a == b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not tolerance or not a.dtype.is_floating_point:
        return bool(((a == b) | ((a != a) & (b != b))).all())
    return wick.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def _all_same(left, right, tolerance):
    return all(
        len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
        for a, b in zip(left, right, strict=True)
    )


def differs(tolerance=0):
    """fails(module, inputs): compiled, with native code, it raises, or gives something else than node by node. tolerance:
    the relative difference that is allowed."""

    def fails(module, inputs):
        try:
            plain = _run(module.forward, inputs)
        except Exception:
            return False  # not the compiler's
        try:
            compiled = wick.compile(module.forward, options={"wait": True}, dynamic=False)
            return not all(_all_same(plain, _run(compiled, inputs), tolerance) for _ in range(2))
        except Exception:
            return True

    return fails


# ---- cutting ----


class _Values(wick.fx.Interpreter):
    """What each node of a graph gives."""

    def __init__(self, module):
        super().__init__(module)
        self.of = {}

    def run_node(self, node):
        value = super().run_node(node)
        self.of[node] = _copy_of(value)
        return value


def _values_of(case):
    values = _Values(case.module)
    wick.manual_seed(0)
    values.run(*[_copy_of(value) for value in case.inputs])
    return values.of


def _outputs_of(module):
    (output,) = (node for node in module.graph.nodes if node.op == "output")
    found = []
    wick.fx.map_arg(output.args, lambda node: found.append(node) or node)
    return list(dict.fromkeys(found))


def _needed(outputs, cut):
    """Nodes that the outputs depend on, those of `cut` without what is behind them."""
    needed, waiting = set(), list(outputs)
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        needed.add(node)
        if node not in cut:
            waiting += node.all_input_nodes
    return needed


def _in_order_of_use(nodes, needed, cut):
    """Inputs, as the operators ask for them: so they stand in what is captured of the module."""
    inputs = []
    for node in nodes:
        asks = node in needed and node not in cut and node.op != "placeholder"
        inputs += [n for n in node.all_input_nodes if asks and (n in cut or n.op == "placeholder")]
    inputs += [node for node in nodes if node in needed and (node in cut or node.op == "placeholder")]
    return list(dict.fromkeys(inputs))


def _rebuilt(case, values, outputs, cut):
    """The part of the graph that makes `outputs`, with the values of `cut` as inputs."""
    graph, made, nodes = wick.fx.Graph(), {}, list(case.module.graph.nodes)
    needed = _needed(outputs, cut)
    inputs = _in_order_of_use(nodes, needed, cut)
    for node in inputs:
        made[node] = graph.placeholder(node.name)
    for node in nodes:
        if node in needed and node not in made:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[node] for node in outputs))
    return Case(wick.fx.GraphModule(case.module, graph), [_copy_of(values[node]) for node in inputs])


class _Search:
    """The smallest case so far, and how many were tried."""

    def __init__(self, case, fails):
        self.case, self.fails, self.tried = case, fails, 0

    def accept(self, outputs, cut, values):
        smaller = _rebuilt(self.case, values, outputs, cut)
        self.tried += 1
        if not self.fails(smaller.module, smaller.inputs):
            return False
        self.case = smaller
        return True

    def cut_the_end(self):
        """The first operator whose result fails alone, found by halving; else as few outputs as fail together."""
        values = _values_of(self.case)
        candidates = [node for node in self.case.operators if isinstance(values[node], wick.Tensor)]
        low, high = 0, len(candidates) - 1
        whole, found = self.case, None
        while low <= high:
            middle = (low + high) // 2
            self.case = whole
            if self.accept([candidates[middle]], (), values):
                high, found = middle - 1, self.case
            else:
                low = middle + 1
        self.case = found or whole
        if not found:
            self._drop_outputs(values)

    def _drop_outputs(self, values):
        whole, outputs = self.case, _outputs_of(self.case.module)
        kept, best = list(outputs), whole
        for node in outputs:
            fewer = [other for other in kept if other is not node]
            self.case = whole
            if fewer and self.accept(fewer, (), values):
                kept, best = fewer, self.case
        self.case = best

    def cut_the_beginning(self):
        """Operators give way to inputs with their values, many at once first."""
        values, whole = _values_of(self.case), self.case
        outputs = _outputs_of(whole.module)
        best, cut = whole, set()
        middle = [n for n in whole.operators if n not in outputs and isinstance(values[n], wick.Tensor)]
        size = max(1, len(middle) // 2)
        while middle:
            for begin in range(0, len(middle), size):
                more = cut | set(middle[begin : begin + size])
                self.case = whole
                if more != cut and self.accept(outputs, more, values):
                    best, cut = self.case, more
            if size == 1:
                break
            size //= 2
        self.case = best

    def run(self):
        count = None
        while count != len(self.case.operators):
            count = len(self.case.operators)
            self.cut_the_end()
            self.cut_the_beginning()
        return self.case


# ---- which pass ----


def _stages(case):
    """[(pass, text of the graph behind it)], the first "captured", of the graph that becomes native code."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("WICK_DEBUG_DIR")
        os.environ["WICK_DEBUG_DIR"] = folder
        try:
            with wick.no_grad():
                _run(wick.compile(case.module.forward, dynamic=False), case.inputs)
        finally:
            os.environ.pop("WICK_DEBUG_DIR")
            if before is not None:
                os.environ["WICK_DEBUG_DIR"] = before
        files = []
        for path in glob.glob(os.path.join(folder, "graph_*.txt")):
            named = re.fullmatch(r"graph_\d+\.(\d+)\.(\w+)\.txt", os.path.basename(path))
            if named:
                files.append((int(named[1]), named[2], wick.compiler.load_graph(path)))
        return [(name, graph) for _, name, graph in sorted(files, key=lambda file: file[0])]


def guilty_pass(case, tolerance=0):
    """The first pass of the compiler behind which the graph gives something else than node by node; "native code" where
    all give the same; None: it cannot be told (the graph does not run outside of its program)."""
    with wick.no_grad():
        try:
            plain = _run(case.module.forward, case.inputs)
            for name, graph in _stages(case):
                if not _all_same(plain, _run(graph, case.inputs), tolerance):
                    return name
        except Exception:
            return None
    return "native code"


# ---- the file ----

_FILE = '''"""{title}

Run it with wick: python {name}. Written by wick._dynamo.minify.
"""

import os

import wick as torch
from wick import device  # noqa: F401

INPUTS = torch.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{inputs}"))


class Module(torch.nn.Module):
{constants}{code}


module, found = Module(), []
for run in module.forward, torch.compile(module.forward, options={{"wait": True}}, dynamic=False):
    torch.manual_seed(0)
    found.append(run(*[x.detach().clone() if isinstance(x, torch.Tensor) else x for x in INPUTS["inputs"]]))
for number, (plain, compiled) in enumerate(zip(*found)):
    same = torch.allclose(plain, compiled, rtol=0, atol=0, equal_nan=True)
    print("output", number, "the same" if same else "differs")
    print(plain, compiled, sep="\\n")
'''


def _constants_of(module):
    names = [node.target for node in module.graph.nodes if node.op == "get_attr"]
    return {name: getattr(module, name) for name in dict.fromkeys(names)}


def _indented(text):
    return "\n".join("    " + line if line.strip() else "" for line in text.strip("\n").split("\n"))


def _write(case, path, title):
    constants = _constants_of(case.module)
    lines = [f'    {name} = INPUTS["constants"]["{name}"]\n' for name in constants]
    beside = os.path.splitext(path)[0] + ".pt"
    wick.save({"inputs": case.inputs, "constants": {k: v.detach() for k, v in constants.items()}}, beside)
    text = _FILE.format(
        title=title,
        name=os.path.basename(path),
        inputs=os.path.basename(beside),
        constants="".join(lines),
        code=_indented(re.sub(r"(?m)^# To see more.*$", "", case.module.code).strip()),
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# ---- all of it ----


class Minified:
    """case: the smallest graph and its inputs; operators: how many; guilty: the pass, "native code", or None; path."""

    def __init__(self, case, guilty, path, tried):
        self.case, self.guilty, self.path, self.tried = case, guilty, path, tried
        self.operators = len(case.operators)

    def __str__(self):
        where = f", wrong behind {self.guilty}" if self.guilty else ""
        return f"{self.path}: {self.operators} operators after {self.tried} tries{where}"


def minify(function, *args, path="minified.py", fails=None, tolerance=0, **kwargs):
    """Calls function(*args, **kwargs) twice, and cuts the first of its graphs that fails to as few operators as still do.

    fails: fails(module, inputs) -> bool, for a GraphModule; without it, that compiling raises or results differ from eager
    ones (by more than `tolerance`, relative). path: of the file that is written, whose inputs stand beside it.
    Gives a Minified, or None where nothing fails.

        print(minify(step, x, y))                                                       # wrong when it is compiled
        minify(step, x, fails=lambda module, inputs: module(*inputs)[0].isnan().any())  # where a NaN comes from
    """
    wanted = fails or differs(tolerance)
    with contextlib.ExitStack() as stack:
        stack.enter_context(wick.random.fork_rng())
        for case in _cases_of(function, args, kwargs):
            if not wanted(case.module, case.inputs):
                continue
            search = _Search(case, wanted)
            smallest = search.run()
            guilty = None if fails else guilty_pass(smallest, tolerance)
            kind = "fails as asked for" if fails else f"differs when it is compiled: {guilty or 'where is not known'}"
            _write(smallest, path, f"What a program was cut down to. It {kind}.")
            return Minified(smallest, guilty, path, search.tried)
    return None

"""minify(): a program that fails when it is compiled, cut down to the smallest graph that shows it, as a file that runs.

In: a function and its arguments. Out: a file with a module of a few operators, its inputs beside it, and what was found:
the pass of the compiler and the kernel that make results differ (blame.py). A graph is cut in two ways: at the end,
other values become its outputs; at the beginning, values in the middle become inputs. Both keep what fails. Where only
gradients fail the graph that computes them is cut, and where no graph fails the function itself (minify_function.py).
Tests: tests/python/test_minify.py.
"""

import os
import re

import wick

from .blame import blame
from .cases import Case, cases_of, copy_of, differs, of_gradients
from .minify_function import minify_function

# ---- cutting ----


class _Values(wick.fx.Interpreter):
    """What each node of a graph gives."""

    def __init__(self, module):
        super().__init__(module)
        self.of = {}

    def run_node(self, node):
        value = super().run_node(node)
        self.of[node] = copy_of(value)
        return value


def _values_of(case):
    values = _Values(case.module)
    wick.manual_seed(0)
    values.run(*[copy_of(value) for value in case.inputs])
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
    return Case(wick.fx.GraphModule(case.module, graph), [copy_of(values[node]) for node in inputs])


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


def _write(case, path, title, found):
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
    kernel = found.text_of_kernel() if found else ""
    text += "".join(f"# {line}".rstrip() + "\n" for line in ("", *kernel.splitlines())) if kernel else ""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


# ---- all of it ----


class Minified:
    """path; case: the smallest graph and its inputs; operators: how many; blame: a Blame, or None; tried: how many cases were.

    guilty: the pass, "native code", or None. case is None where it was the function that was cut: lines has how many of its
    statements are left.
    """

    def __init__(self, path, case=None, blame=None, tried=0, lines=0):
        self.path, self.case, self.blame, self.tried, self.lines = path, case, blame, tried, lines
        self.operators = len(case.operators) if case else 0
        self.guilty = blame.guilty if blame else None

    def __str__(self):
        what = f"{self.operators} operators" if self.case else f"{self.lines} statements"
        return f"{self.path}: {what} after {self.tried} tries" + (f", {self.blame}" if self.blame else "")


def _failing(function, args, kwargs, wanted, with_gradients):
    """The first graph of the function that fails; of those that compute gradients where no other does."""
    cases = cases_of(function, args, kwargs)
    found = next((case for case in cases if wanted(case.module, case.inputs)), None)
    if found is None and with_gradients:
        gradients = (part for case in cases for part in of_gradients(case))
        found = next((case for case in gradients if wanted(case.module, case.inputs)), None)
    return found


def minify(function, *args, path="minified.py", fails=None, tolerance=0, **kwargs):
    """Calls function(*args, **kwargs) twice, and cuts the first of its graphs that fails to as few operators as still do.

    fails: fails(module, inputs) -> bool, for a GraphModule; without it, that compiling raises or that results or gradients
    differ from eager ones (by more than `tolerance`, relative); where they do and no graph is to blame, the function itself
    is cut to as few statements as still differ. path: of the file that is written, whose inputs stand beside it.
    Gives a Minified, or None where nothing fails.

        print(minify(step, x, y))                                                       # wrong when it is compiled
        minify(step, x, fails=lambda module, inputs: module(*inputs)[0].isnan().any())  # where a NaN comes from
    """
    wanted = fails or differs(tolerance)
    with wick.random.fork_rng():
        if fails is None and (cut := minify_function(function, args, kwargs, path, tolerance)):
            return Minified(path, tried=cut.tried, lines=cut.statements)
        case = _failing(function, args, kwargs, wanted, fails is None)
        if case is None:
            return None
        search = _Search(case, wanted)
        smallest = search.run()
        found = None if fails else blame(smallest, tolerance)
        kind = "fails as asked for" if fails else f"differs when it is compiled: {found or 'where is not known'}"
        _write(smallest, path, f"What a program was cut down to. It {kind}.", found)
        return Minified(path, smallest, found, search.tried)

"""compile() and what belongs to it, as PyTorch programs use them."""

import os
import pickle
import subprocess
import sys
import warnings

import pytest

import wick
from wick import nn
from wick._C import Compiled


def test_a_decorated_function_keeps_its_name():
    @wick.compile
    def double(x):
        """Twice x."""
        return x * 2

    assert double(wick.ones(2)).tolist() == [2.0, 2.0]
    assert (double.__name__, double.__doc__) == ("double", "Twice x.")


def test_a_module_keeps_class_and_keys_and_pickles():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    compiled = wick.compile(model)
    x = wick.ones(2, 3)
    assert wick.equal(compiled(x), model(x))
    assert isinstance(compiled, nn.Sequential) and type(compiled).__name__ == "Sequential"
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert wick.equal(pickle.loads(pickle.dumps(compiled))(x), model(x))
    compiled.eval()
    assert not model.training


def test_fullgraph_names_reason_and_line():
    def noisy(x):
        os.urandom(1)
        return x

    with pytest.raises(wick._dynamo.exc.Unsupported, match=r"(?s)urandom.*line \d+, in noisy"):
        wick.compile(noisy, fullgraph=True)(wick.ones(1))


def picks_in_a_loop(x):
    """What it goes through was made in front of an end that is allowed, and is used behind it."""
    for k, (name, scale) in zip(range(3), {"a": 1.0, "b": 2.0, "c": 3.0}.items(), strict=True):
        x = x + x[x > k].sum() * scale + len(name)
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 1].sum() + x.sum(),
        lambda x: (x * 2).nonzero(),
        lambda x: wick.where(x > 1)[0] * 2,
        lambda x: wick.masked_select(x, x > 0) * x.sum(),
        lambda x: wick.repeat_interleave(x * 1, (x * 2).long()) + 1,
        picks_in_a_loop,
    ],
)
@pytest.mark.parametrize("dynamic", [None, True])
def test_fullgraph_does_plainly_in_every_call_what_it_did_in_the_first(function, dynamic):
    """What capture finds out in the middle of an instruction was done plainly, without an error."""
    compiled = wick.compile(function, fullgraph=True, dynamic=dynamic)
    for k in range(4):
        x = wick.arange(3.0 + k % 3)
        assert compiled(x).tolist() == function(x).tolist()


def test_fullgraph_still_refuses_behind_that():
    def late(x):
        y = x.nonzero()
        os.urandom(1)
        return y

    compiled = wick.compile(late, fullgraph=True)
    for _ in range(3):
        with pytest.raises(wick._dynamo.exc.Unsupported, match="a call of posix.urandom"):
            compiled(wick.ones(1))


def test_what_was_entered_is_left_when_fullgraph_refuses():
    """Grad mode and context managers are as before the call; the error is the caller's, whatever the function handles."""
    log = []

    class Noted:
        def __enter__(self):
            log.append("in")

        def __exit__(self, kind, value, traceback):
            log.append(kind.__name__)

    def inner(x):
        with Noted(), wick.no_grad():
            try:
                y = x + 1
                os.urandom(1)
            finally:
                log.append("finally")
        return y

    def directly(x):
        with wick.no_grad():
            os.urandom(1)
            return x

    def handles(x):
        try:
            return inner(x)
        except RuntimeError:
            log.append("handled")
        return x + 2

    def generates(x):
        def parts():
            with Noted():
                yield x + 1
                os.urandom(1)

        return list(parts())

    left = ["in", "finally", "Unsupported"]
    for function, wanted in (
        (directly, []),
        (inner, left),
        (lambda x: inner(x), left),
        (handles, [*left, "handled"]),
        (generates, ["in", "Unsupported"]),
    ):
        compiled = wick.compile(function, fullgraph=True)
        for _ in range(2):
            log.clear()
            with pytest.raises(
                RuntimeError, match="fullgraph=True, but the graph breaks here: a call of posix.urandom"
            ):
                compiled(wick.ones(2))
            assert log == wanted
            assert wick.is_grad_enabled()


def test_a_backend_is_given_the_graph_and_the_inputs():
    seen = []

    def backend(graph_module, example_inputs):
        seen.append(([node.op for node in graph_module.graph.nodes], len(example_inputs)))
        return graph_module.forward

    compiled = wick.compile(lambda a, b: wick.relu(a) + b, backend=backend)
    for _ in range(2):
        assert compiled(wick.ones(2), wick.ones(2)).tolist() == [2.0, 2.0]
    assert seen == [(["placeholder", "placeholder", "call_function", "call_function", "output"], 2)]


def test_disabled_functions_end_the_graph():
    @wick.compiler.disable
    def apart(x):
        return wick.compiler.is_compiling(), x + 1

    explained = wick._dynamo.explain(lambda x: apart(x * 2))(wick.ones(2))
    assert explained.graph_break_count == 1 and "disable()" in explained.break_reasons[0][0]
    assert wick.compile(lambda x: apart(x * 2))(wick.ones(1))[0] is False


def test_nodes_know_the_lines_that_led_to_them():
    graphs = []

    def inner(x):
        return x * 2

    def outer(x):
        return inner(x) + 1

    wick.compile(outer, backend=lambda graph, inputs: graphs.append(graph) or graph.forward)(wick.ones(2))
    first, second = (n.stack_trace for n in graphs[0].graph.nodes if n.op == "call_function")
    assert [line.split(" in ")[1] for line in first.splitlines() if " in " in line] == ["outer", "inner"]
    assert [line.split(" in ")[1] for line in second.splitlines() if " in " in line] == ["outer"]


def test_wrong_arguments():
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        wick.compile(lambda x: x, mode="fast")
    with pytest.raises(wick._dynamo.exc.InvalidBackend, match="Invalid backend"):
        wick.compile(lambda x: x, backend="none")


def test_parts_that_are_loaded_when_first_used():
    program = (
        "import torch\n"
        "@torch.compile(fullgraph=True)\n"
        "def f(x): return torch.nn.functional.relu(x)\n"
        "print(f(torch.ones(2)).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-m", "wick", "-c", program], capture_output=True, text=True)
    assert done.stdout == "[1.0, 1.0]\n", done.stderr


def test_options():
    def double(x):
        return x * 2

    x = wick.ones(3)
    for settings in ({"options": {"wait": True}}, {"mode": "max-autotune"}, {"options": {"shape_padding": True}}):
        compiled = wick.compile(double, **settings)
        assert [wick.equal(compiled(x), x * 2) for _ in range(3)] == [True] * 3
    with pytest.raises(RuntimeError, match="Unexpected optimization option speed, known options are"):
        wick.compile(double, options={"speed": 11})


def test_node_by_node():
    compiled = wick.compile(lambda x: (x + 1) * 2, backend="aot_eager")
    assert wick.equal(compiled(wick.ones(2)), wick.full((2,), 4.0))
    assert compiled.kernels()[0]["kernels"] == []
    fused = wick.compile(lambda x: (x + 1) * 2)
    fused(wick.ones(2))
    assert len(fused.kernels()[0]["kernels"]) == 1


def test_what_one_function_learned_is_not_the_others_business():
    def unlike(x):
        y = (x * 2).sin()
        int(y.sum())
        return wick.autograd.grad(y.sum(), [x])[0]  # of a tape that a segment before has left

    def plain(x):
        return wick.autograd.grad((x * 3).sum(), [x])[0]

    first, second = wick.compile(unlike), wick.compile(plain)
    x = wick.ones(3, requires_grad=True)
    for _ in range(3):
        first(x)
    for _ in range(3):
        assert wick.equal(second(x), wick.full((3,), 3.0))
    assert (second.captures, second.breaks) == (1, 0)


def scale(x, by=2.0, *, shift=0.0):
    return x * by + shift


def test_a_call_that_is_a_graph_binds_its_arguments_as_python_does():
    """Such calls are replayed without a frame, where their arguments are positional."""
    compiled = wick.compile(scale)
    x = wick.ones(3)
    for _ in range(3):
        assert compiled(x, 2.0).tolist() == compiled(x).tolist() == compiled(x=x, by=2.0).tolist() == [2.0] * 3
        assert compiled(x, 2.0, shift=1.0).tolist() == [3.0] * 3
        for wrong in [(), (x, 2.0, 0.0)]:
            with pytest.raises(TypeError, match=r"scale\(\) (missing|takes)"):
                compiled(*wrong)


def test_a_call_that_is_a_graph_still_has_guards_and_a_traceback():
    def pick(x, i):
        return wick.embedding(x, i) + other

    other = wick.ones(2)
    compiled = wick.compile(pick)
    x, good, bad = wick.arange(6.0).reshape(3, 2), wick.tensor([2, 0]), wick.tensor([3])
    references = sys.getrefcount(x), sys.getrefcount(good)
    for _ in range(3):
        assert compiled(x, good).tolist() == [[5.0, 6.0], [1.0, 2.0]]
    assert (sys.getrefcount(x), sys.getrefcount(good)) == references
    other = wick.zeros(2)
    assert compiled(x, good).tolist() == [[4.0, 5.0], [0.0, 1.0]]
    for _ in range(3):
        with pytest.raises(IndexError) as raised:
            compiled(x, bad)
        assert "pick" in [entry.name for entry in raised.traceback]
    assert compiled(x, good).tolist() == [[4.0, 5.0], [0.0, 1.0]]


PROGRAM = """
import wick

@wick.compile
def scaled(x, by):
    return x * by

for by in (2, 2, True):
    scaled(wick.ones(3), by)
"""


def test_a_failing_guard_is_told_once():
    env = {**os.environ, "WICK_LOGS": "recompiles"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("does not hold: by == 2") == 1


RAISES = """
import wick

try:
    wick.compile(lambda x: x.cos_())(wick.ones(3, requires_grad=True))
except RuntimeError as error:
    print(error)
"""


def test_the_log_says_why_nothing_is_kept_of_a_function_that_raises():
    env = {**os.environ, "WICK_LOGS": "graph_breaks"}
    run = subprocess.run([sys.executable, "-c", RAISES], env=env, capture_output=True, text=True)
    assert run.stdout == "a leaf Variable that requires grad is being used in an in-place operation.\n"
    assert "<lambda>: not kept: RuntimeError left the function" in run.stderr


def test_a_compiled_module_has_the_attributes_of_its_original():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = nn.Linear(3, 3)
            self.gain = 2.0
            self._table = {"a": 1}

        def forward(self, x):
            return self.part(x) * self.gain * self._table["a"]

        @property
        def twice(self):
            return self.gain * 2

    model = Model()
    compiled, x = wick.compile(model), wick.ones(2, 3)
    for gain in (2.0, 3.0, 4.0):
        model.gain = gain
        assert (compiled.gain, compiled.twice) == (gain, 2 * gain)
        assert compiled(x).tolist() == model(x).tolist()
    compiled.gain = 5.0
    assert model.gain == 5.0
    model._table = {"a": 7}
    assert compiled._table == {"a": 7} and compiled(x).tolist() == model(x).tolist()
    model.eval()
    assert not compiled.training
    compiled.train()
    assert model.training and model.part.training and compiled.training
    del compiled.gain
    assert not hasattr(model, "gain")
    with pytest.raises(AttributeError, match="'Model' object has no attribute 'gain'"):
        compiled.gain  # noqa: B018
    compiled.other = nn.Linear(2, 2)
    assert "other.weight" in model.state_dict() and "other.weight" in compiled.state_dict()


# ---- warnings and identities ----


def warns_inside(x):
    warnings.warn("inside", DeprecationWarning, stacklevel=2)
    return x + 1


def warns(x, log):
    log.append("before")
    warnings.warn("first", stacklevel=1)
    try:
        y = warns_inside(x) * 2
    except DeprecationWarning as error:
        log.append(str(error))
        y = x
    warnings.warn("of the caller", category=RuntimeWarning, stacklevel=2)
    log.append("behind")
    return y


def test_warnings_are_given_again_as_the_filters_say():
    def calls(function):
        globals().pop("__warningregistry__", None)
        out = []
        for mode in ("always", "default", "once", "module", "ignore", "error", "default"):
            with warnings.catch_warnings(record=True) as shown:
                warnings.simplefilter(mode)
                if mode == "once":
                    warnings.filterwarnings("error", category=DeprecationWarning)
                for _ in range(3):
                    log = []
                    try:
                        log.append(function(wick.ones(2), log).tolist())
                    except Warning as error:
                        log.append(repr(error))
                    out.append((mode, log, [(str(w.message), w.category, w.filename, w.lineno) for w in shown]))
        return out

    compiled = Compiled(warns)
    assert calls(compiled) == calls(warns)
    assert len(calls(compiled)[2][2]) == 9
    quiet = Compiled(warns, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            assert quiet(wick.ones(2), []).tolist() == [4, 4]
    assert quiet.captures == 1


def test_what_shows_a_warning_may_run_anything():
    def shows(message, category, filename, lineno, file=None, line=None):
        seen.append((str(message), (wick.ones(2) * 2).tolist()))

    def f(x):
        y = x * 3
        warnings.warn("look", stacklevel=1)
        return y + 1

    compiled, before, seen = Compiled(f), warnings.showwarning, []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = shows
        try:
            results = [compiled(wick.ones(2)).tolist() for _ in range(3)]
        finally:
            warnings.showwarning = before
    assert results == [[4, 4]] * 3
    assert seen == [("look", [2, 2])] * 3
    assert (compiled.captures, compiled.breaks) == (1, 0)


def test_identities_of_objects_from_outside():
    kept = {}

    def remembers(x, o):
        if id(o) not in kept:
            kept[id(o)] = x * 2
        return kept[id(o)] + 1, id(o), id(kept) == id(kept)

    compiled, first, second = Compiled(remembers, fullgraph=True), [1], [1]
    for o in (first, first, second, first, second):
        result, number, same = compiled(wick.ones(2), o)
        assert result.tolist() == [3, 3]
        assert (number, same) == (id(o), True)
    assert list(kept) == [id(first), id(second)]

    def made_inside(x):
        made = [x * 2]
        return id(made) == id(made), made[0]

    compiled = Compiled(made_inside)
    for _ in range(3):
        assert compiled(wick.ones(1))[0]
    assert not compiled.breaks


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in 3.12")
def test_tools_of_sys_monitoring_see_what_they_watch():
    def inner(x):
        return x + 1

    def outer(x):
        return inner(x) * 2

    monitoring, seen = sys.monitoring, []
    tool, event = monitoring.DEBUGGER_ID, monitoring.events.PY_RETURN
    compiled = Compiled(outer)
    for _ in range(3):
        assert compiled(wick.ones(2)).tolist() == [4, 4]
    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.register_callback(tool, event, lambda code, offset, value: seen.append(code.co_name))
        monitoring.set_local_events(tool, outer.__code__, event)
        assert compiled(wick.ones(2)).tolist() == [4, 4]
        assert seen == ["outer"]
        fresh = Compiled(lambda x: outer(x) - 1)
        for _ in range(3):
            assert fresh(wick.ones(2)).tolist() == [3, 3]
        assert seen == ["outer"] * 4
        monitoring.set_local_events(tool, outer.__code__, 0)
        monitoring.set_events(tool, event)
        assert compiled(wick.ones(2)).tolist() == [4, 4]
        assert seen[4:6] == ["inner", "outer"]
        monitoring.set_events(tool, 0)
    finally:
        monitoring.free_tool_id(tool)
    seen.clear()
    for _ in range(3):
        assert compiled(wick.ones(2)).tolist() == [4, 4]
    assert not seen and compiled.captures == 1

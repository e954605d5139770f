"""torch.compiler.set_stance(), what was captured again and why, and the channels of TORCH_LOGS."""

import os
import subprocess
import sys

import pytest

import wick as torch
from wick._dynamo import ExplainOutput, mark_unbacked
from wick.compiler import set_stance


@pytest.fixture(autouse=True)
def stance_stays():
    yield
    set_stance("default")


def doubled():
    log = []

    def f(x):
        log.append(torch.compiler.is_compiling())
        return x * 2

    return torch.compile(f, dynamic=False), log


def test_force_eager():
    compiled, log = doubled()
    with set_stance("force_eager"):
        compiled(torch.ones(2))
    assert log == [False] and compiled.captures == 0
    compiled(torch.ones(2))
    assert compiled.captures == 1


def test_eager_on_recompile():
    compiled, _ = doubled()
    compiled(torch.ones(2))
    with set_stance("eager_on_recompile"):
        assert compiled(torch.ones(2)).tolist() == [2.0] * 2
        assert compiled(torch.ones(3)).tolist() == [2.0] * 3
    assert compiled.captures == 1 and compiled.report()[0]["hits"] == 1
    compiled(torch.ones(3))
    assert compiled.captures == 2


def test_fail_on_recompile():
    compiled, _ = doubled()
    compiled(torch.ones(2))
    with set_stance("fail_on_recompile"):
        assert compiled(torch.ones(2)).tolist() == [2.0] * 2
        with pytest.raises(RuntimeError, match=r"Detected recompile(.|\n)*function name: 'f'(.|\n)*float32\[2\]"):
            compiled(torch.ones(3))
        fresh, _ = doubled()
        with pytest.raises(RuntimeError, match="Detected recompile when torch.compile stance is 'fail_on_recompile'"):
            fresh(torch.ones(2))
    assert compiled(torch.ones(3)).tolist() == [2.0] * 3


def test_an_error_of_the_stance_is_not_the_programs_to_catch():
    def f(x, s):
        try:
            torch._dynamo.graph_break()
            return x * len(s)
        except RuntimeError:
            return x * 100

    compiled = torch.compile(f)
    compiled(torch.ones(2), "a")
    with set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="Detected recompile"):
        compiled(torch.ones(2), "ab")


def test_eager_then_compile_learns_from_the_first_call():
    compiled = torch.compile(lambda x, y: x * 2 + y.sum())
    with set_stance("eager_then_compile"):
        assert compiled(torch.ones(3), torch.ones(2)).tolist() == [4.0] * 3
        assert compiled.captures == 0
        for size in 4, 5, 6:
            assert compiled(torch.ones(size), torch.ones(2)).tolist() == [4.0] * size
    assert compiled.captures == 1
    set_stance("aot_eager_then_compile")


def test_a_forced_backend():
    seen = []

    def backend(graph, inputs):
        seen.append(len(inputs))
        return graph.forward

    compiled, _ = doubled()
    with set_stance("default", force_backend=backend):
        for _ in range(2):
            assert compiled(torch.ones(2)).tolist() == [2.0] * 2
    assert seen == [1] and compiled.captures == 0
    with pytest.raises(RuntimeError, match="non-default stance cannot have force_backend set"):
        set_stance("force_eager", force_backend="eager")


def test_as_a_function_and_as_a_decorator():
    compiled, log = doubled()
    set_stance("force_eager")
    compiled(torch.ones(2))
    assert compiled.captures == 0

    @set_stance("default")
    def inside():
        return compiled(torch.ones(2))

    compiled(torch.ones(2))
    assert compiled.captures == 0
    inside()
    assert compiled.captures == 1
    with pytest.raises(RuntimeError, match="invalid torch.compile stance 'never'"):
        set_stance("never")


def test_what_was_captured_again():
    compiled = torch.compile(lambda x, s: x * len(s), dynamic=False)
    compiled(torch.ones(2), "a")
    assert compiled.recompiles() == []
    compiled(torch.ones(3), "a")
    compiled(torch.ones(3), "ab")
    (_, line, first, mend), (*_, second, _) = ExplainOutput.of(compiled).recompiles
    assert "float32[2]" in first and "dynamic" in mend and "'a'" in second
    assert line == test_what_was_captured_again.__code__.co_firstlineno + 1
    assert "Recompiled at" in str(ExplainOutput.of(compiled))


def test_mark_unbacked():
    compiled = torch.compile(lambda x: x * x.shape[0])
    for size in 3, 4, 5:
        x = torch.ones(size)
        mark_unbacked(x, 0)
        assert compiled(x).tolist() == [float(size)] * size
    assert compiled.captures == 1
    x = torch.ones(3)
    mark_unbacked(x, 0, strict=True)
    with pytest.raises(Exception, match="Constraints violated"):
        torch.compile(lambda x: x * 2 if x.shape[0] == 3 else x)(x)


@pytest.mark.parametrize(
    "setting, shown",
    [
        ("recompiles", "[wick:recompiles]"),
        ("+graph_breaks,guards", "[wick:graph_breaks]"),
        ("dynamo,bytecode", ""),
        ("+dynamo,bytecode", "[wick:graph_breaks]"),
    ],
)
def test_torch_logs(setting, shown):
    program = """
import wick as torch
compiled = torch.compile(lambda x: (torch._dynamo.graph_break(), x * 2)[1], dynamic=False)
compiled(torch.ones(2)), compiled(torch.ones(3))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "TORCH_LOGS": setting}, capture_output=True, text=True
    )
    assert run.returncode == 0
    assert shown in run.stderr and bool(run.stderr) == bool(shown)


def test_set_logs(capfd):
    torch._logging.set_logs(recompiles=True, dynamo=20)
    try:
        compiled = torch.compile(lambda x: x * 2, dynamic=False)
        compiled(torch.ones(2)), compiled(torch.ones(3))
    finally:
        torch._logging.set_logs()
    assert "does not hold: x is a tensor float32[2]" in capfd.readouterr().err

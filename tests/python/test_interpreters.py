"""Several interpreters in one process, and callbacks of threads that gave the interpreter's lock away. Each test runs in a
process of its own, because what it guards against is a deadlock or a crash."""

import os
import subprocess
import sys
import textwrap

import pytest

sys.path.insert(0, os.path.dirname(__file__))

interpreters = pytest.importorskip("subinterpreters")

PREAMBLE = f"import sys\nsys.path[:0] = {sys.path!r}\nimport wick\n"

PARTS = {
    "tensors": """
        assert (wick.ones(2, 3) @ wick.ones(3)).tolist() == [3, 3]
        try:
            wick.ones(2) + wick.ones(3)
        except RuntimeError as error:
            assert "must match the size of tensor b" in str(error)
        else:
            raise AssertionError
    """,
    "memory of Python's": """
        memory = bytearray(16)
        t = wick.frombuffer(memory, dtype=wick.float32)
        t += 1
        del t
        memory.append(0)  # nothing holds it any more
        s = wick.frombuffer(bytearray(1 << 20), dtype=wick.float32).sin()
    """,
    "hooks": """
        x, seen = wick.ones(1 << 16, requires_grad=True), []
        x.register_hook(lambda g: seen.append(g.sum().item()) or g * 2)
        with wick.autograd.graph.saved_tensors_hooks(lambda t: seen.append("saved") or t, lambda t: t):
            y = (x * x).sum()
        y.backward()
        assert seen == ["saved", "saved", 2.0 * (1 << 16)] and x.grad[0] == 4
    """,
    "custom functions": """
        class Square(wick.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                return 2 * ctx.saved_tensors[0] * g

        x = wick.ones(3, requires_grad=True)
        Square.apply(x).sum().backward()
        assert x.grad.tolist() == [2, 2, 2]
    """,
    "training, compiled": """
        wick.manual_seed(0)
        model = wick.nn.Sequential(wick.nn.Linear(4, 8), wick.nn.GELU(), wick.nn.Linear(8, 2))
        optimizer = wick.optim.AdamW(model.parameters(), lr=0.1)
        before = model[0].weight.detach().clone()

        @wick.compile
        def step(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(wick.ones(5, 4)).item() for _ in range(20)]
        assert losses[-1] < losses[0] and not (model[0].weight == before).all()
    """,
}


def run(code, timeout=60):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_interpreters(*codes):
    """Runs each code in an interpreter of its own, all alive together, then ends them one by one."""
    lines = [f"import sys; sys.path[:0] = {sys.path!r}"]
    lines += ["import subinterpreters as interpreters", f"codes = {codes!r}"]
    lines += ["made = [interpreters.create() for _ in codes]"]
    lines += ["for i, code in zip(made, codes): interpreters.run_string(i, code)"]
    lines += ["for i in made: interpreters.destroy(i)"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("part", PARTS)
def test_in_another_interpreter(part):
    run(in_interpreters(PREAMBLE + textwrap.dedent(PARTS[part])))


def test_interpreters_side_by_side():
    codes = [PREAMBLE + textwrap.dedent(part) for part in PARTS.values()]
    own = PREAMBLE + "".join(textwrap.dedent(part) for part in PARTS.values())
    run(own + in_interpreters(*codes) + own)


def test_types_are_each_interpreters_own():
    code = PREAMBLE + "print(id(wick.Tensor), isinstance(wick.ones(1), wick.Tensor))"
    lines = run(code + "\n" + in_interpreters(code, code)).split("\n")[:3]
    assert len({line.split()[0] for line in lines}) == 3
    assert all(line.endswith("True") for line in lines)


def test_callbacks_take_back_a_lock_that_others_have_meanwhile():
    """Before Python 3.13 "does a thread have the lock" is not a question that Python answers for the asking thread."""
    run(
        PREAMBLE
        + textwrap.dedent("""
            import threading
            sys.setswitchinterval(1e-6)
            done = False

            def spin():
                while not done:
                    [str(i) for i in range(200)]

            threads = [threading.Thread(target=spin) for _ in range(2)]
            [t.start() for t in threads]
            packed = []
            try:
                x = wick.randn(1 << 16, requires_grad=True)  # large enough for other threads to run meanwhile
                for _ in range(2000):
                    with wick.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or [t, {}], lambda p: p[0]):
                        y = (x * x).sin().exp()
                    y.sum().backward()
            finally:
                done = True
            assert len(packed) == 4 * 2000
        """)
    )

"""Programs whose hot loops are compiled without being asked for: the same output, bit by bit, as without; what was found
hot; the loops that CPython gets, and gives back; python -m wick --compile as a command."""

import contextlib
import io
import json
import os
import subprocess
import sys
import textwrap
import traceback

import pytest

import wick
import wick._C as _C
from wick import compiler

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
PACKAGE = os.path.dirname(os.path.dirname(wick.__file__))


class Run:
    """What a program printed, the traceback that it ended with, and its regions: (function, line, kind, compiled)."""

    def __init__(self, source, hot_rounds=None, quiet_rounds=16):
        code = compile(source, "program.py", "exec")
        self.names = {"__name__": "__main__", "__builtins__": __builtins__, "torch": wick}
        self.regions = []
        self.error = ""
        out = io.StringIO()
        wick.manual_seed(0)
        with contextlib.redirect_stdout(out):
            try:
                if hot_rounds is None:
                    exec(code, self.names)
                else:
                    _C._run_program(code, self.names, self.make, hot_rounds, quiet_rounds)
            except BaseException as error:
                lines = traceback.format_exception(error)
                self.error = "".join(line for line in lines if "test_program.py" not in line)
        self.out = out.getvalue()

    def make(self, function, line, kind):
        compiled = compiler._compiled(function, compiler._settings("wick", None, None, False, None))
        self.regions.append((function.__name__, line, kind, compiled))
        return compiled

    def hits(self, name):
        """How often segments of this function's regions were replayed."""
        return sum(
            segment["hits"]
            for function, _, _, compiled in self.regions
            if function == name
            for segment in compiled.report()
        )


def check(source, hot_rounds=3, quiet_rounds=4):
    """The program, plain and with its hot loops compiled: the same output and the same error. Gives the second run."""
    source = textwrap.dedent(source)
    plain = Run(source)
    run = Run(source, hot_rounds, quiet_rounds)
    assert plain.out or plain.error
    assert run.out == plain.out
    assert run.error == plain.error
    return run


TRAINING = """
    import torch.nn as nn
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
"""


def training(body):
    return textwrap.dedent(TRAINING).replace("import torch.nn as nn", "nn = torch.nn") + textwrap.dedent(body)


# ---- loops that become regions ----


def test_a_training_loop_in_a_module():
    run = check(
        training("""
        losses = []
        for step in range(30):
            x = torch.randn(5, 4)
            y = torch.randint(2, (5,))
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(losses, [p.sum().item() for p in model.parameters()])
        """)
    )
    (region,) = run.regions
    assert region[0] == "<module>" and region[2] == "loop"
    assert run.hits("<module>") >= 2 * 25


def test_a_training_loop_in_a_function_that_is_called_once():
    run = check(
        training("""
        def main(steps):
            total = 0.0
            for step in range(steps):
                x = torch.randn(5, 4)
                loss = model(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += float(loss)
            return total, loss

        print(main(30))
        """)
    )
    assert run.hits("main") >= 2 * 25


def test_the_step_in_a_function_is_a_part_of_the_callers_region():
    run = check(
        training("""
        def make_step():
            def step(x):
                loss = model(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                return loss
            return step

        def main():
            step = make_step()
            for k in range(30):
                loss = step(torch.randn(5, 4))
            print(loss)

        main()
        """)
    )
    assert [region[0] for region in run.regions] == ["main"]
    assert run.hits("main") >= 25
    (segment,) = [s for s in run.regions[0][3].report() if s["hits"] >= 20]
    assert segment["operators"] > 10  # forward, backward and the optimizer are one graph


def test_epochs_around_steps():
    run = check(
        training("""
        def epoch(number):
            for step in range(40):
                loss = model(torch.randn(5, 4)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(number, loss)

        for number in range(8):
            epoch(number)
        """)
    )
    assert run.hits("epoch") + run.hits("<module>") >= 8 * 40 - 40


def test_a_short_loop_in_a_round_is_a_part_of_the_round():
    run = check(
        """
        def main():
            w = torch.ones(3, requires_grad=True)
            for step in range(40):
                h = torch.zeros(3)
                for t in range(4):
                    h = torch.tanh(h + w * t + step)
                loss = h.sum()
                loss.backward()
                with torch.no_grad():
                    w -= 0.1 * w.grad
                    w.grad = None
            print(w, loss)

        main()
        """,
        hot_rounds=5,
    )
    assert [segment["hits"] for segment in run.regions[0][3].report()][-1] >= 20
    assert max(segment["operators"] for segment in run.regions[0][3].report()) >= 16


def test_a_while_loop_and_a_changing_float():
    run = check("""
        def main():
            x, rate, n = torch.ones(4), 1.0, 0
            while rate > 0.05:
                rate *= 0.95
                n += 1
                x = (x + rate).sin().exp() / n
            print(x, rate, n)

        main()
    """)
    assert run.hits("main") >= 30


def test_break_continue_and_else():
    check("""
        def main(stop):
            x = torch.ones(4)
            for i in range(60):
                if i % 5 == 2:
                    continue
                x = (x * 1.01).sin().exp().cos() + i
                if i == stop:
                    break
            else:
                print("not stopped")
            print(i, x)

        main(41)
        main(100)
        for k in range(20):
            y = torch.full((3,), float(k)).sin().exp().cos().sum()
            if y > 100:
                break
        else:
            print("module", k, y)
    """)


def test_an_exception_in_a_hot_loop_that_nobody_catches():
    run = check("""
        def risky(x, i):
            if i == 30:
                raise ValueError(f"round {i}")
            return x.sin().exp().cos() + i

        def main():
            x = torch.ones(4)
            for i in range(60):
                x = risky(x, i)

        main()
    """)
    assert "round 30" in run.error and "in risky" in run.error
    assert run.hits("main") >= 20


def test_exceptions_in_a_hot_loop_that_are_caught():
    check("""
        def main():
            x, seen = torch.ones(4), []
            for i in range(60):
                try:
                    x = x.sin().exp().cos() + i
                    if i % 6 == 1:
                        raise KeyError(i)
                except KeyError as error:
                    seen.append(error.args)
                finally:
                    seen.append(i)
            print(x, seen)
            try:
                for i in range(60):
                    x = x.sin().exp().cos() + i
                    if i == 40:
                        x.view(1000)
            except RuntimeError as error:
                print(error, i, x)

        main()
    """)


def test_an_error_of_an_operator_has_the_programs_traceback():
    run = check("""
        def main(x):
            for i in range(40):
                n = 4 if i < 30 else 5
                y = x.sin().exp().cos().reshape(2, 2) + torch.ones(n).sum() + x.view(n)
            print(y)

        main(torch.ones(4))
    """)
    assert "in main" in run.error


def test_a_generator_as_what_is_iterated_and_one_that_computes():
    check("""
        def batches(n):
            for i in range(n):
                yield i, torch.full((3,), float(i))

        def outputs(n):
            x = torch.ones(3)
            for i, batch in batches(n):
                x = (x + batch).sin().exp().cos()
                yield x

        def main():
            total = torch.zeros(3)
            for i, batch in batches(40):
                total = (total + batch).sin().exp().cos()
            print(total)
            for k, y in enumerate(outputs(40)):
                total = (total + y).sin().exp().cos()
                if k == 35:
                    break
            print(total, k)

        main()
        print(sum(float(y.sum()) for y in outputs(30)))
    """)


def test_effects_come_in_their_order():
    run = check("""
        log = []
        def main():
            x = torch.ones(4)
            for i in range(40):
                x = x.sin().exp().cos() + i
                print("round", i)
                log.append(i)
                if i % 10 == 0:
                    print("so far", x)
            return x

        print(main(), log)
    """)
    assert run.hits("main") >= 25


def test_destructors_run_when_they_would():
    check("""
        class Loud:
            def __init__(self, name):
                self.name = name

            def __del__(self):
                print("gone", self.name)

        def main():
            x = torch.ones(4)
            for i in range(30):
                loud = Loud(i)
                x = x.sin().exp().cos() + i
            print(x)

        main()
    """)


def test_variables_of_a_module_are_its_dictionarys():
    run = check("""
        x = torch.ones(4)
        def look():
            return x.sum(), count

        for count in range(40):
            x = x.sin().exp().cos() + count
            y = look()
        print(x, y, count, sorted(name for name in globals() if len(name) == 1))
        del y
        print("y" in globals())
    """)
    assert run.hits("<module>") >= 25


def test_no_grad_that_a_call_ends_inside():
    run = check("""
        w = torch.ones(4, requires_grad=True)

        @torch.no_grad()
        def update(k):
            w.sub_(0.01 * w.grad)
            w.grad = None
            print("w", w)
            return w * k

        for k in range(30):
            loss = (w * k).sin().exp().sum()
            loss.backward()
            y = update(k)
            z = w * 2
            print(torch.is_grad_enabled(), y.requires_grad, z.requires_grad)
    """)
    assert run.hits("<module>") >= 20


def test_many_sizes():
    check("""
        def main():
            total = 0.0
            for i in range(60):
                x = torch.ones(i % 7 + 1, 3)
                total += float((x.sin().exp() @ torch.ones(3, 2)).cos().sum())
            print(total)

        main()
    """)


def test_what_gains_nothing_is_left_alone():
    run = check("""
        def main():
            total = 0.0
            for i in range(200):
                x = torch.ones(3)
                total += float(x.sum()) + float(x.mean()) + float(x.min()) + float(x.max()) + float(x.prod())
            print(total)

        main()
    """)
    assert 0 < run.hits("main") < 5 * 60


def test_hot_functions_of_a_loop_that_gains_nothing_as_a_whole():
    run = check("""
        def body(x):
            for _ in range(6):
                x = (x + 1).sin().exp().cos()
            return x

        class Odd:
            def __iter__(self):
                return iter(())

        def main():
            x = torch.ones(4)
            for i in range(200):
                for k in (1, 2, 3, 4):
                    list(map(float, [x.sum(), x.mean(), x.min(), x.max()]))
                    list(map(float, [x.sum(), x.mean(), x.min(), x.max()]))
                x = body(x)
            print(x)

        main()
    """)
    assert run.regions


def test_a_session_inside_and_compiled_functions():
    check("""
        @torch.compile
        def f(x, i):
            return (x + i).sin().exp().cos()

        def main():
            x = torch.ones(4)
            for i in range(40):
                x = f(x, i) * 2
            print(x)

        main()
    """)


# ---- loops that CPython gets ----

WITHOUT_TENSORS = """
    class Box:
        def __init__(self, x):
            self.x = x

        def get(self):
            return self.x

    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def loops(n):
        total, counts = 0, {}
        for i in range(n):
            total += Box(i).get() % 7
            counts[i % 10] = counts.get(i % 10, 0) + i
            if i == n - 3:
                break
        for i in range(n):
            for j in range(20):
                if j == 17:
                    break
                total ^= j
            else:
                total = 0
            if i % 3:
                continue
            total += 1
        while n:
            n -= 1
            try:
                if n % 5 == 2:
                    raise KeyError(n)
                total += 1
            except KeyError as error:
                total += error.args[0]
            finally:
                total ^= 5
        return total, counts

    def raises(n):
        for i in range(n):
            if i == n - 2:
                raise ValueError(i)

    def returns(n):
        for i in range(n):
            with open("/dev/null") as file:
                if i == n - 2:
                    return i, file.name

    def main():
        print(loops(300), fib(12), returns(50))
        try:
            raises(50)
        except ValueError as error:
            print(error, error.__traceback__.tb_next.tb_lineno)
        print([x * y for x in range(9) for y in range(30)][-3:], {k for k in range(200)} == set(range(200)))
        print(sum(x for x in range(100)), max((y, x) for x in range(9) for y in range(9)))

    main()
    for k in range(100):
        if k == 70:
            break
    n = 0
    while True:
        n += 1
        if n > 100:
            break
    print(k, n)
    for k in range(100):
        pass
    raises(60)
"""


@pytest.mark.parametrize("quiet_rounds", [1, 2, 5, 16])
def test_a_program_without_tensors(quiet_rounds):
    run = check(WITHOUT_TENSORS, quiet_rounds=quiet_rounds)
    assert run.regions == [] and "ValueError: 58" in run.error


@pytest.mark.parametrize("quiet_rounds", [1, 3])
def test_a_loop_is_taken_back_when_it_calls_operators(quiet_rounds):
    run = check(
        """
        def main():
            x, quiet = torch.ones(4), 0
            for i in range(400):
                if i < 100:
                    quiet += i
                    continue
                x = x.sin().exp().cos() + i
            print(x, quiet)

        main()
        for i in range(400):
            if i < 100:
                continue
            y = torch.full((3,), float(i)).sin().exp().cos().sum()
        print(y)
        """,
        quiet_rounds=quiet_rounds,
    )
    assert run.hits("main") >= 200 and run.hits("<module>") >= 200


def test_the_frame_of_a_loop_that_cpython_runs_is_the_programs():
    check("""
        import sys

        def look(names):
            frame = sys._getframe(1)
            return frame.f_lineno, frame.f_code.co_name, sorted(frame.f_locals)[:names], frame.f_back.f_code.co_name

        def main():
            seen = []
            for i in range(60):
                if i % 20 == 19:
                    seen.append(look(2))
            print(seen)

        main()
    """)


def test_generators_coroutines_and_classes_are_cpythons():
    check("""
        import asyncio

        def gen():
            received = []
            try:
                while True:
                    received.append((yield len(received)))
            finally:
                print("closed", received)

        async def tick(n):
            for i in range(n):
                await asyncio.sleep(0)
            return n

        def main():
            g = gen()
            next(g)
            for i in range(30):
                last = g.send(i)
            g.close()
            print(last, asyncio.run(tick(30)))

            class Local:
                items = [k for k in range(30)]
                for item in range(40):
                    total = item

            print(Local.items[-1], Local.total)

        main()
    """)


def test_tracing_that_begins_in_the_middle():
    check("""
        import sys
        lines = []

        def trace(frame, event, argument):
            lines.append((event, frame.f_code.co_name))
            return trace

        def inner(i):
            return i + 1

        def main():
            total = 0
            for i in range(40):
                total = inner(total)
                if i == 30:
                    sys.settrace(trace)
            sys.settrace(None)
            return total

        print(main(), [line for line in lines if line[1] == "inner"][:6])
    """)


# ---- the command ----


def command(*arguments, env=None, timeout=120, **kinds):
    environment = {**os.environ, "PYTHONPATH": PACKAGE, **(env or {})}
    return subprocess.run(
        [sys.executable, "-m", "wick", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=timeout,
        **kinds,
    )


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("train_mlp", ["--steps", "30"]),
        ("train_lstm", ["--steps", "16", "--length", "8"]),
        ("train_chargpt", "--steps 14 --layers 1 --width 16 --context 8 --batch 2 --sample 12".split()),
    ],
)
def test_examples_give_the_same_numbers(tmp_path, name, arguments):
    results = []
    for switch in [], ["--compile"]:
        path = tmp_path / f"{len(switch)}.json"
        done = command(*switch, os.path.join(ROOT, "examples", f"{name}.py"), *arguments, "--json", str(path))
        assert done.returncode == 0, done.stderr
        results.append(json.loads(path.read_text()))
    for key in results[0]:
        if key != "times":
            assert results[0][key] == results[1][key], key


def test_a_traceback_is_the_programs(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text("import torch\nfor i in range(20):\n    x = torch.ones(i + 1).sin().cos().exp()\nx.view(7)\n")
    plain, compiled = command(str(program)), command("--compile", str(program))
    assert plain.returncode == compiled.returncode == 1
    assert compiled.stderr == plain.stderr and "line 4" in plain.stderr


def test_the_report_and_the_log(tmp_path):
    program = tmp_path / "loop.py"
    program.write_text(
        "import torch\n\n\ndef main():\n    x = torch.ones(3)\n    for i in range(40):\n        x = (x + i).sin().cos().exp()\n"
        "    print(x)\n\n\nmain()\n"
    )
    done = command("--compile=report", str(program), env={"WICK_LOGS": "regions"})
    assert done.returncode == 0
    assert f"{program}:6: the loop in main is hot: a region" in done.stderr
    assert f"{program}:6: loop in main: " in done.stderr and "run     3" in done.stderr
    by_environment = command(str(program), env={"WICK_COMPILE": "report"})
    assert by_environment.stdout == done.stdout and "loop in main" in by_environment.stderr
    off = command(str(program), env={"WICK_COMPILE": "0"})
    assert off.stdout == done.stdout and not off.stderr


def test_an_unknown_way_to_compile_is_refused():
    done = command("--compile=what", "-c", "pass")
    assert done.returncode == 2 and "--compile=report" in done.stdout


def test_ctrl_c_ends_a_hot_loop(tmp_path):
    program = tmp_path / "endless.py"
    program.write_text(
        "import os, signal, torch\n\n\ndef main():\n    x, i = torch.ones(3), 0\n    try:\n        while True:\n"
        "            x = (x + i).sin().cos().exp()\n            i += 1\n"
        "            if i == 200:\n                os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt:\n        print('stopped', 200 <= i < 205, x.shape)\n\n\nmain()\n"
    )
    done = command("--compile", str(program))
    assert done.returncode == 0 and done.stdout == "stopped True torch.Size([3])\n", done.stderr


def test_regions_are_listed(tmp_path):
    program = tmp_path / "list.py"
    program.write_text(
        "import torch\nfor i in range(30):\n    x = (torch.ones(3) + i).sin().cos().exp()\n"
        "print([(r.name, r.line, r.kind) for r in torch.compiler.regions()])\n"
    )
    assert command("--compile", str(program)).stdout == "[('<module>', 2, 'loop')]\n"


def test_loops_that_are_reached_by_way_of_c_code():
    run = check("""
        import functools

        class Trainer:
            def __call__(self, steps):
                return self.loop(torch.ones(3), steps)

            def loop(self, x, steps):
                for i in range(steps):
                    x = (x + i).sin().exp().cos()
                return x

        class Repeat(torch.nn.Module):
            def forward(self, x, times):
                for i in range(times):
                    x = (x * i).sin().exp().cos()
                return x

        def spread(function, *args, **names):
            return function(*args, **names)

        def plain(x, times):
            for i in range(times):
                x = (x - i).sin().exp().cos()
            return x

        print(Trainer()(40), Repeat()(torch.ones(3), times=40))
        print(functools.partial(functools.partial(spread, plain), times=40)(torch.ones(3)))
    """)
    assert sorted(region[0] for region in run.regions) == ["forward", "loop", "plain"]
    assert all(run.hits(name) >= 30 for name in ("forward", "loop", "plain"))


def test_comprehensions_are_no_regions():
    run = check("""
        def main():
            x = torch.ones(3)
            for i in range(30):
                parts = [(x + k).sin().exp().cos() for k in range(12)]
                x = sum(parts) / len([*parts, i])
            print(x, {k: float((x * k).sin().exp().cos().sum()) for k in range(12)})

        main()
        print([float((torch.ones(3) * k).sin().exp().cos().sum()) for k in range(20)])
    """)
    assert {region[0] for region in run.regions} == {"main"}
    assert run.hits("main") >= 20


def test_much_python_in_the_rounds_of_a_region():
    run = check("""
        import random

        def words(i):
            generator = random.Random(i)
            return [generator.choice("abcdef") for _ in range(50)]

        def main(stop):
            counts, x = {}, torch.ones(3)
            for i in range(60):
                for word in words(i) * 10:
                    counts[word] = counts.get(word, 0) + 1
                    if i == stop and counts[word] > 4000:
                        raise ValueError(word)
                total = 0
                for n in range(i * 10):
                    total += n % 7
                x = (x * total).sin().exp().cos().sin().exp().cos().sin().exp().cos().sin().exp().cos() + len(counts)
            print(sorted(counts.items()), x, total)

        main(100)
        main(50)
    """)
    assert run.hits("main") and "ValueError" in run.error


@pytest.mark.parametrize("quiet_rounds", [2, 6, 16])
def test_while_loops_with_continue(quiet_rounds):
    run = check(
        """
        def main(n, x):
            seen = 0
            while n > 0:
                n -= 1
                if n % 3 == 0:
                    continue
                while seen % 5:
                    seen += 1
                    if seen % 2:
                        continue
                    if seen % 7 == 3:
                        break
                seen += n % 4
                if x is not None and n < 200:
                    x = (x + seen).sin().exp().cos().sin().exp().cos().sin().exp().cos()
            else:
                seen += 1
            return seen, x

        print(main(100, None), main(260, torch.ones(3)))
        print(main(260, torch.ones(3)), main(260, torch.ones(3)))
        n = 300
        while n:
            n -= 1
            if n % 2:
                continue
            y = torch.full((2,), float(n)).sin().exp().cos().sin().exp().cos().sum()
        print(y, n)
        """,
        quiet_rounds=quiet_rounds,
    )
    assert run.hits("main") >= 40 and run.hits("<module>") >= 40


def test_a_function_inside_of_what_gains_nothing():
    run = check("""
        class Log:
            def __init__(self):
                self.lines = 0

            def put(self, x):
                for _ in range(3):
                    self.lines += int(x.sum()) + int(x.max()) + int(x.min())

        def body(x):
            for k in range(8):
                x = (x + k).sin().exp().cos()
            return x

        def advance(x, log):
            for _ in (1, 2, 3, 4):
                log.put(x)
                log.put(x)
                log.put(x)
            return body(body(x))

        def main():
            x, log = torch.ones(4), Log()
            for i in range(400):
                log.put(x)
                x = advance(x, log)
                log.put(x)
            print(x, log.lines)

        main()
    """)
    kinds = {(region[0], region[2]) for region in run.regions}
    assert ("main", "loop") in kinds and ("body", "function") in kinds
    assert run.hits("body") >= 300


def test_modules_code_and_what_runs_at_the_end(tmp_path):
    body = textwrap.dedent("""
        import atexit, sys
        import torch

        class Loud:
            def __init__(self, x):
                self.x = x

            def __del__(self):
                print("gone", float(self.x))

        loud = Loud(torch.ones(1))
        atexit.register(lambda: print("at exit", loud.x.tolist(), sys.argv[1:]))

        def main(x):
            for i in range(40):
                x = (x + i + loud.x).sin().exp().cos()
            return x

        print(main(torch.ones(3)), __name__)
    """)
    (tmp_path / "program.py").write_text(body)
    for how in ["-c", body], ["-m", "program"], [str(tmp_path / "program.py")]:
        plain, compiled = command(*how, "argument", cwd=tmp_path), command("--compile", *how, "argument", cwd=tmp_path)
        assert compiled.stdout == plain.stdout and "gone 1.0" in plain.stdout
        assert compiled.stderr == plain.stderr == ""


def test_threads_of_a_program(tmp_path):
    check("""
        import threading

        results = {}
        def work(name):
            x = torch.full((3,), float(name))
            for i in range(200):
                x = (x + i).sin().exp().cos()
            results[name] = x

        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        y = torch.ones(3)
        for i in range(200):
            y = (y + i).sin().exp().cos()
        for thread in threads:
            thread.join()
        print(y, sorted(results.items()))
    """)


def test_a_profiler_around_loops():
    check("""
        import cProfile, io, pstats, sys

        def inner(i):
            return i + 1

        def main(x):
            total = 0
            for i in range(50):
                total = inner(total)
            for i in range(50):
                x = (x + i).sin().exp().cos()
            return total, x

        profile = cProfile.Profile()
        print(profile.runcall(main, torch.ones(3)))
        for i in range(60):
            if i == 30:
                profile.enable()
            main(torch.ones(3))
        profile.disable()
        counts = {name: calls for (file, line, name), (calls, *_) in pstats.Stats(profile).stats.items()}
        print(counts["main"], counts["inner"])
    """)

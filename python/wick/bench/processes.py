"""Processes that measure: workers that answer requests, and whole programs with their time and peak memory.

with Process(ENGINES["wick"]) as process:
    process.ask(do="prepare", case="softmax", tiny=False, threads=1, compiled=False)
    seconds = process.ask(do="measure", seconds=0.25)["seconds"]
"""

import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

from .engines import Engine

WORKER = pathlib.Path(__file__).absolute().parent / "worker.py"

# Started by a process of its own that is small: Linux counts what the parent has resident to a child's peak.
_RUN = """
import json, os, sys, time
start = time.perf_counter()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
figures = {"seconds": time.perf_counter() - start, "status": os.waitstatus_to_exitcode(status),
           "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)}
with open(sys.argv[1], "w") as file: json.dump(figures, file)
"""


class Failed(RuntimeError):
    """A measuring process ended without an answer; the text has the end of what it wrote to standard error."""


class Process:
    """A worker under an engine; engine=None: one that loads neither wick nor PyTorch. `with` ends it."""

    def __init__(self, engine=None, cold=False, worker=WORKER, threads=None):
        """cold: compiled code is kept in a new folder, which is removed at the end. worker: the script that answers."""
        self.folder = tempfile.TemporaryDirectory(prefix="wick-bench-")
        plain = Engine("none", "no engine", "none", False)
        engine = engine or plain
        self.name = engine.name
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            engine.command(worker),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=engine.environment(threads, self.folder.name if cold else None),
        )

    def ask(self, limit=None, **request):
        """The answer to a request of the worker, a dict. Raises Failed when the process ends instead, and ends it
        after `limit` seconds."""
        timer = threading.Timer(limit or 0, self.process.kill)
        if limit:
            timer.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            self.process.wait()
            self.errors.seek(0)
            raise Failed(f"{self.name} failed at {request}:\n{self.errors.read()[-2000:]}")
        return json.loads(answer)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if exception[0] is not None:
            self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()
        self.folder.cleanup()


def run_program(command, environment, **options):
    """Runs a command line: {"seconds": wall time, "peak_bytes": of resident memory, "status": of exit, "stdout": text}.

    environment: a dict, or None for this process's. options: for subprocess.run, for example stderr.
    """
    with tempfile.NamedTemporaryFile("r", suffix=".json") as figures:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _RUN, figures.name, *command],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            **options,
        )
        text = figures.read()
    if done.returncode or not text:
        raise Failed(f"{' '.join(command)}: could not be run")
    return json.loads(text) | {"stdout": done.stdout}

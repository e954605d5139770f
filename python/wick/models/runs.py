"""Runs models in worker processes, one for each engine, and keeps what they answer in a file, so that a run that was
stopped goes on where it was.

    with Runs("folder/results.jsonl", again=False) as runs:
        result = runs.result("wick", "resnet18", do="train", dtype="float32", full=False, threads=1, time=False)
"""

import contextlib
import json
import pathlib

from ..bench.engines import ENGINES
from ..bench.processes import Failed, Process

WORKER = pathlib.Path(__file__).absolute().parent / "worker.py"
LIMIT = 300  # seconds for a model; full ones get ten times as many
TORCH_COMPILE_LIMIT = 1800


class Runs:
    """Answers of workers by what was asked. `with` ends the workers."""

    def __init__(self, path=None, again=False, limit=None):
        """path: the file that answers are kept in. again: answers that it has are not used. limit: seconds for one."""
        self.limit = limit
        self.path = pathlib.Path(path) if path else None
        self.answers, self.processes = {}, {}
        if self.path and self.path.exists() and not again:
            self._read()
        elif self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("", encoding="utf-8")

    def _read(self):
        for line in self.path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # the last line may be half a line
                row = json.loads(line)
                self.answers[self._key(row["request"])] = row["answer"]

    @staticmethod
    def _key(request):
        return json.dumps(request, sort_keys=True)

    def has(self, engine, **request):
        """Whether the answer is known already."""
        return self._key(request | {"engine": engine}) in self.answers

    def result(self, engine, **request):
        """What the engine's worker answers; an answer with "error" when its process ended or took too long."""
        request = request | {"engine": engine}
        key = self._key(request)
        if key not in self.answers:
            self.answers[key] = answer = self._ask(ENGINES[engine], request)
            if self.path:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"request": request, "answer": answer}) + "\n")
        return self.answers[key]

    def _ask(self, engine, request):
        limit = LIMIT * (10 if request["full"] else 1)
        if engine.library == "torch" and engine.compiled:
            limit = max(limit, TORCH_COMPILE_LIMIT)
        limit = self.limit or limit
        asked = {k: v for k, v in request.items() if k != "engine"} | {"compiled": engine.compiled}
        try:
            if request.get("alone"):
                with Process(engine, cold=True, worker=WORKER, threads=request["threads"]) as process:
                    return process.ask(limit=limit, **asked)
            return self._process(engine, request["threads"]).ask(limit=limit, **asked)
        except Failed as error:
            if request.get("alone"):
                return {"error": str(error)[-2000:], "where": "", "traceback": ""}
            process = self.processes.pop((engine.library, request["threads"]))
            status = process.process.returncode
            process.__exit__(None)
            what = f"took longer than {limit} s" if status == -9 else f"the process ended with status {status}"
            return {"error": what, "where": "", "traceback": str(error)[-2000:]}

    def _process(self, engine, threads):
        key = engine.library, threads
        if key not in self.processes:
            self.processes[key] = Process(engine, worker=WORKER, threads=threads)
        return self.processes[key]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for process in self.processes.values():
            process.__exit__(*exception or (None,))

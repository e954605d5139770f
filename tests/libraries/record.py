"""Records what PyTorch computes for the models of the benchmark: expected.json, which test_libraries.py compares with.

python tests/libraries/record.py [folder to keep answers in, so that a run that was stopped goes on]

Run where PyTorch, wick and the libraries of requirements.txt are importable.
"""

import json
import pathlib
import sys
import tempfile

from wick.bench.report import Bar
from wick.models import catalog
from wick.models.runs import Runs

HERE = pathlib.Path(__file__).parent
REQUEST = {"do": "train", "full": False, "threads": 1, "time": False}


def line_of(answer):
    """What is kept of an answer."""
    if "error" in answer:
        return None
    return {"parameters": answer["parameters"]} | {
        key: [float(f"{value:.12g}") for value in answer[key]] for key in ("losses", "norms")
    }


def main():
    names, lines = list(catalog.models()), []
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    with Runs(folder / "results.jsonl") as runs, Bar(2 * len(names)) as bar:
        for name in names:
            row = {}
            for dtype in ("float32", "float64"):
                bar.step(f"{name}, {dtype}")
                row[dtype] = line_of(runs.result("torch", model=name, dtype=dtype, **REQUEST))
            lines.append(f"{json.dumps(name)}: {json.dumps(row)}")
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Shows verdicts: a table, a page with the reason of each failure, and a picture of speed-ups.

row = Row(model, {"wick": answer, ...}, verdict)
print(verdict_table([row])); write_page(path, [row]); draw(path, [row])
"""

from collections import Counter
from dataclasses import dataclass

from ..bench.engines import ENGINES
from ..bench.report import Ratios, save_picture, table, time_text
from .check import GOOD


@dataclass(frozen=True)
class Row:
    """A model, what each engine answered, and what that means."""

    model: object
    results: dict
    verdict: object

    def figure(self, engine, name):
        """What the engine's worker measured, or None."""
        return self.results.get(engine, {}).get(name)

    def seconds(self, engine):
        """A step's time, or None."""
        return self.figure(engine, "seconds")


def _size(row):
    counts = [result["parameters"] for result in row.results.values() if "parameters" in result]
    return "-" if not counts else f"{counts[0] / 1e6:.2f} M" if counts[0] >= 1e4 else str(counts[0])


def _difference(value):
    return "-" if value is None else "0" if value == 0 else f"{value:.0e}"


def timed_engines(rows):
    """Names of the engines that have a time."""
    return [name for name in ENGINES if any(row.seconds(name) for row in rows)]


def verdict_table(rows):
    """A line for each model."""
    engines = timed_engines(rows)
    heads = ["model", "library", "parameters", "losses", "gradients", "verdict", *(ENGINES[n].title for n in engines)]
    body = [
        [row.model.name, row.model.library, _size(row), _difference(row.verdict.losses), _difference(row.verdict.norms),
         row.verdict.word, *(time_text(row.seconds(name)) for name in engines)]
        for row in rows
    ]  # fmt: skip
    return table(heads, body)


def alone_table(rows):
    """A line for each model that ran alone: the first step's end and the peak of memory, of each engine."""
    engines = [name for name in ENGINES if any(row.figure(name, "peak_bytes") for row in rows)]
    if not engines:
        return ""
    heads = ["model", *(f"{ENGINES[n].title}: {what}" for n in engines for what in ("first step", "peak"))]
    body = [
        [row.model.name, *(text for n in engines for text in (time_text(row.figure(n, "first_step")),
                                                             _memory(row.figure(n, "peak_bytes"))))]
        for row in rows
    ]  # fmt: skip
    return table(heads, body) + "\n"


def _memory(count):
    return "-" if count is None else f"{count / 2**20:.0f} MiB"


def summary(rows):
    """How many models have which verdict, a line for each library."""
    lines = []
    for library in dict.fromkeys(row.model.library for row in rows):
        words = Counter(row.verdict.word for row in rows if row.model.library == library)
        lines.append(f"{library}: " + ", ".join(f"{count} {word}" for word, count in words.most_common()))
    return "\n".join(lines)


def page(rows):
    """A Markdown page: the summary, the table, and below it why each model that is not good is not."""
    parts = ["# Models of libraries under wick and PyTorch", summary(rows).replace("\n", "\n\n"), verdict_table(rows)]
    if alone_table(rows):
        parts.append(alone_table(rows))
    bad = [row for row in rows if row.verdict.word not in GOOD]
    reasons = {}
    for row in bad:
        reasons.setdefault(row.verdict.reason, []).append(row)
    if bad:
        parts.append("## What failed, the commonest reason first")
    for reason, its in sorted(reasons.items(), key=lambda item: -len(item[1])):
        parts.append(f"### {', '.join(row.model.name for row in its)}\n\n{reason}")
        traces = [result["traceback"] for result in its[0].results.values() if result.get("traceback")]
        parts += [f"```\n{trace.strip()[-3000:]}\n```" for trace in traces[:1]]
    return "\n\n".join(parts) + "\n"


def as_json(rows):
    """What the JSON file has of each model."""
    return [
        {"model": row.model.name, "library": row.model.library, "verdict": row.verdict.word,
         "reason": row.verdict.reason, "loss_difference": row.verdict.losses,
         "gradient_difference": row.verdict.norms, "results": row.results}
        for row in rows
    ]  # fmt: skip


def speedups(rows, reference="torch"):
    """{engine: {model: the reference's time over its own}}."""
    found = {}
    for name in timed_engines(rows):
        if name != reference:
            ratios = {r.model.name: r.seconds(reference) / r.seconds(name)
                      for r in rows if r.seconds(reference) and r.seconds(name)}  # fmt: skip
            found[name] = ratios
    return found


def geometric_mean(values):
    """Of positive numbers; NaN of none."""
    import math
    import statistics

    values = list(values)
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def draw(path, rows, note):
    """A PNG: the time of a step of each engine relative to PyTorch's, a panel for each library."""
    engines, panels = timed_engines(rows), []
    reference = "torch" if "torch" in engines else engines[0]
    for library in dict.fromkeys(row.model.library for row in rows):
        panel = Ratios(library, ENGINES[reference].title, {})
        for row in rows:
            if row.model.library == library and row.seconds(reference):
                panel.groups[row.model.name] = {
                    ENGINES[name].title: (_over(row.seconds(name), row.seconds(reference)), row.seconds(name))
                    for name in engines
                }
        if panel.groups:
            panels.append(panel)
    if panels:
        save_picture(path, f"Time of a step, relative to {ENGINES[reference].title}", panels, note)


def _over(seconds, reference):
    return seconds / reference if seconds else None

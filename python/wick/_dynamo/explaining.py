"""explain(fn)(*args): what capture and the compiler make of a function."""

from .. import _C
from ..compiler import _live
from .explain_hints import hint_of, mend_of


class ExplainOutput:
    """graph_count, graph_break_count, op_count, break_reasons, graphs, guards, segments; print it, or to_html().

    segments has a dict for each captured stretch of the function, kernels what is run for it (None without operators),
    hints one text for each break. compiled is the captured function itself: what it runs later, to_html() shows too.
    """

    def __init__(self, segments, compiled=None):
        self.segments, self.compiled = segments, compiled
        graphs = [segment for segment in segments if segment["operators"]]
        self.graph_count = len(graphs)
        self.graphs = [segment["graph"] for segment in graphs]
        self.op_count = sum(segment["operators"] for segment in graphs)
        self.break_reasons = [
            (segment["reason"], segment["file"], segment["line"]) for segment in segments if segment["end"] != "return"
        ]
        self.graph_break_count = len(self.break_reasons)
        self.hints = [hint_of(reason) for reason, _, _ in self.break_reasons]
        self.out_guards = [guard for segment in segments for guard in segment["guards"]]
        self.guards = self.out_guards

    @classmethod
    def of(cls, compiled):
        """What has been captured so far of a function or module that compile() gave; nothing is run."""
        compiled = vars(compiled).get("_compiled_forward", compiled)
        return cls(compiled.report(), compiled)

    @property
    def recompiles(self):
        """What was captured again: [(file, line, the guard that did not hold, what to do about it)].

        for file, line, guard, mend in ExplainOutput.of(compiled).recompiles: print(f"{file}:{line}: {guard}. {mend}")
        """
        notes = self.compiled.recompiles() if self.compiled else []
        return [(file, line, reason, mend_of(reason)) for file, line, reason in notes]

    @property
    def kernels(self):
        """One item a segment: None, or a dict with graph, kernels, steps and the halves of a derivative."""
        return self.compiled.kernels() if self.compiled else [None] * len(self.segments)

    def to_html(self, file=None):
        """The report as one page that needs nothing else, also written to `file` where one is given.

        explain(step)(x).to_html("step.html")
        """
        from .explain_html import page_of

        page = page_of(self)
        if file is not None:
            with open(file, "w", encoding="utf-8") as out:
                out.write(page)
        return page

    def __str__(self):
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        for number, ((reason, file, line), hint) in enumerate(zip(self.break_reasons, self.hints, strict=True), 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {reason}", f"    At: {file}:{line}"]
            lines += [f"    Hint: {hint}"] if hint else []
        for file, line, reason, mend in self.recompiles:
            lines += [f"Recompiled at {file}:{line}, for this did not hold: {reason}", f"    {mend}"]
        lines.append("Segments:")
        for number, segment in enumerate(self.segments, 1):
            lines.append(f"  {number}. {summary_of(segment)}")
        return "\n".join(lines)

    __repr__ = __str__


def summary_of(segment):
    """One line about a segment."""
    at = " > ".join(f"{name}:{line}" for name, line in segment["start"])
    return (
        f"from {at} to {segment['end']} at line {segment['line']}: {segment['operators']} operators, "
        f"{segment['inputs']} inputs, {segment['mutations']} written, {len(segment['guards'])} guards"
    )


def _function_of(f):
    from ..nn import Module

    if isinstance(f, Module):
        f = vars(f).get("_orig_mod", f).forward
    return f.function if isinstance(f, _C.Compiled) else f


def explain(f, *extra_args, html=None, **extra_kwargs):
    """explain(fn)(*args, **kwargs) -> ExplainOutput: runs the function once, captured.

    html: a file that gets the report as a page.

    print(explain(step)(x, y))
    explain(step, html="step.html")(x, y)
    """

    def inner(*args, **kwargs):
        compiled = _C.Compiled(_function_of(f))
        compiled(*args, **kwargs)
        _live.add(compiled)  # profiles see it, reset() forgets it
        output = ExplainOutput(compiled.report(), compiled)
        if html is not None:
            output.to_html(html)
        return output

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner

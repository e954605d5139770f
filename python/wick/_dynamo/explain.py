"""explain(fn)(*args): what capture makes of a function."""

from .. import _C


class ExplainOutput:
    """graph_count, graph_break_count, op_count, break_reasons, graphs, guards, segments; print it."""

    def __init__(self, segments):
        self.segments = segments
        graphs = [segment for segment in segments if segment["operators"]]
        self.graph_count = len(graphs)
        self.graphs = [segment["graph"] for segment in graphs]
        self.op_count = sum(segment["operators"] for segment in graphs)
        self.break_reasons = [
            (segment["reason"], segment["file"], segment["line"]) for segment in segments if segment["end"] != "return"
        ]
        self.graph_break_count = len(self.break_reasons)
        self.out_guards = [guard for segment in segments for guard in segment["guards"]]
        self.guards = self.out_guards

    def __str__(self):
        lines = [
            f"Graph Count: {self.graph_count}",
            f"Graph Break Count: {self.graph_break_count}",
            f"Op Count: {self.op_count}",
            "Break Reasons:",
        ]
        for number, (reason, file, line) in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {reason}", f"    At: {file}:{line}"]
        lines.append("Segments:")
        for number, segment in enumerate(self.segments, 1):
            at = " > ".join(f"{name}:{line}" for name, line in segment["start"])
            lines.append(
                f"  {number}. from {at} to {segment['end']} at line {segment['line']}: {segment['operators']} operators, "
                f"{segment['inputs']} inputs, {segment['mutations']} written, {len(segment['guards'])} guards"
            )
        return "\n".join(lines)

    __repr__ = __str__


def explain(f, *extra_args, **extra_kwargs):
    """explain(fn)(*args, **kwargs) -> ExplainOutput: runs the function once, captured.

    print(explain(step)(x, y))
    """

    def inner(*args, **kwargs):
        compiled = _C.Compiled(f.function if isinstance(f, _C.Compiled) else f)
        compiled(*args, **kwargs)
        return ExplainOutput(compiled.report())

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner

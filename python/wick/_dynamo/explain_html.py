"""The report of explain() as a page: source lines, breaks, guards, graphs, kernels, bytes and times.

In: an ExplainOutput. Out: text of one HTML page without scripts, pictures or links elsewhere.
Tests: tests/python/test_explain.py.
"""

from .page import break_item, document, escape, segment_part, source_section


def page_of(output):
    """The page of an ExplainOutput, with what its function has done since."""
    from .explaining import summary_of

    kernels = output.compiled.kernels(sources=True) if output.compiled else output.kernels
    if len(kernels) > len(output.segments):  # captured again
        output = output.of(output.compiled)
    if len(kernels) < len(output.segments):  # forgotten
        kernels = [None] * len(output.segments)
    facts = [
        (output.graph_count, "graphs"), (output.graph_break_count, "graph breaks"), (output.op_count, "operators"),
        (len(output.guards), "guards"),
    ]  # fmt: skip
    breaks = zip(output.break_reasons, output.hints, strict=True)
    name = getattr(getattr(output.compiled, "function", None), "__qualname__", "a function")
    body = [
        f"<h1>What wick made of <code>{escape(name)}</code></h1>",
        '<p class="facts">' + "".join(f"<span><b>{n}</b> {what}</span>" for n, what in facts) + "</p>",
        "<h2>Graph breaks</h2>",
        "".join(break_item(n, *where, hint) for n, (where, hint) in enumerate(breaks, 1)) or "<p>None.</p>",
        "<h2>Source</h2><p class='quiet'>Beside the line numbers: operators recorded by the line and what it calls.</p>",
        source_section(output.segments),
        "<h2>Segments</h2>",
        *(
            segment_part(number, segment, made, summary_of(segment))
            for number, (segment, made) in enumerate(zip(output.segments, kernels, strict=True), 1)
        ),
    ]
    return document(f"{name}: explained", body)

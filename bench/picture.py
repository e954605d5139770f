"""README's picture: how many times faster than PyTorch, drawn from what run.py wrote.

    make bench
    .venv/bin/python bench/picture.py build/bench.json docs/speed.svg [threads]

Bars are on a logarithmic scale, the line is PyTorch. Eager cases are over PyTorch eager, compiled ones over the faster
of PyTorch eager and torch.compile, with so many threads, or as many as were measured at most. A section that the file
lacks is left out.
"""

import html
import json
import math
import pathlib
import sys

from wick.bench.report import threads_text

PANELS = [
    ("eager", "Eager, over PyTorch eager", "#f0a848"),
    ("compiled", "Compiled, over the faster of PyTorch eager and torch.compile", "#d1495b"),
]
INK, QUIET, RULE = "#1f2933", "#616e7c", "#cbd2d9"
WIDTH, LEFT, RIGHT, BAR, GAP = 860, 270, 70, 17, 7
TICKS = (0.5, 1, 2, 4, 8, 16)


def bars_of(rows, threads):
    """[(title, speed-up)] of the rows with so many threads, the largest first."""
    found = [(row["title"], 1 / row["ratio"]) for row in rows if row["threads"] == threads and row["ratio"]]
    return sorted(found, key=lambda bar: -bar[1])


def text(x, y, words, size=13, colour=INK, anchor="start", weight="normal"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{html.escape(words)}</text>'
    )


def line(x, top, bottom, colour, dash=""):
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" stroke="{colour}" {dash}/>'


def scale_of(panels):
    """A function from a speed-up to its x, and the ticks that are seen."""
    values = [value for _, _, bars in panels for _, value in bars]
    low, high = min(0.8, *values) * 0.95, max(2.0, *values) * 1.05
    width = WIDTH - LEFT - RIGHT

    def at(value):
        return LEFT + width * math.log(value / low) / math.log(high / low)

    return at, [tick for tick in TICKS if low <= tick <= high]


def panel(title, colour, bars, top, at, ticks):
    """The panel's elements, and where it ends."""
    out, y = [text(16, top + 14, title, 14, weight="bold")], top + 30
    bottom = y + len(bars) * (BAR + GAP)
    out += [line(at(tick), y - 4, bottom, RULE) for tick in ticks if tick != 1]
    for name, value in bars:
        x, width = min(at(1), at(value)), abs(at(value) - at(1))
        out.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>')
        out.append(text(LEFT - 12, y + 13, name, anchor="end"))
        out.append(text(max(at(value), at(1)) + 6, y + 13, f"{value:.3g}", weight="bold"))
        y += BAR + GAP
    out.append(line(at(1), top + 26, bottom, INK, 'stroke-dasharray="4 3"'))
    out += [text(at(tick), bottom + 14, "PyTorch" if tick == 1 else f"{tick:g}", 11, QUIET, "middle") for tick in ticks]
    return out, bottom + 40


def machine_text(figures, threads):
    """One line: what was measured, where and when."""
    machine = figures["machine"]
    torch = machine["versions"]["torch"].partition("+")[0]
    what = f"PyTorch {torch}, its CPU build; medians, engines in turns"
    return f"{machine['cpu']['model']}, {threads_text(threads)}; {figures['date']}. {what}."


def picture(figures, threads=None):
    """The SVG's text."""
    measured = {row["threads"] for key, _, _ in PANELS for row in figures.get(key) or ()}
    threads = threads or max(measured, default=0)
    panels = [(title, colour, bars_of(figures[key], threads)) for key, title, colour in PANELS if figures.get(key)]
    panels = [found for found in panels if found[2]]
    if not panels:
        raise SystemExit("no ratios in the file: was PyTorch installed when it was measured?")
    at, ticks = scale_of(panels)
    out, y = [text(16, 30, "Times faster than PyTorch on the CPU", 19, weight="bold")], 48
    for found in panels:
        elements, y = panel(*found, y, at, ticks)
        out += elements
    out.append(text(16, y - 6, machine_text(figures, threads), 11, QUIET))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8:.0f}" font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *out, "</svg>", ""])


def main(source, target, threads=0):
    figures = json.loads(pathlib.Path(source).read_text(encoding="utf-8"))
    pathlib.Path(target).write_text(picture(figures, int(threads)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

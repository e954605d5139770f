"""How results are shown: tables that are Markdown too, progress bars, curves in characters, and PNG plots.

print(table(["case", "wick"], [["softmax", "18 ms"]]))
with Bar(10) as bar: bar.step("softmax")
"""

import importlib.util
import itertools
import sys
import textwrap
from dataclasses import dataclass

MIB = 1 << 20
LETTERS = "abcdefgh"  # one for each curve


def time_text(seconds):
    """A time with three digits and its unit: 18.6 ms."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{_digits(seconds * scale)} {unit}"
    return f"{_digits(seconds * 1e9)} ns"


def _digits(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def threads_text(count):
    """2 threads."""
    return f"{count} thread{'s' if count != 1 else ''}"


def mib_text(size):
    """Bytes as MiB."""
    return "-" if size is None else f"{size / MIB:.0f} MiB"


def table(heads, rows):
    """Lines of a Markdown table, aligned; the first column to the left, the others to the right."""
    texts = [[str(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(2, *(len(row[k]) for row in texts)) for k in range(len(heads))]

    def line(cells):
        parts = [c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return "| " + " | ".join(parts) + " |"

    rule = "| " + " | ".join("-" * w if k == 0 else "-" * (w - 1) + ":" for k, w in enumerate(widths)) + " |"
    return "\n".join([line(texts[0]), rule, *map(line, texts[1:])])


class Bar:
    """A progress bar on standard error where that is a terminal; else nothing. `with` clears it at the end."""

    def __init__(self, total, width=24, stream=None):
        self.total, self.width, self.done = total, width, 0
        self.stream = stream or sys.stderr
        self.shown = self.stream.isatty()

    def step(self, text):
        """One more of `total` steps is beginning; text says which."""
        if self.shown:
            filled = min(self.width, self.width * self.done // max(self.total, 1))
            bar = "#" * filled + "-" * (self.width - filled)
            print(f"\r\033[K[{bar}] {self.done}/{self.total} {text[:80]}", end="", file=self.stream, flush=True)
        self.done += 1

    def close(self):
        """Takes the bar away."""
        if self.shown:
            print("\r\033[K", end="", file=self.stream, flush=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


# ---- plots ----


def curve_text(curves, label, width=72, height=12):
    """Curves ({name: (xs, ys)}, xs from 0 on) drawn with letters; label says what x is. Lines of text.

    Points that fall into one column are averaged; where curves meet, the letter of the last one is seen.
    """
    right = max(xs[-1] for xs, _ in curves.values()) or 1
    low, high = (pick(pick(ys) for _, ys in curves.values()) for pick in (min, max))
    scale = (high - low) or 1.0
    grid = [[" "] * width for _ in range(height)]
    for letter, (xs, ys) in zip(LETTERS, curves.values(), strict=False):
        for column, y in _columns(xs, ys, right, width):
            grid[height - 1 - round((y - low) / scale * (height - 1))][column] = letter
    labels = [f"{high - k * scale / (height - 1):8.3f}" for k in range(height)]
    lines = [f"{text} |{''.join(row).rstrip()}" for text, row in zip(labels, grid, strict=True)]
    lines += [" " * 9 + "+" + "-" * width, " " * 10 + f"0{f'{right:.0f} {label}':>{width - 1}}"]
    return "\n".join([*lines, " " * 10 + ", ".join(f"{k}: {name}" for k, name in zip(LETTERS, curves, strict=False))])


def _columns(xs, ys, right, width):
    """(column, mean of the values that fall into it)."""
    columns = {}
    for x, y in zip(xs, ys, strict=True):
        columns.setdefault(min(int(x / right * width), width - 1), []).append(y)
    return [(column, sum(found) / len(found)) for column, found in columns.items()]


def has_matplotlib():
    return importlib.util.find_spec("matplotlib") is not None


NEEDS_MATPLOTLIB = "plots need matplotlib, which is not installed: pip install matplotlib, or pip install 'wick[bench]'"


# ---- pictures ----

INK, QUIET, RULE = "#1f2933", "#616e7c", "#cbd2d9"
COLOURS = {"wick": "#f0a848", "wick compiled": "#d1495b", "PyTorch": "#9aa5b1", "PyTorch compiled": "#52606d"}
OTHERS = ("#2a9d8f", "#5b7db1", "#8f6bb3", "#b08968")  # of names that are no engine's
STYLE = {
    "font.size": 11, "text.color": INK, "axes.labelcolor": QUIET, "axes.edgecolor": RULE, "axes.titlesize": 13,
    "axes.titleweight": "bold", "axes.spines.top": False, "axes.spines.right": False,
    "xtick.color": QUIET, "ytick.color": INK, "savefig.dpi": 160, "svg.fonttype": "none",
}  # fmt: skip


@dataclass
class Ratios:
    """A panel of bars: times over the reference's.

    groups: {label: {name: (ratio, seconds)}}, a label for each number of threads, say; one group needs no label. What
    failed has None for a ratio.
    """

    title: str
    reference: str
    groups: dict
    what: str = "time of a call"  # stands over the times

    @property
    def bars(self):
        return sum(map(len, self.groups.values()))


@dataclass
class Curves:
    """A panel of curves: {name: (xs, ys)}. Of noisy ones the running mean is drawn over them."""

    title: str
    x_label: str
    y_label: str
    curves: dict

    bars = 6  # as high as so many


def _colour_of(name, names):
    return COLOURS.get(name) or OTHERS[list(names).index(name) % len(OTHERS)]


def ratio_text(ratio):
    """Two digits behind the point, more of what is small: 0.84, 0.016."""
    return f"{ratio:.2f}" if 0.1 <= ratio < 10 else f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.3g}"


LONGEST = 2.0  # bar that is drawn as long as it is, once one of its panel is twice that: others would not be seen


def _draw_bar(ax, y, ratio, end, colour):
    """One that goes beyond `end` is drawn to there, and looks torn."""
    ax.barh(y, min(ratio, end), height=0.72, color=colour, zorder=2)
    for k in (0, 1) if ratio > end else ():
        at = end * (0.9 - 0.03 * k)
        ax.plot([at - end * 0.012, at + end * 0.012], [y + 0.45, y - 0.45], color="white", linewidth=2.5, zorder=3)


def _draw_ratios(ax, panel):
    """Horizontal bars from the top; beside each its ratio and its time; a line at 1, which is said to be what."""
    names = list(dict.fromkeys(name for group in panel.groups.values() for name in group))
    most = max([1.0, *(ratio for group in panel.groups.values() for ratio, _ in group.values() if ratio is not None)])
    end = LONGEST if most > 2 * LONGEST else most
    right = 1.45 * end
    on_top = {"va": "center", "zorder": 5, "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5}}
    y, ticks = 0.0, []
    ax.text(right, -0.75, panel.what, color=QUIET, ha="right", va="center", fontsize=9)
    for label, group in panel.groups.items():
        if label:
            ax.text(0.01 * end, y, label, color=QUIET, fontweight="bold", fontsize=10, **on_top)
            y += 0.85
        for name, (ratio, seconds) in group.items():
            is_plain = name == panel.reference or ratio is None
            text = "failed" if ratio is None else "1" if is_plain else ratio_text(ratio)
            _draw_bar(ax, y, ratio or 0, end, _colour_of(name, names))
            ax.text(min(ratio or 0, end) + end * 0.02, y, text, fontweight="normal" if is_plain else "bold", **on_top)
            ax.text(right, y, time_text(seconds), va="center", ha="right", color=QUIET)
            ticks.append((y, name))
            y += 1.0
        y += 0.35
    ax.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=4)
    ax.set_yticks([at for at, _ in ticks], [name for _, name in ticks])
    ax.set_title(_wrapped(panel.title), loc="left")
    ax.set(xlim=(0, right), ylim=(y - 0.7, -1.1))
    ax.set_xticks([0, 1], ["0", f"1 = {panel.reference}"])
    ax.tick_params(length=0)
    ax.spines["bottom"].set_visible(False)


def _running_mean(values, count):
    """Each value's mean with those around it, `count` at most on each side."""
    sums = [0.0, *itertools.accumulate(values)]
    last = len(values)
    around = [min(count, k, last - 1 - k) for k in range(last)]
    return [(sums[k + n + 1] - sums[k - n]) / (2 * n + 1) for k, n in enumerate(around)]


def _wrapped(title):
    return "\n".join(textwrap.wrap(title.replace(",", ", "), 36))


def _draw_curves(ax, panel):
    for name, (xs, ys) in panel.curves.items():
        colour, many = _colour_of(name, panel.curves), len(ys) >= 100
        if many:
            ax.plot(xs, ys, color=colour, linewidth=0.6, alpha=0.25)
        ax.plot(xs, _running_mean(ys, len(ys) // 50) if many else ys, color=colour, linewidth=2, label=name)
    ax.set_title(_wrapped(panel.title), loc="left")
    ax.set(xlabel=panel.x_label, ylabel=panel.y_label)
    ax.grid(axis="y", color=RULE, linewidth=0.6)
    ax.set_axisbelow(True)
    if panel.curves:
        ax.legend(frameon=False)


def _figure_of(title, panels, note):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(3, len(panels)) if len(panels) != 4 else 2
    rows = [panels[at : at + columns] for at in range(0, len(panels), columns)]
    heights = [1.1 + 0.36 * max(panel.bars + 0.9 * len(getattr(panel, "groups", ())) for panel in row) for row in rows]
    figure = Figure(figsize=(max(5.2 * columns, 7.5), sum(heights) + 1.1), layout="constrained")
    FigureCanvasAgg(figure)  # needs no display
    axes = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for k, ax in enumerate(axes.flat):
        if k >= len(panels):
            ax.set_axis_off()
        else:
            (_draw_ratios if isinstance(panels[k], Ratios) else _draw_curves)(ax, panels[k])
    figure.suptitle(title, fontsize=17, fontweight="bold", x=0.01, ha="left")
    figure.supxlabel(note, fontsize=10, color=QUIET, x=0.01, ha="left")
    figure.get_layout_engine().set(w_pad=0.15, h_pad=0.12, wspace=0.04, hspace=0.06)
    return figure


def save_picture(path, title, panels, note=""):
    """A PNG of panels, each a Ratios or Curves, up to three beside each other, under a title. Needs matplotlib.

    save_picture("out.png", "Time of a call", [Ratios("softmax", "PyTorch", {"": {"wick": (0.4, 2e-3)}})])
    """
    if not has_matplotlib():
        raise ModuleNotFoundError(NEEDS_MATPLOTLIB, name="matplotlib")
    import matplotlib

    with matplotlib.rc_context(STYLE):
        _figure_of(title, panels, note).savefig(path)

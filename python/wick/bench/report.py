"""How results are shown: tables that are Markdown too, progress bars, curves in characters, and PNG plots.

print(table(["case", "wick"], [["softmax", "18 ms"]]))
with Bar(10) as bar: bar.step("softmax")
"""

import importlib.util
import sys

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


def _figure(columns=1):
    """A figure that needs no display, and its axes."""
    if not has_matplotlib():
        raise ModuleNotFoundError(NEEDS_MATPLOTLIB, name="matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7 * columns, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def save_curves(path, panels):
    """A PNG of panels beside each other: (title, label of x, label of y, {name: (xs, ys)}). Needs matplotlib."""
    figure, axes = _figure(len(panels))
    for ax, (title, x_label, y_label, curves) in zip(axes, panels, strict=True):
        for name, (xs, ys) in curves.items():
            ax.plot(xs, ys, label=name, linewidth=1)
        ax.set(title=title, xlabel=x_label, ylabel=y_label)
        ax.legend()
    figure.savefig(path)


def save_bars(path, title, label, groups):
    """A PNG of grouped bars: {group: {name: value}}, on a logarithmic axis. Needs matplotlib."""
    figure, (ax,) = _figure()
    names = list(dict.fromkeys(name for values in groups.values() for name in values))
    for k, name in enumerate(names):
        found = [(g + k / (len(names) + 1), v[name]) for g, v in enumerate(groups.values()) if name in v]
        ax.bar([x for x, _ in found], [y for _, y in found], width=1 / (len(names) + 1), label=name)
    middle = (len(names) - 1) / 2 / (len(names) + 1)
    ax.set_xticks([g + middle for g in range(len(groups))], list(groups), rotation=20, ha="right")
    ax.set(title=title, ylabel=label, yscale="log")
    ax.legend()
    figure.savefig(path)

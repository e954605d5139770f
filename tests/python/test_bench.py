"""python -m wick.bench measures what it says, and says what it cannot. Sizes are tiny and no time is looked at."""

import io
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import wick
import wick.bench.__main__ as commands
from wick.bench import cases, compare, engines, report, scripts
from wick.bench.__main__ import losses_text
from wick.bench.__main__ import main as bench
from wick.bench.processes import Failed, Process, run_program

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WICK = ["wick", "wick.compile"]
QUICK = {"rounds": 2, "seconds": 0.001, "tiny": True}


def write(folder, text, name="mine.py"):
    (folder / name).write_text(text)
    return str(folder / name)


# ---- cases ----


@pytest.mark.parametrize("name", cases.CASES)
def test_cases_run_eager_and_compiled(name):
    work = cases.find(name, tiny=True).prepare(wick)
    work.call()
    compiled = wick.compile(work.call)
    for _ in range(2):
        compiled()


def test_memory_bound_cases_say_what_they_move():
    assert cases.find("softmax:rows=2,columns=3").prepare(wick).bytes_moved == 2 * 4 * 6
    assert cases.find("adamw:parameters=2,size=3").prepare(wick).bytes_moved == 2 * 9 * 4 * 7
    assert cases.find("chargpt_step", tiny=True).prepare(wick).tokens == 8


def test_sizes_are_changed_by_name():
    assert cases.find("gemm:m=2,k=3", tiny=True).sizes == {"m": 2, "n": 4, "k": 3}
    assert cases.find("gemm").sizes["m"] == 1024


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "no case is called 'nonsense'"),
        ("gemm:q=1", "gemm has no size 'q'; it has m, n, k"),
        ("gemm:m", "sizes are written NAME=INTEGER"),
        ("gemm:m=x", "sizes are written NAME=INTEGER"),
    ],
)
def test_names_that_are_none(text, message):
    with pytest.raises(ValueError, match=message):
        cases.find(text)


def test_functions_of_files(tmp_path):
    path = write(tmp_path, "import torch\ndef make(size=2): return lambda: torch.ones(size)\n")
    (row,) = compare.compare_cases([f"{path}:make:size=3"], WICK, **QUICK)
    assert set(row["seconds"]) == set(WICK) and not row["errors"]


# ---- comparing ----


@pytest.fixture(scope="module")
def row():
    (row,) = compare.compare_cases(["softmax"], WICK, cold=True, memory=True, **QUICK)
    return row


def test_a_row_has_every_engine(row):
    assert row["reference"] == "wick" and row["ratios"]["wick"] == 1
    assert all(len(values) == QUICK["rounds"] for values in row["samples"].values())
    assert all(row["seconds"][name] > 0 for name in WICK)


def test_bandwidth_is_a_part_of_the_copys(row):
    for name in WICK:
        assert row["bytes_per_second"][name] == pytest.approx(row["bytes_moved"] / row["seconds"][name])
        assert row["of_copy_bandwidth"][name] == row["bytes_per_second"][name] / row["copy_bytes_per_second"]


def test_what_compiling_costs(row):
    assert set(row["cold"]) == {"wick.compile"}
    figures = row["cold"]["wick.compile"]
    assert figures["first_call_ratio"] == figures["first_call_seconds"] / figures["eager_seconds"]
    assert figures["native_seconds"] > 0


def test_peak_memory_is_of_each_engine(row):
    for figures in row["memory"].values():
        assert figures["peak_bytes"] > figures["step_peak_bytes"] >= 0


def test_what_fails_is_an_error_of_its_engine_alone(tmp_path):
    path = write(
        tmp_path,
        "import torch\ncalls = []\n"
        "def make():\n    def f(): calls.append(1); assert len(calls) < 4, 'too many'\n    return f\n"
        "def bad(): raise KeyError('no such thing')\n",
    )
    first, second = compare.compare_cases([f"{path}:make", f"{path}:bad"], ["wick"], **QUICK)
    assert "too many" in first["errors"]["wick"] and first["seconds"] == {}
    assert "no such thing" in second["errors"]["wick"]
    (good,) = compare.compare_cases(["add"], ["wick"], **QUICK)
    assert good["errors"] == {}


def test_ratios_are_medians_of_rounds():
    samples = {"a": [1.0, 2.0, 9.0], "b": [2.0, 2.0, 3.0], "c": []}
    assert compare.ratios_of(samples, "b") == {"a": 1.0, "b": 1.0}
    assert compare.ratios_of(samples, "c") == {}


def test_wrong_names_are_said_before_anything_runs():
    with pytest.raises(ValueError, match="no engine is called 'cuda'"):
        engines.chosen(["wick", "cuda"])
    with pytest.raises(ValueError, match="'torch' is not among the engines"):
        compare.compare_cases(["add"], ["wick"], reference="torch")
    assert [engine.name for engine in engines.chosen(["wick.compile,wick", "wick"])] == ["wick.compile", "wick"]


def test_a_process_without_an_engine_loads_none(tmp_path):
    with Process() as process:
        assert process.ask(do="copy", threads=2, size=1 << 16)["bytes_per_second"] > 0
        assert process.ask(do="bare")["peak_bytes"] > 0
        with pytest.raises(Failed, match="No module named|nonsense"):
            process.ask(do="nonsense")


def test_what_is_measured_may_print(tmp_path):
    path = write(tmp_path, "print('loaded')\ndef make(): return lambda: print('{}')\n")
    (row,) = compare.compare_cases([f"{path}:make"], ["wick"], **QUICK)
    assert not row["errors"]


# ---- whole programs ----


def test_programs_with_steps_and_losses(tmp_path):
    result = scripts.compare_scripts(EXAMPLES / "train_mlp.py", ["--steps", "6"], WICK, rounds=1)
    assert result["errors"] == {} and result["losses"] == {
        "steps": 6, "equal_bits": True, "largest_difference": 0.0,
    }  # fmt: skip
    figures = result["engines"]["wick.compile"]
    assert len(figures["losses"]) == 6 and figures["step_seconds"] > 0 and figures["first_step_seconds"] > 0


def test_plain_programs(tmp_path):
    path = write(tmp_path, "import torch, sys\nassert sys.argv[1:] == ['x']\nprint(torch.ones(2))\n")
    result = scripts.compare_scripts(path, ["x"], WICK, rounds=1)
    assert result["engines"]["wick"]["peak_bytes"] > 0 and result["engines"]["wick"]["seconds"] > 0
    assert "has no option --compile" in result["errors"]["wick.compile"]
    assert "ended with status 1" in scripts.compare_scripts(path, [], ["wick"], rounds=1)["errors"]["wick"]


def test_a_programs_peak_is_its_own(tmp_path):
    ballast = bytearray(64 << 20)  # resident here, which Linux would count to a child that is started from here
    small = run_program([sys.executable, "-S", "-c", "pass"], None)
    large = run_program([sys.executable, "-S", "-c", "x = bytes(48 << 20); y = bytearray(b'1') * (48 << 20)"], None)
    assert small["peak_bytes"] < 40 << 20 < large["peak_bytes"]
    assert len(ballast) == 64 << 20


def test_losses_are_compared_over_common_steps():
    found = scripts.same_losses({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.5]})
    assert found == {"steps": 2, "equal_bits": False, "largest_difference": 0.25}
    assert losses_text(found) == "losses of 2 steps: within 2.5e-01 relative"
    assert losses_text(scripts.same_losses({"a": [1.0], "b": [1.0]})) == "losses of 1 steps: equal in every bit"


def test_steady_steps_are_the_later_half():
    assert scripts.steady([9, 9, 1, 2, 3]) == 2
    assert scripts.steady([]) is None


# ---- the command ----


def test_list(capsys):
    assert bench(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in cases.CASES)


def test_the_command_on_cases(capsys, tmp_path):
    out = tmp_path / "out.json"
    line = ["--case", "two_op_call", "softmax", "--engines", *WICK, "--tiny", "--rounds", "1", "--seconds", "0.001"]
    assert bench([*line, "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "| two_op_call " in printed and "of copy bandwidth" in printed
    assert "all native code in place" in printed and "peak memory" in printed
    figures = json.loads(out.read_text())
    assert [row["case"] for row in figures["cases"]] == ["two_op_call", "softmax"]
    assert figures["machine"]["versions"]["wick"] == wick.version.wick


def test_the_command_on_a_program(capsys):
    line = [str(EXAMPLES / "train_lstm.py"), "--engines", *WICK, "--rounds", "1"]
    assert bench([*line, "--", "--steps", "3", "--length", "2"]) == 0
    assert "losses of 3 steps: equal in every bit" in capsys.readouterr().out


def test_an_engine_that_fails_is_the_exit_status(capsys, tmp_path):
    path = write(tmp_path, "def make(): return lambda: 1 / 0\n")
    assert bench([f"{path}:make", "--engines", "wick", "--rounds", "1", "--no-cold", "--no-memory"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "name a script"),
        (["nofile.py"], "there is no file 'nofile.py'"),
        (["--case", "nonsense"], "no case is called 'nonsense'"),
        (["--case", "add", "--engines", "cuda"], "no engine is called 'cuda'"),
        (["a.py", "b.py"], "one script at a time"),
    ],
)
def test_wrong_command_lines(line, message, capsys):
    with pytest.raises(SystemExit) as end:
        bench(line)
    assert end.value.code == 2 and message in capsys.readouterr().err


def test_a_plot_needs_matplotlib(capsys, monkeypatch):
    monkeypatch.setattr(commands, "has_matplotlib", lambda: False)
    with pytest.raises(SystemExit):
        bench(["--case", "add", "--plot", "out.png"])
    assert "pip install matplotlib" in capsys.readouterr().err


# ---- pictures ----


@pytest.fixture
def pictures(monkeypatch):
    """What would be drawn: [(path, title, panels, note)]."""
    saved = []
    monkeypatch.setattr(commands, "has_matplotlib", lambda: True)
    monkeypatch.setattr(commands, "save_picture", lambda *picture: saved.append(picture))
    return saved


QUICKLY = ["--tiny", "--rounds", "1", "--seconds", "0.001", "--no-cold", "--no-memory"]


def test_a_case_is_a_panel_with_its_ratios(pictures, tmp_path):
    out = tmp_path / "out.json"
    line = ["--case", "add", "gemm:m=2", "--threads", "1", "2", "--engines", *WICK, "--json", str(out)]
    assert bench([*line, *QUICKLY, "--plot", "out.png"]) == 0
    ((path, title, panels, note),) = pictures
    assert (path, title) == ("out.png", "Time of a call, relative to wick")
    assert "Shorter is faster. One round on " in note
    assert [panel.title for panel in panels] == ["add", "gemm:m=2"]
    for row in json.loads(out.read_text())["cases"]:
        (panel,) = (panel for panel in panels if panel.title == row["case"])
        group = panel.groups[f"{row['threads']} thread" + "s" * (row["threads"] > 1)]
        assert panel.reference == "wick" and group["wick"] == (1.0, row["seconds"]["wick"])
        assert group["wick compiled"] == (row["ratios"]["wick.compile"], row["seconds"]["wick.compile"])


def test_a_case_that_fails_is_in_the_picture(pictures, tmp_path):
    path = write(tmp_path, "def make(): return lambda: 1 / 0\n")
    assert bench([f"{path}:make", "--engines", "wick", *QUICKLY, "--plot", "out.png"]) == 1
    (panel,) = pictures[0][2]
    assert panel.title == "mine.py:make" and panel.groups == {"1 thread": {"wick": (None, None)}}


def test_a_program_has_wall_time_steps_and_losses(pictures):
    line = [str(EXAMPLES / "train_mlp.py"), "--engines", *WICK, "--rounds", "1", "--plot", "out.png"]
    assert bench([*line, "--", "--steps", "4"]) == 0
    ((_, title, (wall, steps, losses), _),) = pictures
    assert title == "train_mlp.py, relative to wick" and (wall.title, steps.title) == ("Wall time", "Time of a step")
    assert wall.groups[""]["wick"][0] == steps.groups[""]["wick"][0] == 1 and steps.groups[""]["wick compiled"][0] > 0
    assert [len(ys) for _, ys in losses.curves.values()] == [4, 4]


def test_a_running_mean_has_as_many_on_either_side():
    assert report._running_mean([1.0, 2.0, 3.0, 10.0], 1) == [1.0, 2.0, 5.0, 10.0]


def test_ratios_have_digits():
    assert [report.ratio_text(r) for r in (0.0163, 0.5, 1.219, 62.34)] == ["0.016", "0.50", "1.22", "62.3"]


GROUPS = {
    "1 thread": {"wick": (0.44, 26.3e-3), "wick compiled": (None, None), "PyTorch": (1.0, 60.1e-3)},
    "2 threads": {"wick": (0.39, 13.3e-3), "PyTorch": (1.0, 0.03), "PyTorch compiled": (8.05, 0.24)},
}


@pytest.mark.skipif(not report.has_matplotlib(), reason="matplotlib is not installed")
def test_bars_are_labelled_and_one_is_said_to_be_what(tmp_path):
    panels = [report.Ratios("softmax", "PyTorch", GROUPS), report.Curves("t", "x", "y", {"a": ([0, 1], [1.0, 2.0])})]
    figure = report._figure_of("title", panels, "note")
    bars, curves = figure.axes
    texts = [text.get_text() for text in bars.texts]
    assert {"0.44", "26.3 ms", "failed", "-", "0.39", "8.05", "240 ms", "2 threads", "time of a call"} <= set(texts)
    assert [label.get_text() for label in bars.get_xticklabels()] == ["0", "1 = PyTorch"]
    names = [label.get_text() for label in bars.get_yticklabels()]
    assert names == ["wick", "wick compiled", "PyTorch", "wick", "PyTorch", "PyTorch compiled"]
    widths = [bar.get_width() for bar in bars.patches]
    assert widths == [0.44, 0, 1.0, 0.39, 1.0, 2.0]  # the last is torn
    assert (bars.get_title("left"), curves.get_title("left")) == ("softmax", "t")
    report.save_picture(tmp_path / "a.png", "title", panels * 3, "note")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


# ---- what is shown ----


def test_times_have_units():
    texts = [report.time_text(s) for s in (2.5, 0.0186, 4.07e-05, 3.1e-07, None)]
    assert texts == ["2.5 s", "18.6 ms", "40.7 µs", "310 ns", "-"]


def test_tables_are_markdown():
    lines = report.table(["a", "b"], [["long", 1]]).splitlines()
    assert lines == ["| a    |  b |", "| ---- | -: |", "| long |  1 |"]


def test_curves_reach_their_corners():
    lines = report.curve_text({"x": ([0, 1, 2], [3.0, 2.0, 1.0])}, "s", width=9, height=3).splitlines()
    assert lines[0].startswith("   3.000 |a") and lines[2].rstrip().endswith("a")
    assert lines[-2].rstrip().endswith("2 s") and lines[-1].strip() == "a: x"


def test_one_point_is_a_curve():
    assert "a" in report.curve_text({"x": ([0], [1.0])}, "s")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bars_are_for_terminals():
    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        with report.Bar(2, stream=stream) as bar:
            bar.step("first")
            bar.step("second")
        assert ("1/2 second" in stream.getvalue()) is shown


# ---- what stands on it: the tables and the picture of the pages, the demo ----


@pytest.mark.skipif(not (ROOT / "bench").exists(), reason="not the repository")
def test_the_tables_of_the_pages(tmp_path):
    out = tmp_path / "out.json"
    quickly = "--tiny --rounds 1 --seconds 0.001 --threads 1".split()
    command = [sys.executable, ROOT / "bench" / "run.py", *quickly, "--json", out, "--engines", *WICK]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]
    figures = json.loads(out.read_text())
    sections = ("eager", "compiled", "bandwidth", "cold", "memory", "capture", "processes")
    assert all(figures[section] for section in sections)
    assert all("wick.compile" in row["seconds"] for row in figures["compiled"] + figures["bandwidth"])


@pytest.mark.skipif(not (ROOT / "bench").exists(), reason="not the repository")
def test_the_picture_of_readme(tmp_path):
    """A bar for each case that was measured beside PyTorch, with the most threads; the largest first."""
    row = {"threads": 2, "seconds": {}}
    figures = {
        "date": "2026-01-02",
        "machine": {"cpu": {"model": "a processor"}, "versions": {"torch": "2.13.0"}},
        "eager": [
            row | {"title": "slow", "ratio": 2.0},
            row | {"title": "fast & small", "ratio": 0.125},
            row | {"title": "fast & small", "ratio": 0.5, "threads": 1},
        ],
        "compiled": [row | {"title": "without a peer", "ratio": None}],
    }
    (tmp_path / "bench.json").write_text(json.dumps(figures))
    script = [sys.executable, ROOT / "bench" / "picture.py", tmp_path / "bench.json", tmp_path / "out.svg"]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    picture = xml.etree.ElementTree.parse(tmp_path / "out.svg").getroot()
    words = [element.text for element in picture if element.tag.endswith("text")]
    assert [w for w in words if w in ("slow", "fast & small", "8", "0.5")][:4] == ["fast & small", "8", "slow", "0.5"]
    assert "without a peer" not in words and any("2 threads; 2026-01-02" in w for w in words)
    figures["eager"] = figures["eager"][:0]
    (tmp_path / "bench.json").write_text(json.dumps(figures))
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 1 and "was PyTorch installed" in done.stderr


def test_the_demo(tmp_path):
    command = [sys.executable, EXAMPLES / "demo.py", "--tiny", "--steps", "4", "--sample", "20", "--json", "out.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "no dropout: losses of 4 steps, wick and wick compiled: equal in every bit" in done.stdout
    assert "dropout 0.1: losses of 8 steps, wick and wick compiled: equal in every bit" in done.stdout
    assert "wick compiled writes:" in done.stdout
    figures = json.loads((tmp_path / "out.json").read_text())
    assert set(figures) == set(WICK) and "native_seconds" in figures["wick.compile"]

"""python -m wick.trace: the program runs as without it, and the page tells what happened and can be looked at."""

import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

import wick

PROGRAM = """
import threading

import torch


def model(x, w):
    h = (x @ w).relu() * 2
    return h.exp().sum()


@torch.compile
def breaks(x):
    y = x * 3
    if y.sum() > 0:
        y = y - 1
    return y


def main():
    compiled = torch.compile(model, options={"wait": True})
    w = torch.randn(8, 8, requires_grad=True)
    for n in (4, 4, 5):
        compiled(torch.randn(n, 8), w).backward()


main()  # whose compiled function is gone at the end
thread = threading.Thread(target=lambda: [breaks(torch.ones(3)) for _ in range(3)], name="<worker>")
thread.start()
thread.join()
print(torch.trace(torch.ones(2, 2)).item(), "</script>")
"""


def run(folder, *arguments, program=None, **settings):
    """The finished process of `python ...`."""
    if program is not None:
        (folder / "program.py").write_text(program)
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, **settings)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    done = run(folder, "-m", "wick.trace", "--out", "page.html", "--", "program.py", "<b>", program=PROGRAM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.0 </script>\n" and done.stderr == f"[wick] {folder / 'page.html'}\n"
    return folder / "page.html"


class Checker(html.parser.HTMLParser):
    """Tags close in order, names are unique and found by links; nothing is fetched from anywhere."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text, self.ids, self.links, self.data = [], [], [], [], None
        self.feed(page)
        self.close()
        assert self.open == [] and len(set(self.ids)) == len(self.ids)
        assert {link.removeprefix("#") for link in self.links} <= set(self.ids)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert tag not in ("link", "img", "iframe") and "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        self.links += [attributes["href"]] if "href" in attributes else []
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.data = self.data or json.loads(data)
        elif self.open and self.open[-1] != "style":
            self.text.append(data)


@pytest.fixture(scope="module")
def checked(page):
    return Checker(page.read_text())


def spans_of(data):
    """[(thread, depth, kind, name, begin, length)] of the timeline."""
    flat = data["spans"]
    return [
        (data["threads"][t], depth, data["kinds"][kind][0], data["names"][name], begin, length)
        for t, depth, kind, name, begin, length, _ in (flat[k : k + 7] for k in range(0, len(flat), 7))
    ]


# ---- what is on it ----


def test_functions_breaks_and_mends(checked):
    text = "".join(checked.text)
    assert "program.py <b>" in html.unescape(text).replace("'", "") and "It ran to its end." in text
    assert "a branch on a tensor's value" in text and "choose with where()" in text  # the break and its mend
    assert "program.py:14" in text  # where it is
    assert re.search(r"Captured again, for this did not hold: x is a tensor float32\[4, 8\]", text)
    assert "h = (x @ w).relu() * 2" in text  # source
    facts = re.search(r"(\d+) compiled functions(\d+) segments(\d+) graph breaks(\d+) captured again", text)
    assert [int(n) for n in facts.groups()] == [2, 4, 1, 1]


def test_guards_graphs_and_kernels(checked):
    text = "".join(checked.text)
    assert "x is a tensor float32[4, 8] strides [8, 1]" in text
    assert re.search(r"%mm: f32\[4, 8\] = mm\(", text) and "Backward graph" in text and "Forward graph" in text
    assert "reduce_sum float32" in text  # a nest
    assert "forgotten before the program ended" in text


@pytest.mark.skipif(not shutil.which(os.environ.get("WICK_CC", "cc").split()[0]), reason="no C compiler")
def test_native_kernels_and_their_source(checked):
    text = "".join(checked.text)
    assert re.search(r"Kernel kernel_\d+ native code", text) and "wk_kernel_0_pointwise(" in text
    units = [name for _, _, kind, name, _, _ in spans_of(checked.data) if kind == "native code"]
    assert units and all(re.fullmatch(r"\d+ kernels?, (compiled|from the cache)", name) for name in units)


def test_the_timeline(checked):
    data, spans = checked.data, spans_of(checked.data)
    assert data["threads"][0] == "main thread" and any(
        t.startswith("<worker> (") or "thread (" in t for t in data["threads"]
    )
    by_kind = {kind: [span for span in spans if span[2] == kind] for kind, _ in data["kinds"]}
    assert [span[3] for span in by_kind["compiled call"]].count("model") == 3
    assert [span[3] for span in by_kind["compiled call"]].count("breaks") == 3
    assert sum(span[3].startswith("model, segment") for span in by_kind["capture"]) == 2
    assert {"aten::mm"} <= {span[3] for span in by_kind["step"]}
    assert any(span[3].endswith("(backward)") for span in by_kind["graph"])
    assert by_kind["Python and eager operators"][0][:2] == ("main thread", 0)
    assert all(0 <= begin <= begin + length <= data["length"] for *_, begin, length in spans)
    last = {}
    for thread, depth, *_, begin, length in spans:  # spans of a row do not overlap
        assert begin >= last.get((thread, depth), 0)
        last[thread, depth] = begin + length
    threads = {span[0] for span in by_kind["compiled call"]}
    assert len(threads) == 2


def test_steps_lie_in_their_runs(checked):
    spans, around = spans_of(checked.data), {}
    for thread, depth, kind, _, begin, length in spans:
        around[thread, depth] = (kind, begin, begin + length)
        if kind == "step":
            outer, first, last = around[thread, depth - 1]
            assert outer == "graph" and first <= begin and begin + length <= last


# ---- the program is what it was ----


def compare(folder, *arguments, program=None, status=0):
    """Plainly and traced: the same output, the same end. Gives the text of the page."""
    plain = run(folder, "-m", "wick", *arguments, program=program)
    traced = run(folder, "-m", "wick.trace", "--out=out.html", *arguments)
    said = f"[wick] {folder / 'out.html'}\n"
    assert traced.returncode == plain.returncode == status
    assert traced.stdout == plain.stdout and traced.stderr == plain.stderr + said
    return "".join(Checker((folder / "out.html").read_text()).text)


def test_exceptions_pass_through(tmp_path):
    text = compare(tmp_path, "program.py", program="import torch\ndef f():\n    1 / 0\nf()\n", status=1)
    assert "It raised ZeroDivisionError: division by zero" in text and "Nothing was captured" in text


def test_exit_statuses_and_what_runs_at_exit(tmp_path):
    program = "import atexit, sys, torch\natexit.register(print, 'last')\ntorch.compile(lambda x: x + 1)(torch.ones(2))\nsys.exit(7)\n"
    text = compare(tmp_path, "program.py", program=program, status=7)
    assert "It ended with exit status 7." in text and "1 compiled functions" in text
    compare(tmp_path, "program.py", program="import sys\nsys.exit('sorry')\n", status=1)


def test_forms_of_the_command_line(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__main__.py").write_text("import sys, torch\nprint(sys.argv[1:], __name__, torch.__name__)\n")
    compare(tmp_path, "-m", "pack", "--out", "-m")
    compare(tmp_path, "-c", "import sys, torch; print(sys.argv, __name__)", "a")
    compare(tmp_path, "-m", "no_such_module", status=1)
    compare(tmp_path, "no_such_file.py", status=2)
    compare(tmp_path, "program.py", program="def f(:\n", status=1)
    for wrong, said in ((["--outer", "x"], "unknown option --outer"), (["--out"], "--out needs a file")):
        done = run(tmp_path, "-m", "wick.trace", *wrong)
        assert done.returncode == 2 and said in done.stdout
    assert run(tmp_path, "-m", "wick.trace").returncode == 1
    done = run(tmp_path, "-m", "wick.trace", "--out", "none/x.html", "program.py")
    assert done.returncode == 1 and "no such folder" in done.stderr


def test_forked_children_write_no_page(tmp_path):
    program = (
        "import os, sys, torch\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\n"
        "assert not os.path.exists('out.html')\ntorch.compile(lambda x: x * 2)(torch.ones(2))\n"
    )
    assert "1 compiled functions" in compare(tmp_path, "program.py", program=program)


def test_a_profile_inside(tmp_path):
    program = """
import torch
from torch.profiler import profile
f = torch.compile(lambda x, w: (x @ w).relu().sum(-1))
x = torch.ones(2, 2)
for _ in range(3):
    f(x, x)
with profile() as prof:
    f(x, x), f(x, x)
prof.export_chrome_trace("trace.json")
f(x, x)
"""
    done = run(tmp_path, "-m", "wick.trace", "program.py", program=program)
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(event.get("cat") == "graph" for event in events) == 2
    data = Checker((tmp_path / "trace.html").read_text()).data
    assert sum(span[2] == "graph" and span[3] != "graph" for span in spans_of(data)) >= 5


def test_signals_are_served_between_the_steps_of_a_first_run(tmp_path):
    """Each handler runs when its signal comes: most of the time is spent in one graph, which is captured and run once."""
    program = """
import signal, torch
torch.set_num_threads(1)
count = 0
def handler(*_):
    global count
    count += 1
def model(x):
    for _ in range(200):
        x = (x @ x).tanh()
    return x
signal.signal(signal.SIGPROF, handler)
signal.setitimer(signal.ITIMER_PROF, 0.002, 0.002)
torch.compile(model)(torch.ones(500, 500) * 0.01)
print(count > 20)
"""
    (tmp_path / "program.py").write_text(program)
    for how in ("wick", "wick.trace"):
        assert run(tmp_path, "-m", how, "program.py").stdout == "True\n"


def test_nothing_is_kept_alive(tmp_path):
    program = """
import gc, weakref, torch
class Thing(torch.nn.Module):
    def forward(self, x):
        return x + 1
def use():
    thing = Thing()
    torch.compile(thing)(torch.ones(2))
    return weakref.ref(thing)
gone = use()
gc.collect()
print(gone() is None)
"""
    done = run(tmp_path, "-m", "wick.trace", "program.py", program=program)
    assert done.stdout == "True\n", done.stderr


# ---- bounds ----


def run_of(calls=40):
    from wick._dynamo.tracing import Recorder

    recorder = Recorder()
    compiled = wick.compile(lambda x, w: (x @ w).relu().sum(-1) @ w)
    x = wick.ones(3, 3)
    for _ in range(calls):
        compiled(x, x)
    found = recorder.stop()
    compiled.reset()
    return found


def test_too_many_spans_are_left_out(monkeypatch):
    from wick._dynamo import trace_html

    seen = run_of()
    whole = Checker(trace_html.page_of(seen, "x", "y"))
    assert "Left out" not in "".join(whole.text)
    monkeypatch.setattr(trace_html, "MOST_SPANS", 100)
    fewer = Checker(trace_html.page_of(seen, "x", "y"))
    assert re.search(r"Left out: .*the steps of \d+ runs of graphs", "".join(fewer.text))
    assert len(spans_of(fewer.data)) <= 100 < len(spans_of(whole.data))
    assert [span[2] for span in spans_of(fewer.data)].count("graph") == 40
    monkeypatch.setattr(trace_html, "MOST_SPANS", 10)
    assert re.search(r"Left out: \d+ spans", "".join(Checker(trace_html.page_of(seen, "x", "y")).text))


def test_too_much_text_and_too_many_guards(monkeypatch):
    from wick._dynamo import trace_html

    seen = run_of(2)
    monkeypatch.setattr(trace_html, "MOST_TEXT", 10)
    monkeypatch.setattr(trace_html, "MOST_GUARDS", 1)
    page = "".join(Checker(trace_html.page_of(seen, "x", "y")).text)
    assert re.search(r"Left out: source, graphs and kernels of \d segments; \d guards\.", page) and "%mm" not in page


def test_a_full_timeline(monkeypatch):
    from wick._dynamo import trace_html, tracing

    monkeypatch.setattr(tracing, "MOST_WORDS", 400)
    seen = run_of(60)
    short = [moments for _, _, moments in seen.runs if len(moments) == 2]
    assert short and len(short) < len(seen.runs) and seen.lost > 0  # steps first, then runs
    assert re.search(r"Left out: \d+ runs of graphs and calls at the end", trace_html.page_of(seen, "x", "y"))


def test_a_recorder_leaves_nothing_on():
    from wick._dynamo.tracing import Recorder

    recorder = Recorder()
    compiled = wick.compile(lambda x: x + 1)
    compiled(wick.ones(2))
    recorder.stop()
    count = len(recorder.notes)
    compiled.reset()
    assert len(recorder.notes) == count and [note["kind"] for note in recorder.notes[:-1]] == ["segment"]
    assert wick._C._set_notes(None) is None and wick._C._set_profiling(False) is False
    assert wick._C._take_timeline() == ([], 0) and wick.profiler._whole is None


# ---- in a browser ----

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "chrome-headless-shell")
browser = next(filter(None, map(shutil.which, BROWSERS)), None)

# What somebody would do: each event, then the text of what is seen.
TOUCH = """
<script>
  const canvas = document.getElementById("timeline"), seen = [], said = () => document.getElementById("timeline-range").textContent;
  const box = canvas.getBoundingClientRect(), middle = box.left + box.width / 2;
  const at = (kind, x) => canvas.dispatchEvent(new PointerEvent(kind, {clientX: x, clientY: box.top + 40, pointerId: 1, bubbles: true}));
  const does = [
    () => 0,
    () => canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -400, clientX: middle, cancelable: true})),
    () => { at("pointerdown", middle); at("pointermove", middle - box.width / 4); at("pointerup", middle - box.width / 4); },
    () => document.getElementById("timeline-in").click(),
    () => document.getElementById("timeline-all").click(),
    () => { const s = document.getElementById("search"); s.value = "STRIDES [8, 1]"; s.dispatchEvent(new Event("input")); },
  ];
  function next() {
    if (!does.length) {
      const shown = [...document.querySelectorAll(".find")].filter(e => !e.hidden).length;
      const result = {seen, shown, found: document.getElementById("search-found").textContent, drawn: drawn()};
      const element = document.createElement("pre");
      element.id = "result";
      element.textContent = JSON.stringify(result);
      document.body.append(element);
      return;
    }
    does.shift()();
    setTimeout(() => { seen.push(said()); next(); }, 50);
  }
  function drawn() {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let k = 0; k < pixels.length; k += 4) if (pixels[k + 3]) colours.add(pixels.slice(k, k + 3).join());
    return [...colours];
  }
  next();
</script>
"""


@pytest.mark.skipif(browser is None, reason=f"none of {', '.join(BROWSERS)} is on PATH")
def test_it_opens_zooms_and_pans_in_a_browser(page, checked, tmp_path):
    (tmp_path / "page.html").write_text(page.read_text().replace("</body>", TOUCH + "</body>"))
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900", "--virtual-time-budget=10000",
        f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", f"file://{tmp_path / 'page.html'}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    result = re.search(r'<pre id="result">(.*?)</pre>', done.stdout)
    assert result, done.stderr[-2000:]
    result = json.loads(html.unescape(result[1]))
    units = {"µs": 1e3, "ms": 1e6, "s": 1e9}

    def seen(text):
        begin, begin_unit, end, end_unit, count = re.match(r"(\S+) (\S+) to (\S+) (\S+) of .*: (\d+) of", text).groups()
        return float(begin) * units[begin_unit], float(end) * units[end_unit], int(count)

    start, wheel, dragged, button, whole, _ = map(seen, result["seen"])
    length, count = checked.data["length"], len(checked.data["spans"]) // 7
    assert start[:2] == (0, pytest.approx(length, rel=1e-3)) and start[2] == count
    assert wheel[1] - wheel[0] == pytest.approx(length / 2.718, rel=0.02) and wheel[2] < count  # around the middle
    assert wheel[0] + wheel[1] == pytest.approx(length, rel=0.02)
    moved = (wheel[1] - wheel[0]) / 4
    assert dragged[0] == pytest.approx(wheel[0] + moved, rel=0.02) and dragged[1] == pytest.approx(
        wheel[1] + moved, rel=0.02
    )
    assert button[1] - button[0] == pytest.approx((dragged[1] - dragged[0]) / 2, rel=0.02)
    assert whole == start
    all_texts = len(re.findall(r"class=['\"](?:break-item )?find['\"]", page.read_text()))
    assert 0 < result["shown"] < all_texts and result["found"] == f"{result['shown']} of {all_texts}"
    colours = {",".join(str(int(colour[k : k + 2], 16)) for k in (1, 3, 5)) for _, colour in checked.data["kinds"]}
    assert colours & set(result["drawn"])

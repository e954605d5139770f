"""What can go wrong around native code: the compiler is missing, fails, hangs, is killed or lies; disks and descriptors run out;
the cache is corrupted, truncated or somebody else's. Results are those of eager code, one warning is given for each loss, and no
process, file or memory stays behind. The faults are real ones, in processes of their own."""

import contextlib
import gc
import glob
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

import pytest

import wick
from wick import _C
from wick._higher_order_ops import map, scan  # noqa: A004

# Compiles with native code waited for, twice over the same function, and compares with eager code, bit for bit.
PROGRAM = """
import os, sys
sys.path[:0] = [{package!r}]
import wick
from wick import _C

def f(x, w):
    y = wick.nn.functional.gelu(x @ w + 1)
    return y.softmax(-1), (y * 2).sum(0), y.cumsum(1)

wick.manual_seed(0)
x, w = wick.randn(33, 20), wick.randn(20, 65)
expected = [repr(t.tolist()) for t in f(x, w)]
{before}
for settings in ({{"options": {{"wait": True}}}}, {{}}):
    compiled = wick.compile(f, **settings)
    for _ in range(4):
        assert [repr(t.tolist()) for t in compiled(x, w)] == expected
{more}
print("RIGHT")
"""
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(wick.__file__)))


def folders():
    """Where compilers write, with the number of their process in the name; numbers come again."""
    return {path for place in ("/dev/shm", "/tmp") for path in glob.glob(f"{place}/wick-*-*")}


def processes_of(session):
    """Those that still run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = open(path).read().rsplit(")", 1)[1].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(path)
    return found


def check_nothing_is_left(process, before):
    """Processes that were ended are gone in a moment."""
    deadline = time.monotonic() + 10
    while processes_of(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_of(process)
    assert not [path for path in folders() - before if f"/wick-{process}-" in path]


def program(before="", more=""):
    return [sys.executable, "-c", PROGRAM.format(package=PACKAGE, before=before, more=more)]


def run(cache, before="", more="", limits=(), timeout=120, most_warnings=1, **environment):
    """The warnings of a run, which is right and leaves nothing."""

    there = folders()

    def prepare():
        for what, value in limits:
            resource.setrlimit(what, (value, value))

    process = subprocess.Popen(
        program(before, more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=prepare, env={**os.environ, "WICK_CACHE_DIR": str(cache), **environment},
    )  # fmt: skip
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0 and out.strip().endswith("RIGHT"), (process.returncode, out, err)
    check_nothing_is_left(process.pid, there)
    warnings = [line for line in err.splitlines() if line.startswith("[wick]")]
    assert len(warnings) <= most_warnings, err
    return warnings


def script(folder, text):
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def entries(cache):
    return sorted(pathlib.Path(cache).glob("*.so"))


needs_compiler = pytest.mark.skipif(not shutil.which("cc"), reason="there is no compiler")


@needs_compiler
def test_nothing_is_wrong(tmp_path):
    """And while it compiles there is what the other tests look for."""
    seen = script(
        tmp_path, f'ls -d /dev/shm/wick-$PPID-* /tmp/wick-$PPID-* >> {tmp_path}/seen 2> /dev/null; exec cc "$@"'
    )
    assert run(tmp_path / "cache", WICK_CC=seen) == []
    assert entries(tmp_path / "cache")
    assert "/wick-" in (tmp_path / "seen").read_text()


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_either_compiler_takes_the_options(tmp_path, compiler):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    if compiler == "clang" and "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("with sanitizers native code is linked to those of the compiler that made wick, gcc")
    assert run(tmp_path / "cache", WICK_CC=compiler) == []
    assert entries(tmp_path / "cache")


@needs_compiler
@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="compilers write elsewhere")
def test_what_killed_processes_left_goes(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    left, new, living = [f"/dev/shm/wick-{process}-{name}" for process, name in
                         ((dead.pid, "left00"), (dead.pid, "new000"), (os.getpid(), "living"))]  # fmt: skip
    for path in (left, new, living):
        os.makedirs(path + "/folder")
        pathlib.Path(path, "folder", "unit.so").write_text("")
        if path != new:
            os.utime(path, (1, 1))
    try:
        assert run(tmp_path / "cache") == []
        assert [os.path.exists(path) for path in (left, new, living)] == [False, True, True]
    finally:
        for path in (left, new, living):
            shutil.rmtree(path, ignore_errors=True)


# ---- the compiler ----

OUTPUT = 'while [ "$1" != "-o" ]; do shift; done; cat > /dev/null'
COMPILERS = {
    "fails": "exit 3",
    "fails after reading": "cat > /dev/null; echo out of ideas >&2; exit 1",
    "killed": "kill -9 $$",
    "segfaults": "kill -11 $$",
    "makes nothing": "cat > /dev/null",
    "makes an empty file": OUTPUT + '; : > "$2"',
    "makes no object": OUTPUT + '; echo this is no object > "$2"',
    "makes a folder": OUTPUT + '; mkdir "$2"; rmdir "$2"',
    "leaves folders": OUTPUT + '; mkdir -p "$2"/in/folders; : > "$2"/in/a_file',
    "makes half an object": OUTPUT.replace(
        "cat > /dev/null", 'cc -x c -shared -o "$2".whole - && head -c 3000 "$2".whole > "$2"; rm "$2".whole'
    ),  # fmt: skip
    "makes another object": OUTPUT + "; echo 'int other;' | cc -x c -shared -o \"$2\" -",
}


@pytest.mark.parametrize("what", COMPILERS)
def test_compiler(what, tmp_path):
    (warning,) = run(tmp_path / "cache", WICK_CC=script(tmp_path, COMPILERS[what]))
    assert "kernels go on without compiled code" in warning


def test_no_compiler(tmp_path):
    assert "is no program" in run(tmp_path / "cache", WICK_CC="/nowhere/cc")[0]
    assert "no C compiler" in run(tmp_path / "cache", PATH=str(tmp_path))[0]


@pytest.mark.parametrize("what", ["hangs", "hangs without reading", "does not end", "children hang"])
def test_compiler_hangs(what, tmp_path):
    """It is ended after a while, with all that it started, also when it does not want to."""
    hang = {
        "hangs": "cat > /dev/null; sleep 600",
        "hangs without reading": "sleep 600",
        "does not end": "trap '' TERM; cat > /dev/null; while true; do sleep 1; done",
        "children hang": "cat > /dev/null; sleep 600 & sleep 600 & wait",
    }[what]
    begun = time.monotonic()
    (warning,) = run(tmp_path / "cache", WICK_CC=script(tmp_path, hang), WICK_CC_LIMIT="0.5", timeout=60)
    assert "took longer than 0.5 seconds" in warning
    assert time.monotonic() - begun < 40


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
def test_nobody_waits_for_a_hanging_compiler(trap, tmp_path):
    """A program that asked for native code in the background ends at once; the compiler with it."""
    hang = script(tmp_path, f"{trap}cat > /dev/null; touch {tmp_path}/started; sleep 600; sleep 600")
    program = f"""
import sys, time, os
sys.path[:0] = [{PACKAGE!r}]
import wick
f = wick.compile(lambda x: x.exp() + 1)
for _ in range(4): f(wick.ones(3))
while not os.path.exists({str(tmp_path / "started")!r}): time.sleep(0.01)
"""
    begun, there = time.monotonic(), folders()
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "WICK_CACHE_DIR": "", "WICK_CC": hang})  # fmt: skip
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0 and err == ""
    assert time.monotonic() - begun < 30
    check_nothing_is_left(process.pid, there)


# ---- disks and descriptors ----


@needs_compiler
@pytest.mark.parametrize("size", [0, 1, 100, 5000, 20000])
def test_files_may_not_grow(size, tmp_path):
    """Every write behind the limit fails: the compiler's and the cache's, which are two losses."""
    warnings = run(tmp_path / "cache", limits=[(resource.RLIMIT_FSIZE, size)], most_warnings=2)
    assert len({warning.rpartition("; ")[2] for warning in warnings}) == len(warnings)
    assert run(tmp_path / "cache") == []  # what the first left is no entry, or a whole one


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", folder], capture_output=True)
    if done.returncode:
        pytest.skip("no disks can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@needs_compiler
@pytest.mark.parametrize("size", ["4k", "8k", "16k"])
def test_disk_full(size, tmp_path):
    with small_disk(tmp_path / "cache", size) as cache:
        assert len(run(cache)) == 1
        run(cache)


@needs_compiler
@pytest.mark.parametrize("spare", range(0, 12, 2))
def test_no_descriptors(spare, tmp_path):
    """They run out somewhere between the cache, the pipe, the compiler and the loader."""
    program = (
        "import resource, os\n"
        "used = len(os.listdir('/proc/self/fd'))\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (used + {spare}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "g = wick.compile(lambda x: x.sin() * 3 + 1, options={'wait': True})\n"
        "assert g(x).tolist() == (x.sin() * 3 + 1).tolist()"
    )
    run(tmp_path / "cache", more=program)


# ---- the cache ----


def damaged(path, how):
    data = path.read_bytes()
    if how == "flipped":
        data = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    elif how == "cut":
        data = data[:-1]
    elif how == "a part":
        data = data[:100]
    elif how == "empty":
        data = b""
    elif how == "longer":
        data += b"x"
    elif how == "noise":
        data = os.urandom(len(data))
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how == "a link":
        os.symlink("/dev/zero", path)
    elif how == "a pipe":
        os.mkfifo(path, 0o600)
    else:
        path.write_bytes(data)
        path.chmod(0o666 if how == "writable by all" else 0o600)
    if how == "foreign":
        os.chown(path, 12345, 12345)


NOT_KEPT = "compiled and used all the same, but not kept on disk: the next process compiles them again"
DAMAGES = ["flipped", "cut", "a part", "empty", "longer", "noise", "a folder", "a link", "a pipe", "writable by all"]
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@needs_compiler
@pytest.mark.parametrize("how", [*DAMAGES, pytest.param("foreign", marks=root)])
def test_damaged_entries(how, tmp_path):
    run(tmp_path / "cache")
    for entry in entries(tmp_path / "cache"):
        damaged(entry, how)
    warnings = run(tmp_path / "cache")
    assert (warnings != []) == (how == "a folder")  # a new entry cannot take its place


@needs_compiler
@pytest.mark.parametrize("how", [*DAMAGES, pytest.param("foreign", marks=root)])
def test_damaged_key(how, tmp_path):
    run(tmp_path / "cache")
    damaged(tmp_path / "cache" / "key", how)
    run(tmp_path / "cache")


@needs_compiler
def test_entries_of_another_key(tmp_path):
    """As they would be in a cache that was copied from somewhere: nothing of it is loaded."""
    for name in ("theirs", "ours"):
        run(tmp_path / name)
    for entry in entries(tmp_path / "theirs"):
        shutil.copy(entry, tmp_path / "ours" / entry.name)
    assert run(tmp_path / "ours") == []
    assert len(entries(tmp_path / "ours")) == len(entries(tmp_path / "theirs"))


@needs_compiler
@pytest.mark.parametrize("how", ["a file", "for all", "a link", "nowhere", pytest.param("foreign", marks=root)])
def test_cache_folder(how, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    if how == "a file":
        cache.rmdir()
        cache.write_text("no folder")
    elif how == "for all":
        cache.chmod(0o777)
    elif how == "a link":
        (tmp_path / "real").mkdir(mode=0o700)
        cache.rmdir()
        cache.symlink_to(tmp_path / "real")
    elif how == "nowhere":
        cache = pathlib.Path("/proc/nowhere/cache")
    else:
        os.chown(cache, 12345, 12345)
    (warning,) = run(cache)
    assert "cache folder" in warning and NOT_KEPT in warning
    assert not list(tmp_path.rglob("*.so"))


@needs_compiler
def test_a_refused_folder_hides_no_failing_compiler(tmp_path):
    (tmp_path / "cache").write_text("no folder")
    warnings = run(tmp_path / "cache", WICK_CC=script(tmp_path, COMPILERS["fails"]), most_warnings=2)
    assert len(warnings) == 2 and NOT_KEPT in warnings[0] and "without compiled code" in warnings[1]


@needs_compiler
@root
def test_no_writable_home(tmp_path):
    """A user whose home is somebody else's: no cache, but native code."""
    as_other_user = (
        "wick.compile(f, backend='eager')(x, w)\n"  # what others may not read is imported by then
        f"os.environ['HOME'] = {str(tmp_path)!r}\n"
        "del os.environ['WICK_CACHE_DIR']\n"
        "os.environ.pop('XDG_CACHE_HOME', None)\n"
        "os.setgid(65534), os.setuid(65534)"
    )
    (warning,) = run("", before=as_other_user, more=f"assert not os.access({str(tmp_path)!r}, os.W_OK)")
    assert "cache folder" in warning and NOT_KEPT in warning


# ---- memory ----

pytestmark_debug = pytest.mark.skipif(not hasattr(_C, "_fault_arm"), reason="faults are there in debug builds only")


def training(wrap=lambda model: model):
    """A training step with the model as `wrap` gives it, and its state."""
    wick.manual_seed(0)
    model = wick.nn.Sequential(wick.nn.Linear(4, 8), wick.nn.LayerNorm(8), wick.nn.GELU(), wick.nn.Linear(8, 3))
    optimizer = wick.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x, y, forward = wick.randn(5, 4), wick.randint(3, (5,)), wrap(model)

    def step():
        loss = wick.nn.functional.cross_entropy(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    def state():
        buffers = [s["momentum_buffer"] for s in optimizer.state.values()]
        return [p.detach() for p in model.parameters()] + buffers

    return step, state


def bits(tensors):
    return [repr(t.tolist()) for t in tensors]


@pytestmark_debug
@pytest.mark.parametrize("whole", [True, False], ids=["whole step", "forward alone"])
def test_every_allocation_of_a_compiled_step(whole):
    """A step that fails raises; put back to where it was, the next gives the bits of a step that nothing happened to."""
    step, state = training() if whole else training(wick.compile)
    step()
    run_step = wick.compile(step) if whole else step
    for _ in range(5):
        run_step()  # captured, compiled and replayed
    saved = [t.clone() for t in state()]

    def put_back():
        with wick.no_grad():
            for t, s in zip(state(), saved, strict=True):
                t.copy_(s)

    put_back()
    expected = [repr(run_step().tolist()), *bits(state())]
    failures = quiet = 0
    for n in range(1, 3000):
        put_back()
        _C._fault_arm(n)
        try:
            loss = run_step()
        except (RuntimeError, MemoryError):
            failures += 1
            quiet = 0
            continue
        finally:
            _C._fault_arm(0)
        assert [repr(loss.tolist()), *bits(state())] == expected, n  # it got over it, or never came so far
        quiet += 1
        if quiet > 30:
            break
    assert whole or failures > 20  # a whole step that is replayed allocates next to nothing
    put_back()
    assert [repr(run_step().tolist()), *bits(state())] == expected


def layers(x, w):
    y = wick.nn.functional.gelu(x @ w)
    return y.softmax(-1) * 2, y.sum(0)


def control_flow(x, w):
    y = wick.cond(x.sum() > 0, lambda x: (x @ w).tanh(), lambda x: x @ w * 2, (x,))
    return y, wick.while_loop(lambda y: y.sum() < 5, lambda y: (y.abs() * 2 + w.sum(0),), (y,))[0]


def scans(x, w):
    carry, ys = scan(lambda c, row: ((c * 0.5 + row @ w).tanh(), c * 2), wick.zeros(7), x)
    return ys, map(lambda y: (y * x[0, 0]).sum(), ys) + carry.sum()


@pytestmark_debug
@pytest.mark.parametrize("function", [layers, control_flow, scans])
def test_every_allocation_of_a_compilation(function):
    """Capture, ahead-of-time autograd, the passes and the kernels: the call gives what eager code gives, or raises."""
    x, w = wick.randn(6, 5), wick.randn(5, 7, requires_grad=True)

    def gradient(f):
        a, b = f(x, w)
        (grad,) = wick.autograd.grad(a.square().sum() + b.sum(), w)
        return bits([a.detach(), b.detach(), grad])

    expected = gradient(function)
    failures = quiet = 0
    n = 1
    while n < 20000 and quiet < 300:  # what is only tried may fail unseen
        compiled = wick.compile(function)
        _C._fault_arm(n)
        try:
            got = gradient(compiled)
        except (RuntimeError, MemoryError):
            got = None
        finally:
            _C._fault_arm(0)
        failures += got is None
        quiet = 0 if got is None else quiet + 1
        assert got in (None, expected), n
        assert gradient(compiled) == expected, n
        n += 1 if n < 300 else 7
    assert failures > 50


@pytestmark_debug
@pytest.mark.parametrize(
    "function",
    [lambda x: (x * 2).exp().sum(-1), lambda x: control_flow(x, x.t())[1], lambda x: scans(x, x.new_ones(4, 7))[1]],
)
def test_nothing_stays_behind(function):
    def once(n):
        compiled = wick.compile(function)
        _C._fault_arm(n)
        try:
            compiled(wick.ones(3, 4))
        except (RuntimeError, MemoryError):
            pass
        finally:
            _C._fault_arm(0)
        compiled(wick.ones(3, 4))

    def live():
        wick.compiler.reset()
        gc.collect()
        return _C._live_allocations()

    def all_of_them():
        for n in (0, *range(1, 200, 3)):
            once(n)

    all_of_them()  # what each way to fail is the first to need is kept: code that is decoded, types that are known
    before = live()
    all_of_them()
    assert live() <= before + 2

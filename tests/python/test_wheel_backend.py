"""tools/wheel_backend.py: the bar of `pip install .`. The build itself is meson-python's."""

import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not (ROOT / "tools").exists(), reason="not the repository")

OUTPUT = b"""The Meson build system
[1/3] Compiling C object libwick_parts.a.p/src_base_arena.c.o
a warning
[3/3] Linking target python/wick/_C.so
[2/2] /somewhere/wick/info.py
"""


@pytest.fixture(scope="module")
def backend():
    spec = importlib.util.spec_from_file_location("wheel_backend", ROOT / "tools" / "wheel_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_the_backend():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert (build["build-backend"], build["backend-path"]) == ("wheel_backend", ["tools"])


def test_steps_are_drawn_and_all_is_copied(backend):
    target, terminal = io.BytesIO(), io.StringIO()
    assert backend.follow(io.BytesIO(OUTPUT), target, terminal)
    assert target.getvalue() == OUTPUT
    assert terminal.getvalue().split("\r\033[K") == [
        "\n",
        "  [########----------------] 1/3 Compiling src_base_arena.c.o  ",
        "  [########################] 3/3 Linking _C.so  ",
        "  [########################] 2/2 packing info.py  ",
    ]


def test_without_steps_nothing_is_drawn(backend):
    terminal = io.StringIO()
    assert not backend.follow(io.BytesIO(b"nothing\n[x] y\n"), io.BytesIO(), terminal)
    assert terminal.getvalue() == ""


def test_a_line_is_no_wider_than_the_terminal(backend):
    assert len(backend.bar_text(1, 2, "x" * 200, 80)) <= 80 and len(backend.bar_text(1, 2, "x", 10)) <= 10


def build(backend, tmp_path, device, text):
    """What a build's standard output gets, in a process of its own; `text` is printed by a child of it."""
    printing = f"print({text!r})"
    program = (
        f"import sys, subprocess; sys.path.insert(0, {str(ROOT / 'tools')!r}); import wheel_backend\n"
        f"with wheel_backend.progress({str(device)!r}):\n"
        "    print('before', flush=True)\n"
        f"    subprocess.run([sys.executable, '-c', {printing!r}], check=True)\n"
        "print('behind')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_build_with_a_terminal(backend, tmp_path):
    ours, theirs = os.openpty()
    assert (
        build(backend, tmp_path, os.ttyname(theirs), "[1/2] Compiling x.c") == "before\n[1/2] Compiling x.c\nbehind\n"
    )
    shown = os.read(ours, 4096).decode()
    os.close(ours), os.close(theirs)
    assert "] 1/2 Compiling x.c" in shown and shown.split("\r\033[K")[-1].startswith("  after ")


def test_a_build_without_a_terminal(backend, tmp_path):
    printed = build(backend, tmp_path, tmp_path / "none" / "tty", "[1/2] Compiling x.c")
    assert printed == "before\n[1/2] Compiling x.c\nbehind\n"

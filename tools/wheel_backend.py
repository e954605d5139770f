"""The build backend of `pip install .`: meson-python, with a progress bar on the terminal.

pip shows a backend's output only with -v, and compiling takes a minute or two. So the bar goes to the terminal itself,
where there is one, on the line below the one that pip shows meanwhile. What the build prints goes where it always goes.
"""

import contextlib
import os
import re
import sys
import threading
import time

STEP = re.compile(rb"\[(\d+)/(\d+)\] (.*)")  # of ninja, and of meson-python as it packs
WIDTH = 24


def bar_text(done, total, what, columns):
    """[######------] 12/240 Compiling x.c, in a line of the terminal."""
    filled = WIDTH * done // max(total, 1)
    text = f"  [{'#' * filled}{'-' * (WIDTH - filled)}] {done}/{total} {what}"
    return text[: max(columns - 4, 0)] + "  "  # pip's spinner turns at the end


def _what(text):
    """Of "Compiling C object some/file.c.o" and of a path that is packed."""
    first, *_, last = ["packing", *text.split()] if "/" in text.split(" ")[0] else text.split() or [""] * 2
    return f"{first} {os.path.basename(last)}"


def follow(source, target, terminal, columns=80):
    """Copies lines until there are no more, and draws how far they say the build is. Whether any did."""
    drawn = False
    for line in source:
        target.write(line)
        target.flush()
        if step := STEP.match(line):
            text = bar_text(int(step[1]), int(step[2]), _what(step[3].decode(errors="replace")), columns)
            terminal.write(("" if drawn else "\n") + f"\r\033[K{text}")
            terminal.flush()
            drawn = True
    return drawn


@contextlib.contextmanager
def progress(device="/dev/tty"):
    """A bar for what is built inside; nothing where there is no terminal."""
    try:
        terminal = open(device, "w", encoding="utf-8", errors="replace")
    except OSError:
        yield
        return
    try:
        columns = os.get_terminal_size(terminal.fileno()).columns or 80
    except OSError:
        columns = 80
    began, drawn = time.monotonic(), []
    sys.stdout.flush()
    kept = os.dup(1)
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(writing)

    def copy():
        with os.fdopen(reading, "rb") as source, os.fdopen(os.dup(kept), "wb") as target:
            drawn.append(follow(source, target, terminal, columns))

    thread = threading.Thread(target=copy)
    thread.start()
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        thread.join()
        with terminal:
            if any(drawn):
                terminal.write(f"\r\033[K  after {time.monotonic() - began:.0f} s:  ")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with progress():
        return mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with progress():
        return mesonpy.build_editable(wheel_directory, config_settings, metadata_directory)


with contextlib.suppress(ModuleNotFoundError):  # tests of the bar do without
    import mesonpy
    from mesonpy import (  # noqa: F401
        build_sdist,
        get_requires_for_build_editable,
        get_requires_for_build_sdist,
        get_requires_for_build_wheel,
    )

"""python -m wick.trace: runs a program as python -m wick does, and writes one page of what happened.

python -m wick.trace [--out trace.html] script.py args...
python -m wick.trace [--out trace.html] -m module args...
python -m wick.trace [--out trace.html] -c "code" args...

The page has every compiled function with its segments, breaks and what mends them, what was captured again and why, guards,
graphs, kernels with their C, and a timeline of what ran when. It needs no network. It is written when the interpreter
ends, however the program does; not by a signal that ends the process, os._exit() or exec. The program runs as it would
without: output, exit status and exceptions are its own.
"""

# `torch.trace` is an operator: nothing imports this module by its name.
import atexit
import os
import sys

from . import __main__ as program

USAGE = """usage: python -m wick.trace [--out FILE] [-m module | -c code | script.py | -] [arguments]
  --out FILE    where the page goes (trace.html)
  --            the program's own arguments begin"""


def _options(arguments):
    """(file of the page, the command line of the program)."""
    out = "trace.html"
    while arguments and arguments[0].startswith("--"):
        option, *arguments = arguments
        name, equals, value = option.partition("=")
        if option == "--":
            break
        if name == "--out" and (equals or arguments):
            out, arguments = (value, arguments) if equals else (arguments[0], arguments[1:])
        elif option == "--help":
            program._say(USAGE)
        else:
            program._say(f"--out needs a file\n{USAGE}" if name == "--out" else f"unknown option {option}\n{USAGE}", 2)
    if arguments[:1] == ["-h"]:
        program._say(USAGE)
    if not arguments:
        sys.exit(USAGE)
    return out, arguments


class _Page:
    """Where the page goes, and what is known for it; written at the process's end."""

    def __init__(self, path, command):
        from ._dynamo.tracing import Recorder

        self.path, self.command = os.path.abspath(path), command
        self.outcome = "It ran to its end."
        self.process = os.getpid()
        self.recorder = Recorder()

    def write(self):
        if os.getpid() != self.process:
            return  # a child that was forked
        from ._dynamo.trace_html import page_of

        try:
            page = page_of(self.recorder.stop(), self.command, self.outcome)
            with open(self.path, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(page)
        except Exception as error:  # the program's exit status is its own
            print(f"[wick] {self.path}: no page: {type(error).__name__}: {error}", file=sys.stderr)
        else:
            print(f"[wick] {self.path}", file=sys.stderr)


def _outcome_of(error):
    if isinstance(error, SystemExit):
        return f"It ended with exit status {0 if error.code is None else error.code}."
    return f"It raised {type(error).__name__}: {error}"


def main():
    """Runs the program that sys.argv names."""
    import shlex

    out, arguments = _options(sys.argv[1:])
    if not os.path.isdir(os.path.dirname(os.path.abspath(out))):
        sys.exit(f"{out}: no such folder")
    page = _Page(out, shlex.join(arguments))
    atexit.register(page.write)  # behind all that the program registers, and behind its threads
    try:
        program.main(arguments)
    except BaseException as error:
        page.outcome = _outcome_of(error)
        raise


if __name__ == "__main__":
    main()

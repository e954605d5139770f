"""python -m wick: runs a program with `import torch` served by wick; all else is as with plain python.

python -m wick script.py args...     a file, a folder or zip with a __main__.py, or - for standard input
python -m wick -m module args...
python -m wick -c "code" args...

python -m wick --compile script.py args...   what is hot in the program is compiled, without a change of its source
                                             (docs/capture.md); --compile=report says at the end what that was. So does
                                             the environment: WICK_COMPILE=1, WICK_COMPILE=report
"""

import os
import sys
from importlib.util import find_spec
from types import ModuleType

from . import version
from ._as_torch import install

USAGE = "usage: python -m wick [--compile[=report]] [-m module | -c code | script.py | -] [arguments]"


def _main_module(**attributes):
    """A fresh __main__ in place of this one."""
    module = ModuleType("__main__")
    module.__builtins__ = __builtins__
    module.__dict__.update(attributes)
    sys.modules["__main__"] = module
    return module


def _set_path(first):
    """What plain python would have put first where `python -m wick` has the working folder."""
    if not sys.flags.safe_path and sys.path:
        sys.path[0] = first


def _from_code(code, arguments):
    sys.argv = ["-c", *arguments]
    _set_path("")
    return compile(code, "<string>", "exec"), _main_module()


def _from_stdin(arguments):
    sys.argv = ["-", *arguments]
    _set_path("")
    return compile(sys.stdin.read(), "<stdin>", "exec"), _main_module(__file__="<stdin>")


def _from_module(name, arguments):
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(name + ".__main__")
            if spec is None:
                sys.exit(
                    f"{sys.executable}: No module named {name}.__main__; {name!r} is a package and cannot be directly "
                    "executed"
                )
        code = spec.loader.get_code(spec.name) if spec is not None else None
    except (ImportError, AttributeError, ValueError) as error:
        sys.exit(f"{sys.executable}: Error while finding module specification for {name!r} "
                 f"({type(error).__name__}: {error})")  # fmt: skip
    if code is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    sys.argv = [spec.origin, *arguments]
    return code, _main_module(
        __file__=spec.origin, __cached__=spec.cached, __loader__=spec.loader, __package__=spec.parent, __spec__=spec
    )


def _from_path(path, arguments):
    sys.argv = [path, *arguments]
    path = os.path.abspath(path)
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        _set_path(path)
        spec = _find_main(path)
        if spec is None:
            sys.exit(f"{sys.executable}: can't find '__main__' module in {path!r}")
        return spec.loader.get_code("__main__"), _main_module(
            __file__=spec.origin, __loader__=spec.loader, __package__="", __spec__=spec
        )
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}",
              file=sys.stderr)  # fmt: skip
        sys.exit(2)
    _set_path(os.path.dirname(os.path.realpath(path)))
    return compile(source, path, "exec"), _main_module(__file__=path, __cached__=None)


def _find_main(path):
    """The spec of __main__ in a folder or zip."""
    from importlib.machinery import PathFinder

    return PathFinder.find_spec("__main__", [path])


def _say(text, status=0):
    """Prints, and ends the process."""
    from ._command import run

    run(lambda: print(text) or status)


def _prepare(arguments):
    """(code, module to run it in) for the command line."""
    first, *rest = arguments
    if first in ("-m", "-c"):
        if not rest:
            sys.exit(f"Argument expected for the {first} option\n{USAGE}")
        return (_from_module if first == "-m" else _from_code)(rest[0], rest[1:])
    if first == "-":
        return _from_stdin(rest)
    if first in ("-V", "--version"):
        _say(f"wick {version.wick}, PyTorch API {version.__version__}")
    if first in ("-h", "--help"):
        _say(USAGE)
    if first.startswith("-"):
        _say(f"unknown option {first}\n{USAGE}", 2)
    return _from_path(first, rest)


def _hide_frames(error, count):
    """Makes the traceback that is printed begin in the program: `count` frames of ours stand before it."""
    traceback = error.__traceback__
    for _ in range(count):
        traceback = traceback.tb_next if traceback else None
    hook = sys.excepthook

    def excepthook(kind, value, full):
        if value is error:
            value, full = value.with_traceback(traceback), traceback
        hook(kind, value, full)

    sys.excepthook = excepthook


def _take_compile(arguments):
    """(whether to compile what is hot: "", "1" or "report", the other arguments)."""
    first = arguments[0] if arguments else ""
    if first == "--compile" or first.startswith("--compile="):
        how, arguments = first[len("--compile=") :] or "1", arguments[1:]
    else:
        how = os.environ.get("WICK_COMPILE", "")
    if how not in ("", "0", "1", "report"):
        _say(f"--compile or --compile=report, not {how!r}\n{USAGE}", 2)
    return how if how != "0" else "", arguments


def _run(code, module, how):
    if not how:
        exec(code, module.__dict__)
        return
    from ._regions import run

    run(code, module, report=how == "report")


def main(arguments):
    """Runs the program that a command line names."""
    how, arguments = _take_compile(arguments)
    if not arguments:
        sys.exit(USAGE)
    install()
    try:
        code, module = _prepare(arguments)
    except SyntaxError as error:
        _hide_frames(error, 100)
        raise
    try:
        _run(code, module, how)
    except SystemExit:
        raise
    except BaseException as error:
        _hide_frames(error, 3 if how else 2)
        raise


if __name__ == "__main__":
    main(sys.argv[1:])

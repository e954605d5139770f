"""CPython's private module of interpreters, whose names and defaults each version changes: one way to use it for
scripts of tests. All share the first interpreter's lock."""

import sys

try:
    import _interpreters as module
except ImportError:
    import _xxsubinterpreters as module


def create():
    if sys.version_info >= (3, 13):
        return module.create("legacy")
    return module.create(isolated=False)


def run_string(interpreter, source):
    failure = module.run_string(interpreter, source)  # older versions raise it
    if failure:
        raise RuntimeError(failure.formatted)


def destroy(interpreter):
    module.destroy(interpreter)

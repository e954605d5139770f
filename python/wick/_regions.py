"""A program whose hot loops and functions are compiled without being asked for: python -m wick --compile program.py.

run(code, module)            # what exec(code, module.__dict__) does
wick.compiler.regions()      # [Region(name, file, line, kind, compiled)] of what has been found hot so far
"""

import collections
import sys

from . import _C, compiler

Region = collections.namedtuple("Region", "name file line kind compiled")
_found = []


def regions():
    """See compiler.regions()."""
    return list(_found)


def _make(function, line, kind):
    compiled = compiler._compiled(function, compiler._settings("wick", None, None, False, None))
    code = function.__code__
    _found.append(Region(getattr(code, "co_qualname", code.co_name), code.co_filename, line, kind, compiled))
    return compiled


def describe():
    """What was compiled, in lines: each region with its segments, how often they ran, and where and why they end."""
    lines = []
    for region in _found:
        report = region.compiled.report()
        lines.append(f"{region.file}:{region.line}: {region.kind} in {region.name}: {len(report)} segments")
        for segment in report:
            where = f"{segment['file']}:{segment['line']}" if segment["file"] else "?"
            operators, hits = segment["operators"], segment["hits"]
            lines.append(
                f"    {operators:4d} operators, run {hits:6d} times, until {where}: {segment['reason'] or segment['end']}"
            )
    return "\n".join(lines) if lines else "nothing was hot"


def run(code, module, report=False):
    """exec(code, module.__dict__), where what is hot is compiled. report: says at the end on stderr what was."""
    from ._dynamo import config

    try:
        return _C._run_program(code, module.__dict__, _make, config.hot_rounds, config.quiet_rounds)
    finally:
        if report:
            print(describe(), file=sys.stderr)
        _found.clear()  # what the program has made goes when it would

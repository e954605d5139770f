"""Where in the program a node was made, as text."""

import linecache
import re

_PLACE = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+), in (?P<function>.*)\n?(?P<code>.*)')


def stack_trace(places):
    """As Python's traceback: from (file, function, line) triples, the innermost last."""
    lines = []
    for file, function, line in places:
        lines.append(f'  File "{file}", line {line}, in {function}\n')
        code = linecache.getline(file, line).strip()
        if code:
            lines.append(f"    {code}\n")
    return "".join(lines)


def comment(trace):
    """The innermost place of a stack trace in one line."""
    found = list(_PLACE.finditer(trace))
    if not found:
        return trace.strip().replace("\n", " ")
    place = found[-1]
    return f"File: {place['file']}:{place['line']} in {place['function']}, code: {place['code'].strip()}"

"""Rules read an operator's arguments by name: WK__ARG(add_Tensor, alpha), not 2; or, in a function that reads many,
A_alpha behind a line WK__ARGS(add_Tensor). `--fix` writes the names.

In: the rows, and the C files that hold their rules. Out: each place where a rule, or a function that a rule hands its
call to, has a number although every row that gets there has the same name at that position. Where rows differ, as in
the shape rule of all pointwise ones, there is no name and a number is right; so is 0 for the first argument of several
rows. Macros are left alone.
"""

import argparse
import pathlib
import re
import sys
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from ops import language  # noqa: E402

FOLDERS = ("src/ops", "src/ops/rules", "src/decompose", "src/cpu/kernels", "src/cpu/attention")
PREFIXES = {
    "shape": "wk__meta_",
    "vjp": "wk__vjp_",
    "lower": "wk__lower_",
    "view": "wk__view_",
    "routine": "wk__routine_",
}
PREFIXES |= {"compose": "wk__compose_", "kernel": "wk__cpu_", "decompose": "wk__decompose_"}
HEAD = re.compile(r"^(?:static )?(?:inline )?(?:const )?\w+ \*{0,2}(?P<name>\w+)\((?P<parameters>[^;{]*)\) \{", re.M)
ONE_RESULT = re.compile(r"^WK__DECOMPOSE_ONE\((?P<name>\w+)\) \{", re.M)
CONTEXT = re.compile(r"\bwk__(?:call|vjp|lower) \*(\w+)")
BY_FUNCTION = (
    r"wk__arg_\w+|wk__needs|wk__vjp_set|wk__in|wk__in_as|wk__row_in\w*|wk__has|wk__is_one|wk__rows_of|wk__size_of_arg"
    r"|wk__access_arg|wk__list_input|wk__d_arg"
)


@dataclass
class Function:
    file: pathlib.Path
    name: str
    context: str  # the parameter that is the call
    begin: int
    end: int
    rows: set = field(default_factory=set)  # names of the rows that get here


def end_of(text, begin):
    """Behind the brace that closes the one before `begin`."""
    depth, at = 1, begin
    while depth:
        at = re.compile(r"[{}]").search(text, at).end()
        depth += 1 if text[at - 1] == "{" else -1
    return at


def functions_of(file, text):
    for m in sorted([*HEAD.finditer(text), *ONE_RESULT.finditer(text)], key=lambda m: m.start()):
        one = m.re is ONE_RESULT
        context = None if one else CONTEXT.search(m["parameters"])
        if one or context:
            name = "wk__decompose_" + m["name"] if one else m["name"]
            yield Function(file, name, "c" if one else context[1], m.end(), end_of(text, m.end()))


def handed_to(function, text):
    """Names of the functions that are handed the call."""
    call = rf"\b(\w+)\(\s*(?:[^();]*,\s*)?{function.context}(?:->call)?[,)]"
    return set(re.findall(call, text[function.begin : function.end]))


def spread(functions, texts):
    """Rows reach what their rules hand the call to, and so on."""
    by_name = {}
    for f in functions:
        by_name.setdefault(f.name, []).append(f)
    work = [f for f in functions if f.rows]
    while work:
        f = work.pop()
        for name in handed_to(f, texts[f.file]):
            for g in by_name.get(name, ()):
                reached = g is not f and (g.file == f.file or name.startswith("wk__")) and not f.rows <= g.rows
                if reached:
                    g.rows |= f.rows
                    work.append(g)


def name_at(rows, position):
    """The name of an argument, if all rows have the same there."""
    found = {r.schema.parameters[position].name if position < len(r.schema.parameters) else None for r in rows}
    return None if len(found) != 1 or (position == 0 and len(rows) > 1) else found.pop()


def symbol_of(function, rows):
    """Of rows that share a function the one that it is named after, or the first."""
    stem = re.sub(r"^wk__[a-z]+_", "", function.name)
    return min((r.symbol for r in rows), key=lambda s: (not s.startswith(stem), len(s), s))


def numbers_in(text, function):
    """Where a literal stands for an argument, as spans."""
    c = function.context
    patterns = [
        rf"\b{c}(?:->call)?->args\[(\d+)\]",
        r"\b(?:ARG|GIVE|NEEDS)\(\s*(\d+)[,)]",
        rf"\b(?:{BY_FUNCTION})\(\s*{c}(?:->call)?,\s*(\d+)[,)]",
    ]
    for pattern in patterns:
        for m in re.compile(pattern).finditer(text, function.begin, function.end):
            yield m.start(1), m.end(1)


def misses(function, text, rows):
    """(begin, end, name) of each number that has a name."""
    known = [rows[name] for name in function.rows]
    for begin, end in numbers_in(text, function) if known else ():
        name = name_at(known, int(text[begin:end]))
        if name:
            yield begin, end, name


MANY = 3  # uses from which a function has a line for the names


def edits(function, text, rows):
    """(begin, end, new text): numbers replaced, and perhaps the line in front of them."""
    found = list(misses(function, text, rows))
    if not found:
        return
    symbol = symbol_of(function, [rows[name] for name in function.rows])
    declared = re.search(r"\bWK__ARGS\((\w+)\);", text[function.begin : function.end])
    several = text[function.begin] == "\n" and len(found) >= MANY
    if several and not declared:
        yield function.begin, function.begin, f"\n  WK__ARGS({symbol});"
    for begin, end, name in found:
        yield begin, end, f"A_{name}" if several or declared else f"WK__ARG({symbol}, {name})"


def with_rows(texts, rows):
    """All functions, each with the rows that get there."""
    functions = [f for file, text in texts.items() for f in functions_of(file, text)]
    ruled = {}
    for name, row in rows.items():
        for kind, prefix in PREFIXES.items():
            if row.rule[kind]:
                ruled.setdefault(prefix + row.rule[kind], set()).add(name)
    for f in functions:
        f.rows = set(ruled.get(f.name, ()))
    spread(functions, texts)
    return functions


def fix(file, text, changes):
    for begin, end, new in changes:
        text = text[:begin] + new + text[end:]
    if changes:
        file.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fix", action="store_true", help="write the names; clang-format the files afterwards")
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=ROOT, help="another tree")
    options = parser.parse_args()
    root, count = options.root, 0
    rows = {row.schema.name: row for row in language.read(sorted((root / "src/ops/tables").glob("*.ops")))}
    texts = {file: file.read_text() for folder in FOLDERS for file in sorted((root / folder).glob("*.c"))}
    functions = with_rows(texts, rows)
    for file, text in texts.items():
        here = [f for f in functions if f.file == file]
        count += sum(len(list(misses(f, text, rows))) for f in here)
        if options.fix:
            fix(file, text, sorted((e for f in here for e in edits(f, text, rows)), reverse=True))
            continue
        for begin, end, name in (m for f in here for m in misses(f, text, rows)):
            print(f"{file.relative_to(root)}:{text.count(chr(10), 0, begin) + 1}: argument {text[begin:end]} is {name}")
    if count and not options.fix:
        sys.exit(f"{count} arguments are read by number (tools/check_argument_names.py --fix writes their names)")


main()

"""A Python function that gives something else when it is captured, cut down to the statements that show it.

In: a function and its arguments. Out: a file that runs by itself: the function, what it uses of its module, its arguments
beside it. Statements are dropped many at once first, then one by one, and blocks give way to what is in them, for as long
as the function still runs plainly and is still wrong when its graphs are run node by node, so that the compiler has no
part in it. What plainly gives something else each time is left alone. Tests: tests/python/test_minify.py.
"""

import ast
import copy
import inspect
import os
import textwrap
import types

import wick

from .cases import copy_of, same

_MOST_TRIES = 500
_CALLS = 3
_COMPARED = (wick.Tensor, bool, int, float, complex, str, bytes, type(None))


# ---- running ----


def _outcome(function, args, kwargs):
    """What can be compared of one call: its results, and the arguments as they are afterwards."""
    tree_map, tree_leaves = wick.utils._pytree.tree_map, wick.utils._pytree.tree_leaves
    args, kwargs = tree_map(copy_of, args), tree_map(copy_of, kwargs)
    wick.manual_seed(0)
    leaves = tree_leaves((function(*args, **kwargs), args, kwargs))
    return [leaf if isinstance(leaf, _COMPARED) else type(leaf) for leaf in leaves]


def _is_same(left, right, tolerance):
    return len(left) == len(right) and all(same(x, y, tolerance) for x, y in zip(left, right, strict=True))


def _is_wrong(function, args, kwargs, tolerance):
    """Plainly it runs and gives the same each time; captured it raises, or gives something else."""
    try:
        plain = [_outcome(function, args, kwargs) for _ in range(2)]
    except Exception:
        return False
    if not _is_same(*plain, tolerance):
        return False
    try:
        captured = wick.compile(function, backend="eager")
        return not all(_is_same(plain[0], _outcome(captured, args, kwargs), tolerance) for _ in range(_CALLS))
    except Exception:
        return True


# ---- cutting ----


def _blocks(tree):
    """Every list of statements of the function."""
    for node in ast.walk(tree.body[0]):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block:
                yield block, field == "body"


class Cut:
    """The function as it is cut so far: tree, statements, and how many cuts were tried."""

    def __init__(self, function, args, kwargs, tolerance):
        source = textwrap.dedent(inspect.getsource(function))
        self.tree = ast.parse(source)
        self.function, self.args, self.kwargs, self.tolerance = function, args, kwargs, tolerance
        self.tried = 0
        (definition,) = self.tree.body
        if not isinstance(definition, ast.FunctionDef):
            raise ValueError("no def")
        definition.decorator_list = []
        self.names = dict(function.__globals__)
        self.names |= dict(
            zip(function.__code__.co_freevars, (c.cell_contents for c in function.__closure__ or ()), strict=True)
        )

    @property
    def statements(self):
        return sum(isinstance(node, ast.stmt) for node in ast.walk(self.tree)) - 1

    def made(self, tree):
        """The function of a tree."""
        names = dict(self.names)
        exec(compile(tree, self.function.__code__.co_filename, "exec"), names)
        return names[self.function.__name__]

    def is_wrong(self, tree):
        self.tried += 1
        try:
            made = self.made(ast.fix_missing_locations(tree))
        except Exception:
            return False
        return _is_wrong(made, self.args, self.kwargs, self.tolerance)

    def _accept(self, change):
        """change(blocks) of a copy; whether it is still wrong then."""
        tree = copy.deepcopy(self.tree)
        if self.tried >= _MOST_TRIES or not change(list(_blocks(tree))) or not self.is_wrong(tree):
            return False
        self.tree = tree
        return True

    def _drop(self, number, begin, end):
        def change(blocks):
            if number >= len(blocks):
                return False
            block, needs_one = blocks[number]
            kept = block[:begin] + block[end:]
            block[:] = kept or ([ast.Pass()] if needs_one and not isinstance(block[0], ast.Pass) else block)
            return len(kept) > 0 or isinstance(block[0], ast.Pass)

        return self._accept(change)

    def _unwrap(self, number, at):
        def change(blocks):
            if number >= len(blocks) or at >= len(blocks[number][0]):
                return False
            block = blocks[number][0]
            inside = getattr(block[at], "body", None)
            if not isinstance(inside, list) or isinstance(block[at], (ast.FunctionDef, ast.ClassDef)):
                return False
            block[at : at + 1] = inside
            return True

        return self._accept(change)

    def _count(self, number):
        blocks = list(_blocks(self.tree))
        return len(blocks[number][0]) if number < len(blocks) else 0

    def _pass_over(self):
        changed, number = False, 0
        while self._count(number):
            size = max(1, self._count(number) // 2)
            while size:
                begin = self._count(number) - size
                while begin >= 0:
                    if self._count(number) >= begin + size and self._drop(number, begin, begin + size):
                        changed = True
                    begin -= size
                size //= 2
            for at in range(self._count(number)):
                changed |= self._unwrap(number, at)
            number += 1
        return changed

    def run(self):
        before = None
        while before != ast.dump(self.tree):
            before = ast.dump(self.tree)
            self._pass_over()
        return self


# ---- the file ----

_FILE = '''"""{title}

Run it with wick: python {name}. Written by wick._dynamo.minify.
"""

import os

import wick as torch

INPUTS = torch.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "{inputs}"), weights_only=False)
{names}

{function}


def copies():
    return torch.utils._pytree.tree_map(
        lambda x: x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x, INPUTS["call"]
    )


captured = torch.compile({function_name}, backend="eager")
for run in {function_name}, *[captured] * {calls}:
    torch.manual_seed(0)
    args, kwargs = copies()
    print("captured" if run is captured else "plain", run(*args, **kwargs), "arguments", args, kwargs)
'''


def _is_literal(value):
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple) and all(map(_is_literal, value))
    return type(value) in (int, str, bool, bytes, type(None)) or (type(value) is float and value - value == 0)


class _Names:
    """What a source uses of its module, as lines of Python; tensors beside it."""

    def __init__(self, names, module):
        self.names, self.module = names, module
        self.lines, self.tensors, self.done = [], {}, set()

    def add(self, source):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Name) and node.id in self.names and node.id not in self.done:
                self.done.add(node.id)
                self._define(node.id, self.names[node.id])

    def _define(self, name, value):
        kinds = (types.FunctionType, types.BuiltinFunctionType, type)
        if isinstance(value, types.ModuleType):
            self.lines.append(f"import {value.__name__.replace('torch', 'wick', 1)} as {name}")
        elif isinstance(value, kinds) and getattr(value, "__module__", None) != self.module:
            self.lines.append(f"from {value.__module__} import {value.__name__} as {name}")
        elif isinstance(value, wick.Tensor):
            self.tensors[name] = value.detach()
            self.lines.append(f'{name} = INPUTS["names"]["{name}"]')
        elif _is_literal(value):
            self.lines.append(f"{name} = {value!r}")
        else:
            self._define_by_source(name, value)

    def _define_by_source(self, name, value):
        try:
            source = textwrap.dedent(inspect.getsource(value))
            self.add(source)
        except (TypeError, OSError, SyntaxError):
            source = f"# {name}, a {type(value).__name__}, has to be defined here"
        self.lines.append(f"\n\n{source}")


def _write(cut, path):
    source = ast.unparse(cut.tree)
    names = _Names(cut.names, cut.function.__module__)
    names.done.add(cut.function.__name__)
    names.add(source)
    beside = os.path.splitext(path)[0] + ".pt"
    wick.save({"call": (cut.args, cut.kwargs), "names": names.tensors}, beside)
    text = _FILE.format(
        title="What a program was cut down to. It gives something else when it is captured.",
        name=os.path.basename(path),
        inputs=os.path.basename(beside),
        names="\n".join(names.lines),
        function=source,
        function_name=cut.function.__name__,
        calls=_CALLS,
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def minify_function(function, args, kwargs, path, tolerance=0):
    """The Cut of a function that is wrong when it is captured, written to `path`; None where it is right, or cannot be cut: it
    is no `def` of a file."""
    function = getattr(function, "function", function)  # behind compile()
    if not isinstance(function, types.FunctionType) or not _is_wrong(function, args, kwargs, tolerance):
        return None
    try:
        cut = Cut(function, args, kwargs, tolerance)
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not cut.is_wrong(cut.tree):
        return None
    cut.run()
    _write(cut, path)
    return cut

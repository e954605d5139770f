"""From a function's syntax to the tile IR: each operation is a call of the C builder.

Names hold Python objects where their value is known while building, and tensors where it is known when the kernel runs.
A loop or branch on tensors becomes a region of the IR; all other control flow is followed here. (The bytecode evaluator,
which captures models, has lost the structure of loops, which a region needs.)
"""

import ast
import builtins
import inspect
import operator
from types import ModuleType

from . import language as tl
from .errors import CompilationError, CompileTimeAssertionFailure, UnsupportedLanguageConstruct

_BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_RETURNED = object()  # what a list of statements gives that has ended in a return


def _is_value(x):
    return isinstance(x, tl.tensor)


def _is_number(x):
    return isinstance(x, (bool, int, float))


def _leaves(x):
    """The tensors and numbers of a value, in order; None: it is something else."""
    if _is_value(x) or _is_number(x):
        return [x]
    if isinstance(x, tl.block_type):
        return x.flatten()
    if not isinstance(x, tuple):
        return None
    parts = [_leaves(item) for item in x]
    return None if None in parts else [leaf for part in parts for leaf in part]


def _rebuild(like, leaves):
    if isinstance(like, tuple):
        return tuple(_rebuild(item, leaves) for item in like)
    if isinstance(like, tl.block_type):
        return like.rebuild([next(leaves) for _ in like.offsets])
    return next(leaves)


def _assigned(statements):
    """Names that statements give values to, in order."""
    found = {}
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = None
    return list(found)


def _returns(statements):
    return any(isinstance(node, ast.Return) for s in statements for node in ast.walk(s))


class Walker:
    """One function while its body is walked: a kernel, or one that it calls."""

    def __init__(self, function, builder, names, is_kernel):
        self.function, self.builder, self.names, self.is_kernel = function, builder, names, is_kernel
        self.result, self.depth = None, 0  # depth: loops and branches of the IR around

    def run(self):
        tree = self.function.parse()
        self.statements(tree.body)
        return self.result

    # ---- errors ----

    def fail(self, node, message, kind=CompilationError):
        raise kind(self.function.source, node, message)

    def step(self, method, node):
        """method(node); what goes wrong in it is told with its place."""
        self.builder.line = self.function.first_line + node.lineno - 1
        try:
            return method(node)
        except CompilationError:
            raise
        except AssertionError as error:
            raise CompileTimeAssertionFailure(self.function.source, node, str(error)) from None
        except Exception as error:
            text = (
                str(error) if isinstance(error, (ValueError, TypeError)) else f"{type(error).__name__}({str(error)!r})"
            )
            raise CompilationError(self.function.source, node, text) from error

    # ---- statements ----

    def statements(self, nodes):
        for i, node in enumerate(nodes):
            if isinstance(node, ast.If):
                ended = self.step(lambda n, rest=nodes[i + 1 :]: self.visit_if(n, rest), node)
                if ended is not None:
                    return ended
                continue
            method = getattr(self, "do_" + type(node).__name__, None)
            if method is None:
                self.fail(node, f"unsupported AST node type: {type(node).__name__}", UnsupportedLanguageConstruct)
            if self.step(method, node) is _RETURNED:
                return _RETURNED
        return None

    def do_Pass(self, node):
        pass

    def do_Expr(self, node):
        self.eval(node.value)

    def do_Assign(self, node):
        value = self.eval(node.value)
        for target in node.targets:
            self.assign(target, value)

    def do_AnnAssign(self, node):
        if node.value is None:
            return
        value = self.eval(node.value)
        if self.eval(node.annotation) is tl.constexpr and _is_value(value):
            self.fail(node, "a constexpr cannot be given a value that is known when the kernel runs")
        self.assign(node.target, value)

    def do_AugAssign(self, node):
        load = (
            ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
            if isinstance(node.target, ast.Name)
            else None
        )
        if load is None:
            self.fail(node, "only names can be assigned to", UnsupportedLanguageConstruct)
        self.assign(node.target, self.binary(_BINARY[type(node.op)], self.eval(load), self.eval(node.value)))

    def do_Assert(self, node):
        condition = self.eval(node.test)
        if not _is_value(condition) and not condition:
            raise AssertionError(self.eval(node.msg) if node.msg else "")

    def do_Return(self, node):
        value = self.eval(node.value) if node.value is not None else None
        if self.is_kernel:
            if value is not None:
                self.fail(node, "a kernel returns nothing")
            self.builder.ret()
            return _RETURNED
        if self.depth:
            self.fail(node, "cannot return from a function inside of a loop", UnsupportedLanguageConstruct)
        self.result = value
        return _RETURNED

    def assign(self, target, value):
        if isinstance(target, ast.Name):
            self.names[target.id] = tl._plain(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = list(value)
            if len(parts) != len(target.elts):
                raise ValueError(f"cannot unpack {len(parts)} values into {len(target.elts)} names")
            for part, item in zip(target.elts, parts, strict=True):
                self.assign(part, item)
        else:
            self.fail(target, "only names can be assigned to", UnsupportedLanguageConstruct)

    # ---- branches ----

    def visit_if(self, node, rest):
        condition = self.eval(node.test)
        if not _is_value(condition):
            return self.statements(node.body if condition else node.orelse)
        if not self.is_kernel and (_returns(node.body) or _returns(node.orelse)):
            return self.returning_branches(node, condition, rest)
        before, touched = dict(self.names), _assigned([*node.body, *node.orelse])
        self.builder.if_begin(condition)
        self.depth += 1
        first = self.branch(node.body, touched)
        self.builder.if_else()
        self.names = dict(before)
        second = self.branch(node.orelse, touched)
        self.depth -= 1
        self.merge(before, touched, first, second)
        return _RETURNED if first[0] is _RETURNED and second[0] is _RETURNED else None

    def branch(self, statements, touched):
        """(whether it returns, the names behind it, the leaves of what it has given to names, as values)"""
        ended, values = self.statements(statements), {}
        for name in touched:
            leaves = _leaves(self.names[name]) if name in self.names else None
            if leaves is not None:
                values[name] = self.builder.values(leaves)
        return ended, self.names, values

    def merge(self, before, touched, first, second):
        names, then_leaves, else_leaves, words = dict(before), [], [], []
        merged = []
        for name in touched:
            a, b = first[2].get(name), second[2].get(name)
            x, y = first[1].get(name, _RETURNED), second[1].get(name, _RETURNED)
            if first[0] is _RETURNED or second[0] is _RETURNED:  # the other branch's, where it can be told of
                a = b = a if second[0] is _RETURNED else b
                x = y = x if second[0] is _RETURNED else y
                if a is not None and x is not before.get(name, _RETURNED):
                    self.fail(
                        None, f"{name}: a branch beside one that returns cannot change it", UnsupportedLanguageConstruct
                    )
            if x is y or (_is_number(x) and _is_number(y) and type(x) is type(y) and x == y):
                if x is not _RETURNED:
                    names[name] = x
            elif a is None or b is None or len(a) != len(b):
                names.pop(name, None)
            else:
                merged.append((name, x, len(a)))
                then_leaves += a
                else_leaves += b
                words += [name] * len(a)
        out = iter(self.builder.if_end(then_leaves, else_leaves, words))
        for name, like, _ in merged:
            names[name] = _rebuild(like, out)
        self.names = names

    def returning_branches(self, node, condition, rest):
        """A function that returns in a branch: what follows is the other one."""
        if self.depth:
            self.fail(node, "cannot return from a function inside of a loop", UnsupportedLanguageConstruct)
        before, results = dict(self.names), []
        self.builder.if_begin(condition)
        for i, statements in enumerate((node.body, node.orelse)):
            if i:
                self.builder.if_else()
                self.names = dict(before)
            self.result = None
            if self.statements([*statements, *([] if _ends(statements) else rest)]) is not _RETURNED:
                self.result = None
            leaves = [] if self.result is None else _leaves(self.result)
            if leaves is None:
                self.fail(node, "a branch returns something that is no tensor", UnsupportedLanguageConstruct)
            results.append((self.result, self.builder.values(leaves)))
        (first, a), (second, b) = results
        if len(a) != len(b):
            self.fail(node, "both branches have to return as many values")
        out = self.builder.if_end(a, b, ["the result"] * len(a))
        self.result = None if first is None else _rebuild(first, iter(out))
        return _RETURNED

    # ---- loops ----

    def carried(self, statements):
        """Names from before that a loop changes, which have to be values of the IR."""
        names = [n for n in _assigned(statements) if n in self.names]
        return [n for n in names if _leaves(self.names[n]) is not None]

    def loop(self, node, begin, body):
        """begin(values) -> what the names are inside; body() walks it."""
        before = dict(self.names)
        carried = self.carried(node.body)
        target = node.target.id if isinstance(node, ast.For) else None
        carried = [n for n in carried if n != target]
        values = [leaf for n in carried for leaf in _leaves(self.names[n])]
        inside = begin(values)
        leaves = iter(inside)
        for n in carried:
            self.names[n] = _rebuild(self.names[n], leaves)
        self.depth += 1
        body()
        self.depth -= 1
        last, words = [], []
        for n in carried:
            now = _leaves(self.names[n]) if n in self.names else None
            count = len(_leaves(before[n]))
            if now is None or len(now) != count:
                self.fail(node, f"{n} is something else behind the loop's body than before")
            last += now
            words += [n] * count
        self.builder.loop_end(last, words)
        leaves = iter(inside)
        self.names = dict(before)
        for n in carried:
            self.names[n] = _rebuild(before[n], leaves)

    def do_For(self, node):
        if node.orelse:
            self.fail(node, "a loop with `else`", UnsupportedLanguageConstruct)
        over = self.iterable(node.iter)
        if type(over) is not tl.range:
            return self.written_out(node, over)
        if not isinstance(node.target, ast.Name):
            self.fail(node, "a loop over range() has one name", UnsupportedLanguageConstruct)
        bounds = [tl._plain(b) for b in over.bounds]
        step = bounds[2] if len(bounds) > 2 else 1
        first, last = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        if _is_value(step):
            return self.counted(node, first, last, step)

        def begin(values):
            index, *inside = self.builder.for_begin(first, last, step, values)
            self.names[node.target.id] = index
            return inside

        return self.loop(node, begin, lambda: self.body(node))

    def counted(self, node, first, last, step):
        """A step that is known when the kernel runs: how many of them, and the index of each."""
        count = tl.cdiv(last - first, step)

        def begin(values):
            index, *inside = self.builder.for_begin(0, count, 1, values)
            self.names[node.target.id] = index * step + first
            return inside

        return self.loop(node, begin, lambda: self.body(node))

    def body(self, node):
        if self.statements(node.body) is _RETURNED and not self.is_kernel:
            self.fail(node, "cannot return from a function inside of a loop", UnsupportedLanguageConstruct)

    def iterable(self, node):
        if isinstance(node, ast.Call):
            function = self.eval(node.func)
            if function is builtins.range:
                return tl.range(*[self.eval(a) for a in node.args])
        return self.eval(node)

    def written_out(self, node, over):
        if isinstance(over, tl.static_range):
            bounds = [tl._plain(b) for b in over.bounds]
            if any(_is_value(b) for b in bounds):
                self.fail(node, "static_range() takes numbers that are known when the kernel is built")
            over = builtins.range(*bounds)
        elif not isinstance(over, (tuple, list, builtins.range)):
            self.fail(
                node, "Only `range` and `static_range` iterators are currently supported", UnsupportedLanguageConstruct
            )
        for item in over:
            self.assign(node.target, item)
            if self.statements(node.body) is _RETURNED:
                return _RETURNED
        return None

    def do_While(self, node):
        if node.orelse:
            self.fail(node, "a loop with `else`", UnsupportedLanguageConstruct)

        def body():
            condition = self.eval(node.test)
            if not _is_value(condition):
                condition = self.builder.constant(bool(condition), "bool", ())
            self.builder.while_test(condition)
            self.body(node)

        self.loop(node, self.builder.while_begin, body)

    # ---- expressions ----

    def eval(self, node):
        method = getattr(self, "get_" + type(node).__name__, None)
        if method is None:
            self.fail(node, f"unsupported AST node type: {type(node).__name__}", UnsupportedLanguageConstruct)
        return tl._plain(self.step(method, node))

    def get_Constant(self, node):
        return node.value

    def get_Name(self, node):
        if node.id in self.names:
            return self.names[node.id]
        found = self.function.lookup(node.id)
        if (
            isinstance(found, (ModuleType, tl.constexpr, tl.dtype, type))
            or callable(found)
            or hasattr(found, "__dict__")
        ):
            return found
        self.fail(
            node,
            f"NameError('Cannot access global variable {node.id} from within @jit\\'ed function. Triton kernels can only access "
            "global variables that are instanstiated as constexpr (`x = triton.language.constexpr(42)`).')",
        )

    def get_Tuple(self, node):
        return tuple(self.items(node.elts))

    def get_List(self, node):
        return tuple(self.items(node.elts))

    def items(self, nodes):
        out = []
        for node in nodes:
            out += list(self.eval(node.value)) if isinstance(node, ast.Starred) else [self.eval(node)]
        return out

    def get_JoinedStr(self, node):
        return "".join(str(self.eval(v.value) if isinstance(v, ast.FormattedValue) else v.value) for v in node.values)

    def binary(self, function, x, y):
        if _is_value(x) and function is operator.pow:
            return tl.libdevice.pow(x, y)
        return function(x, y)

    def get_BinOp(self, node):
        return self.binary(_BINARY[type(node.op)], self.eval(node.left), self.eval(node.right))

    def get_UnaryOp(self, node):
        x = self.eval(node.operand)
        if isinstance(node.op, ast.Not):
            return self.builder.unary("logical_not", x) if _is_value(x) else not x
        if isinstance(node.op, ast.UAdd):
            return x
        return -x if isinstance(node.op, ast.USub) else ~x

    def get_Compare(self, node):
        left, out = self.eval(node.left), None
        for op, right in zip(node.ops, node.comparators, strict=True):
            right = self.eval(right)
            part = _COMPARE[type(op)](left, right)
            if out is not None and (_is_value(out) or _is_value(part)):
                part = tl.tensor.logical_and(tl._value(out), tl._value(part))
            elif out is not None:
                part = out and part
            left, out = right, part
        return out

    def get_BoolOp(self, node):
        is_and, out = isinstance(node.op, ast.And), None
        for i, part in enumerate(node.values):
            value = self.eval(part)
            if i == 0:
                out = value
            elif _is_value(out) or _is_value(value):
                join = tl.tensor.logical_and if is_and else tl.tensor.logical_or
                out = join(tl._value(out), tl._value(value))
            else:
                out = value
            if not _is_value(out) and bool(out) != is_and:
                return out
        return out

    def get_IfExp(self, node):
        condition = self.eval(node.test)
        if not _is_value(condition):
            return self.eval(node.body if condition else node.orelse)
        return tl.where(condition, self.eval(node.body), self.eval(node.orelse))

    def get_Attribute(self, node):
        return getattr(self.eval(node.value), node.attr)

    def get_Subscript(self, node):
        return self.eval(node.value)[self.eval(node.slice)]

    def get_Slice(self, node):
        return slice(*[None if part is None else self.eval(part) for part in (node.lower, node.upper, node.step)])

    def get_Call(self, node):
        function = self.eval(node.func)
        arguments = self.items(node.args)
        keywords = {}
        for k in node.keywords:
            keywords.update(self.eval(k.value) if k.arg is None else {k.arg: self.eval(k.value)})
        values = [*arguments, *keywords.values()]
        if hasattr(function, "parse"):
            return self.inlined(function, arguments, keywords)
        if function in (builtins.min, builtins.max) and any(map(_is_value, values)):
            out = arguments[0]
            for other in arguments[1:]:
                out = (tl.minimum if function is builtins.min else tl.maximum)(out, other)
            return out
        if function is builtins.abs and _is_value(arguments[0]):
            return tl.abs(arguments[0])
        if function in (builtins.int, builtins.float) and _is_value(arguments[0]):
            return tl.cast(arguments[0], tl.int32 if function is builtins.int else tl.float32)
        if function is builtins.print:
            return None
        ours = getattr(function, "__module__", None) == tl.__name__ or isinstance(
            getattr(function, "__self__", None), tl.tensor
        )
        if not ours and any(map(_is_value, values)) and function not in (builtins.len, builtins.isinstance):
            self.fail(
                node, f"{getattr(function, '__name__', function)!r} is no function of the language, and not marked @jit"
            )
        return function(*arguments, **keywords)

    def inlined(self, function, arguments, keywords):
        bound = inspect.signature(function.fn).bind(*arguments, **keywords)
        bound.apply_defaults()
        names = {name: tl._plain(value) for name, value in bound.arguments.items()}
        return Walker(function, self.builder, names, False).run()


def _ends(statements):
    return bool(statements) and isinstance(statements[-1], ast.Return)

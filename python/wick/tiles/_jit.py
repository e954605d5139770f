"""@jit: a function as a kernel, specialised and cached by what its arguments are; kernel[grid](...) launches it."""

import ast
import builtins
import functools
import inspect
import textwrap
from types import SimpleNamespace

import wick
from wick import _C

from . import _nodes
from . import language as tl
from ._walk import Walker
from .errors import CompilationError, OutOfResources
from .tensor_descriptor import TensorDescriptor

_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "enable_fp_fusion": True}


class KernelInterface:
    """What kernel[grid] works on: a subclass has run(*args, grid, warmup, **kwargs)."""

    def __getitem__(self, grid):
        return functools.partial(self.run, grid=grid, warmup=False)


def _is_constexpr(annotation):
    return annotation is tl.constexpr or (isinstance(annotation, str) and annotation.split(".")[-1] == "constexpr")


def _kind_of(value):
    """What an argument is specialised by: a type to be a parameter of, or ("constant", value)."""
    if isinstance(value, wick.Tensor):
        return ("pointer", str(value.dtype).rpartition(".")[2])
    if isinstance(value, TensorDescriptor):
        dtype = str(value.base.dtype).rpartition(".")[2]
        return ("descriptor", dtype, len(value.shape), tuple(map(int, value.block_shape)))
    if isinstance(value, bool):
        return ("number", "bool")
    if isinstance(value, int):
        if value == 1:  # strides, mostly
            return ("constant", 1)
        return ("number", "int32" if -(2**31) <= value < 2**31 else "int64" if value < 2**63 else "uint64")
    if isinstance(value, float):
        return ("number", "float32")
    if hasattr(value, "value") and isinstance(value, tl.constexpr):
        value = value.value
    if value is None or isinstance(value, (str, tuple, tl.dtype)) or callable(value):
        return ("constant", value)
    raise TypeError(f"{type(value).__name__} objects are no arguments of kernels")


class CompiledKernel(KernelInterface):
    """A kernel for arguments of some kinds, as warmup() and launches give it; kernel[grid](...) takes all arguments again."""

    n_regs, n_spills, num_ctas = (
        64,
        0,
        1,
    )  # what is not known before a driver has made it: Triton's programs divide by it

    def __init__(self, function, kernel, parameters, warps, stages):
        self.function, self.kernel, self._parameters, self.name = function, kernel, parameters, function.__name__
        self._operator = self._has_operator = None
        self.metadata = SimpleNamespace(name=self.name, num_warps=warps, num_stages=stages, shared=0, num_ctas=1)

    @property
    def text(self):
        """The kernel in the tile IR."""
        return self.kernel.text

    @property
    def asm(self):
        return {"tile": self.text}

    def _init_handles(self):
        """Nothing: code is made at the first launch."""

    def launch(self, grid, named):
        if callable(grid):
            grid = grid({n: tl._plain(v) for n, v in named.items()})
        grid = [grid] if isinstance(grid, int) else [tl._plain(n) for n in grid]
        if not 1 <= len(grid) <= 3:
            raise ValueError("a grid has one, two or three dims")
        values = []
        for name in self._parameters:
            value = named[name]
            values += value.parts() if isinstance(value, TensorDescriptor) else [value]
        grid = (*grid, 1, 1)[:3]
        if not _C._is_tracing():
            self._launch(grid, values)
        elif (operator := self._node()) is not None and self._may_be_copies(values):
            operator(*values, *grid)
        else:
            self._launch_apart(grid, values)

    def _may_be_copies(self, values):
        """Whether a graph may give the kernel other memory with the same values."""
        written = self._operator.written
        others = [v for n, v in enumerate(values) if n not in written and isinstance(v, wick.Tensor)]
        return _C._tiles_are_apart(len(written), *[values[n] for n in written], *others)

    def _launch(self, grid, values):
        try:
            self.kernel.launch(grid, values)
        except NotImplementedError as error:
            if str(error).startswith("out of resource"):
                raise OutOfResources(str(error)) from None
            raise

    def _launch_apart(self, grid, values):
        self._launch(grid, values)

    _launch_apart._wick_disable = True  # ends the graph

    def _node(self):
        """The operator that a graph has for a launch; None: it cannot have one."""
        if self._has_operator is None:
            self._operator = _nodes.operator_of(self)
            self._has_operator = self._operator is not None
        return self._operator

    _node._dynamo_marked_constant = True

    def run(self, *args, grid, warmup=False, **kwargs):
        named, _ = self.function._bind(args, kwargs)
        self.launch(grid, named)


class JITFunction(KernelInterface):
    """A function whose body is a kernel, or part of one."""

    def __init__(self, fn, noinline=None, do_not_specialize=None, **_):
        self.fn = fn
        self.__name__, self.__doc__, self.__module__, self.__qualname__ = (
            fn.__name__,
            fn.__doc__,
            fn.__module__,
            fn.__qualname__,
        )
        self.params = list(inspect.signature(fn).parameters.values())
        self.arg_names = [p.name for p in self.params]
        self._constexprs = [_is_constexpr(p.annotation) for p in self.params]
        self._kept = set(do_not_specialize or ())  # ints that are parameters also where they are 1
        self._defaults = [(p.name, p.default) for p in self.params if p.default is not p.empty]
        self._kernels, self._tree, self._source = {}, None, None

    # ---- the source ----

    @property
    def source(self):
        if self._source is None:
            try:
                lines, self.first_line = inspect.getsourcelines(self.fn)
            except OSError:
                raise ValueError("@jit functions should be defined in a Python file") from None
            text = textwrap.dedent("".join(lines))
            skipped = text[: text.index("def ")].count("\n") if not text.startswith("def ") else 0
            self.first_line += skipped
            self._source = "\n".join(text.split("\n")[skipped:])
        return self._source

    def parse(self):
        if self._tree is None:
            self._tree = ast.parse(self.source).body[0]
        return self._tree

    def lookup(self, name):
        """What a name of the source means outside of the function."""
        code = self.fn.__code__
        if name in code.co_freevars:
            return self.fn.__closure__[code.co_freevars.index(name)].cell_contents
        if name in self.fn.__globals__:
            return self.fn.__globals__[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(f"{name} is not defined")

    # ---- building and launching ----

    def _bind(self, args, kwargs):
        """Arguments in order, and options."""
        options = {k: tl._plain(kwargs.pop(k)) for k in list(kwargs) if k in _OPTIONS and k not in self.arg_names}
        if len(args) > len(self.arg_names):
            raise TypeError(f"{self.__name__}() takes {len(self.arg_names)} arguments but {len(args)} were given")
        named = dict(zip(self.arg_names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.arg_names:
                raise KeyError(f"Keyword argument {name} was specified but unrecognised")
            if name in named:
                raise TypeError(f"{self.__name__}() got multiple values for argument {name!r}")
            named[name] = value
        for name, value in self._defaults:
            named.setdefault(name, value)
        missing = [n for n in self.arg_names if n not in named]
        if missing:
            raise TypeError(
                f"{self.__name__}() missing {len(missing)} required argument(s): {', '.join(map(repr, missing))}"
            )
        return named, options

    def _specialise(self, named):
        """(the key, the names of parameters in order)"""
        key, parameters = [], []
        for name, constant in zip(self.arg_names, self._constexprs, strict=True):
            value = named[name]
            if constant:
                value = tl._plain(value)
                key.append(("constant", type(value), value))
                continue
            kind = _kind_of(value)
            if name in self._kept and kind == ("constant", 1):
                kind = ("number", "int32")
            key.append(kind)
            if kind[0] != "constant":
                parameters.append(name)
        return tuple(key), parameters

    def _build(self, key, warps, stages):
        builder = _C._TileBuilder(tl.tensor)
        names = {}
        for name, kind in zip(self.arg_names, key, strict=True):
            if kind[0] == "constant":
                names[name] = kind[-1]
            elif kind[0] == "descriptor":
                base, ndim = builder.parameter(kind[1], True), kind[2]
                sizes = [builder.parameter("int32", False) for _ in range(ndim)]
                strides = [builder.parameter("int64", False) for _ in range(ndim - 1)]
                names[name] = tl.block_type(base, sizes, [*strides, 1], [0] * ndim, kind[3], True)
            else:
                names[name] = builder.parameter(kind[1], kind[0] == "pointer")
        outer = getattr(tl._building, "builder", None)
        tl._building.builder = builder
        try:
            Walker(self, builder, names, True).run()
            return builder.finish(self.__name__, warps, stages)
        finally:
            if outer is None:
                del tl._building.builder
            else:
                tl._building.builder = outer

    def run(self, *args, grid, warmup=False, **kwargs):
        named, options = self._bind(args, kwargs)
        key, parameters = self._specialise(named)
        warps, stages = (options.get(name, _OPTIONS[name]) for name in ("num_warps", "num_stages"))
        kernel = self._kernel_of(key, tuple(parameters), warps, stages)
        if not warmup:
            kernel.launch(grid, named)
        return kernel

    def _kernel_of(self, key, parameters, warps, stages):
        kernel = self._kernels.get((key, warps, stages))
        if kernel is None:
            built = self._build(key, warps, stages)
            kernel = self._kernels[key, warps, stages] = CompiledKernel(self, built, parameters, warps, stages)
        return kernel

    _kernel_of._dynamo_marked_constant = True

    def warmup(self, *args, grid, **kwargs):
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def __call__(self, *args, **kwargs):
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")

    def __repr__(self):
        return f"JITFunction({self.__module__}:{self.__name__})"


def jit(fn=None, **options):
    """Makes a function a kernel: @jit, or @jit(do_not_specialize=[...])."""
    if fn is None:
        return lambda fn: JITFunction(fn, **options)
    return JITFunction(fn, **options)


__all__ = ["CompilationError", "JITFunction", "KernelInterface", "jit"]

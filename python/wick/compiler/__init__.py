"""compile() and what belongs to it: backends, disable(), reset(), is_compiling().

compiled = compile(model)            # or @compile on a function
y = compiled(x)                      # captured at the first call, replayed at the next ones
"""

import collections
import functools
import os
import re
import types
import weakref

from .. import _C
from .._names import getter as _getter

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin", "disable",
    "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting", "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe", "list_backends", "load_cache_artifacts", "load_compiled_function", "load_graph",
    "nested_compile_region", "regions", "register_backend", "reset", "save_cache_artifacts", "set_default_backend",
    "set_enable_guard_collectives", "set_stance", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "wrap_numpy",
]  # fmt: skip

_live = weakref.WeakSet()  # every Compiled, for reset()
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
limit = 8  # segments a position; then that position runs plain


# ---- backends ----


# How a graph runs that no Python backend gets: node by node, as fused kernels, these with native code
# waited for, or as is fastest of several ways that are timed, those that sum in another order among them or not.
_NODE_BY_NODE, _FUSED, _WAITED_FOR, _TUNED, _TUNED_WITH_OTHER_SUMS = range(5)
_EAGER = 5  # node by node, and each is a node of the tape of its own, as in eager calls
_backends = {"wick": _FUSED, "inductor": _FUSED, "aot_eager": _NODE_BY_NODE, "eager": _EAGER}
_OPTIONS = {"wait": bool, "max_autotune": bool, "max_autotune_gemm_backends": str}
# Options of PyTorch's compiler that programs set and that have nothing to say here.
_IGNORED_OPTIONS = {
    "coordinate_descent_tuning", "cpp_wrapper", "epilogue_fusion", "fallback_random", "shape_padding",
    "trace.enabled", "trace.graph_diagram", "triton.cudagraphs",
}  # fmt: skip


def list_backends(exclude_tags=("debug", "experimental")):
    """Names that compile(backend=...) takes, sorted."""
    return sorted(_backends)


def register_backend(compiler_fn=None, name=None, tags=()):
    """Gives a backend a name: a callable (graph_module, example_inputs) -> callable."""
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    _backends[name or compiler_fn.__name__] = compiler_fn
    return compiler_fn


_default_backend = "inductor"


def set_default_backend(backend):
    """What compile() takes where no backend is given: a name or a callable; None: "inductor" again."""
    global _default_backend
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"backend must be a string or callable, got {type(backend)}")
    _default_backend = "inductor" if backend is None else backend


def get_default_backend():
    """What compile() takes where no backend is given: "inductor" at first, which is another name of "wick"."""
    return _default_backend


def _backend_of(backend, options):
    if isinstance(backend, str):
        if backend not in _backends:
            from .._dynamo.exc import InvalidBackend

            raise InvalidBackend(
                f"Invalid backend: {backend!r}, see `wick.compiler.list_backends()` for available ones."
            )
        return _backends[backend]
    if not callable(backend):
        raise TypeError(f"backend is a name or a callable, not {backend!r}")
    if options:
        return functools.partial(backend, options=options)
    return backend


def _own_settings(engine, mode, options):
    """What _C.Compiled is told about a graph that wick runs itself."""
    options = options or {}
    for name, value in options.items():
        if name not in _OPTIONS.keys() | _IGNORED_OPTIONS:
            known = sorted(_IGNORED_OPTIONS | _OPTIONS.keys())
            raise RuntimeError(f"Unexpected optimization option {name}, known options are {known}")
        wanted = _OPTIONS.get(name, type(value))
        if type(value) is not wanted:
            raise RuntimeError(
                f"Unexpected type of attr {name}, got {type(value).__name__} should be {wanted.__name__}"
            )
    if engine == _EAGER:
        return {"mode": _NODE_BY_NODE, "keeps_tape": True}
    if engine != _FUSED:
        return {"mode": engine}
    if options.get("max_autotune", False) or (mode or "").startswith("max-autotune"):
        backends = options.get("max_autotune_gemm_backends", "ATEN,CPP").upper().split(",")
        return {"mode": _TUNED_WITH_OTHER_SUMS if "ATEN" in map(str.strip, backends) else _TUNED}
    return {"mode": _WAITED_FOR if options.get("wait", False) else _FUSED}


class _Backend:
    """A backend of Python: its exceptions are BackendCompilerFailed, or suppressed."""

    def __init__(self, function):
        self.function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, graph_module, example_inputs):
        from .._dynamo import config, exc

        try:
            return self.function(graph_module, example_inputs)
        except exc.TorchDynamoException:
            raise
        except Exception as error:
            if config.suppress_errors:
                return graph_module.forward
            raise exc.BackendCompilerFailed(self, error).with_traceback(error.__traceback__) from None


def _settings(backend, mode, options, fullgraph, dynamic):
    options = dict(options or {})
    filter = options.pop("guard_filter_fn", None)
    made_by = _backend_of(backend, options)
    settings = {"backend": _Backend(made_by)} if callable(made_by) else _own_settings(made_by, mode, options)
    if filter is not None:
        from .._dynamo.guard_filters import asking

        settings["guard_filter"] = asking(filter)
    return {**settings, "fullgraph": fullgraph, "dynamic": _sizes(dynamic), "counts": _counts()}


# ---- compile ----


def set_limit(value):
    """Segments a position, for compiled functions that are there and that will be."""
    global limit
    limit = int(value)
    for made in list(_live):
        made.limit = limit


def _sizes(dynamic):
    """1: symbols at once, 0: never, -1: when they have been seen to change."""
    from .._dynamo import config

    if dynamic is not None:
        return int(bool(dynamic))
    if not config.assume_static_by_default:
        return 1
    return -1 if config.automatic_dynamic_shapes else 0


def _counts():
    """Sizes (1) and integers (2) that values decide are symbols of the graph; with fullgraph they are in any case."""
    from .._dynamo import config

    return config.capture_dynamic_output_shape_ops + 2 * config.capture_scalar_outputs


def _compiled(function, settings):
    made = _C.Compiled(function, limit=limit, **settings)
    _live.add(made)
    return made


def _of_function(function, settings):
    made = _compiled(function, settings)
    functools.update_wrapper(made, function)
    made._wick_original = function
    return made


@functools.lru_cache(maxsize=None)
def _class_of_compiled(kind):
    """The class of compiled modules of class `kind`: the same in all but how forward is called."""

    def forward(self, *args, **kwargs):
        return self.__dict__["_compiled_forward"](*args, **kwargs)

    def reduce(self, protocol=None):
        return compile, (self.__dict__["_orig_mod"],)

    def getattr_of_original(self, name):
        return getattr(self.__dict__["_orig_mod"], name)

    def setattr_of_original(self, name, value):
        setattr(self.__dict__["_orig_mod"], name, value)

    def delattr_of_original(self, name):
        delattr(self.__dict__["_orig_mod"], name)

    members = {"forward": forward, "__reduce_ex__": reduce, "__getattr__": getattr_of_original}
    members.update(__setattr__=setattr_of_original, __delattr__=delattr_of_original)
    members.update(__module__=kind.__module__, __qualname__=kind.__qualname__)
    return type(kind.__name__, (kind,), members)


@functools.lru_cache(maxsize=None)
def _shared_names():
    """Parameters, parts and hooks stand in containers that a compiled module has, too; all else it asks the original."""
    from ..nn import Module

    return frozenset(name for name, value in vars(Module()).items() if isinstance(value, (dict, set)))


def _node_by_node(module, settings):
    """forward, compiled at the first call, whose results have the nodes on the tape that eager code gives them."""
    made = []

    def forward(*args, **kwargs):
        if not made:
            made.append(_compiled(module.forward, {**settings, "keeps_tape": True}))
        return made[0](*args, **kwargs)

    return forward


def _of_module(module, settings):
    """Another module over the same parameters and attributes, of a class that isinstance takes for the same."""
    kind = _class_of_compiled(type(module))
    made = kind.__new__(kind)
    made.__dict__.update((name, module.__dict__[name]) for name in _shared_names() if name in module.__dict__)
    made.__dict__["_orig_mod"] = module
    made.__dict__["_compiled_forward"] = _compiled(module.forward, settings)
    made.__dict__["_forward_node_by_node"] = _node_by_node(module, settings)
    made.__dict__["dynamo_ctx"] = functools.partial(_of_function, settings=settings)  # compiles other methods alike
    return made


def compile(model=None, *, fullgraph=False, dynamic=None, backend=None, mode=None, options=None, disable=False):
    """A function, or a module, whose calls are captured into graphs once and replayed afterwards.

    model: a function, method or nn.Module; None: gives a decorator. fullgraph: an error instead of a graph break.
    dynamic: None: sizes of tensors and integers that were seen to change become symbols, and floats inputs, of the graph
    when it is captured again; True: sizes and integer arguments are symbols at once; False: everything stays a number.
    Sizes 0 and 1 are always numbers. A backend of one's own gets the others as arguments of its graph.
    backend: a name of compiler.list_backends(), or a callable (graph_module, example_inputs) -> callable; None: the one of
    set_default_backend().
    mode: "default" and "reduce-overhead": nothing waits, native code comes from the background; "max-autotune": the
    first call of a graph compiles it in several ways, times them and keeps the fastest, which is remembered for the next
    process. options: {"wait": True}: the first call waits for native code; {"max_autotune": True}: as the mode, whose
    convolutions may be Winograd's, and these and matrix products oneDNN's where it is installed, if that is faster; they
    then differ in the last bits; {"max_autotune_gemm_backends": "CPP"} beside it: only ways with eager mode's bits.
    {"guard_filter_fn": f}: of a capture's guards those are not checked for which f(entries) gives False.
    disable: gives the model as it is.

        @compile
        def step(x, y): ...
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if model is None:
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
        )
    if disable or _C._is_compiling():  # in a region that is captured it is looked through
        return model
    settings = _settings(_default_backend if backend is None else backend, mode, options, fullgraph, dynamic)
    from ..nn import Module

    if isinstance(model, Module):
        return _of_module(model, settings)
    if isinstance(model, _C.Compiled):
        model = model.function
    if isinstance(model, type):
        raise TypeError("a class cannot be compiled: compile its methods")
    model = _substitutes.get(model, model) if _substitutes else model
    if not hasattr(model, "__code__") and not hasattr(model, "__func__"):
        if not callable(model):
            raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
        call = type(model).__call__  # an object with __call__ written in Python
        if not hasattr(call, "__code__"):
            return model  # C code has nothing to capture
        model = call.__get__(model)
    return _of_function(model, settings)


# ---- stages as text ----


def load_graph(path, constants=(), compiled=False):
    """A stage of the compiler from its text, to look at and to run: a file of WICK_DEBUG_DIR, after any pass.

    The graph is called with its inputs as tensors, of the dtypes, sizes and strides that .inputs tells, and gives the
    tuple of its outputs; inputs that it mutates are written; str() is its text. It runs operator by operator, fused
    kernels on tier 0. compiled: the passes run over it first, as over a captured graph. Tensors of more than 64 elements
    that the graph holds are told by hash in the text: they come from the file of constants beside it, and from
    `constants`.

        graph = compiler.load_graph("stages/graph_0001.12.fuse.txt")
        outputs = graph(x, w)
    """
    path = os.fspath(path)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    beside = re.sub(r"(graph_\d+)\.\d+\.\w+\.txt$", r"\1.constants.safetensors", path)
    if beside != path and os.path.exists(beside):
        from ..safetensors import load_file

        constants = [*constants, *load_file(beside).values()]
    return _C.LoadedGraph(text, constants, compiled)


# ---- around it ----


def disable(fn=None, recursive=True, *, reason=None):
    """Keeps a function out of captured regions: a call of it ends the graph and runs as it is.

    reason: what the break, or the error of fullgraph=True, says beside that.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(fn, _C.Compiled):
        fn = fn.function

    @functools.wraps(fn)
    def disabled(*args, **kwargs):
        return fn(*args, **kwargs)

    disabled._wick_disable = reason or True
    return disabled


def reset():
    """Forgets everything that was captured."""
    for made in list(_live):
        made.reset()


def is_compiling():
    """Whether the code that asks is being captured."""
    return _C._is_compiling()


def is_dynamo_compiling():
    """The same as is_compiling()."""
    return _C._is_compiling()


def is_exporting():
    """Whether the code that asks is being exported: not here."""
    return False


def allow_in_graph(fn):
    """Functions need no permission here: Python code is captured, operators record themselves."""
    return fn


def assume_constant_result(fn):
    """A decorator: what the function gives when it is captured is a constant, and it is not called again."""
    fn._dynamo_marked_constant = True
    return fn


def cudagraph_mark_step_begin():
    """Nothing to mark: results of CUDA graphs are tensors of their own."""


def nested_compile_region(fn=None, *, options=None, max_reuse_entries=8, reuse_hash_fn=None):
    """Marks a part of a model that occurs often. Equal kernels are compiled once in any case, so it is the function itself."""
    if options is not None:
        raise RuntimeError("nested_compile_region config is an experimental feature for testing only.")
    return fn if fn is not None else lambda function: function


_guard_collectives = False


def set_enable_guard_collectives(enabled):
    """Accepted for compatibility: each rank captures by itself. Gives what it was before."""
    global _guard_collectives
    before, _guard_collectives = _guard_collectives, bool(enabled)
    return before


def wrap_numpy(fn):
    """A function of NumPy arrays as one of tensors.

    @wrap_numpy
    def total(a): return np.sum(a * a)
    """
    from ..utils import _pytree

    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        import numpy

        args, kwargs = _pytree.tree_map_only(_C.Tensor, lambda x: x.numpy(), (args, kwargs))
        return _pytree.tree_map_only(numpy.ndarray, _C.as_tensor, fn(*args, **kwargs))

    return wrapped


# ---- functions in the place of others ----


def _count_elements(mapping, iterable):
    """What collections.Counter counts with: item by item, so that the counts it has are read one by one."""
    count = mapping.get
    for item in iterable:
        mapping[item] = count(item, 0) + 1


_own_substitutes = {collections._count_elements: _count_elements}
_substitutes = dict(_own_substitutes)
_C._set_substitutes(_substitutes)


def _shape_of_signature(signature):
    """What has to be the same of two functions: names and defaults, those that only go by name apart."""
    parameters = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    places = tuple(p.name for p in parameters if p not in by_name)
    return places, {p.name for p in by_name}, {p.name: p.default for p in parameters}


def _check_signatures(original, substitute):
    import inspect  # which takes a while to load

    try:
        first = inspect.signature(original)
    except ValueError:
        return  # C code that does not say
    second = inspect.signature(substitute)
    shapes, anything = [_shape_of_signature(s) for s in (first, second)], ((), set(), {})
    if shapes[0] != shapes[1] and anything not in shapes:
        raise TypeError(f"Signature mismatch between {original} and {substitute}: {first} != {second}")


def substitute_in_graph(original_fn, *, can_constant_fold_through=False, skip_signature_check=False):
    """A decorator: the Python function is captured in the place of `original_fn`, C code mostly, which eager code calls.

    @substitute_in_graph(operator.indexOf)
    def index_of(a, b, /):
        for i, item in enumerate(a):
            if item is b or item == b:
                return i
        raise ValueError("sequence.index(x): x not in sequence")
    """
    kinds = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
    if not isinstance(original_fn, kinds):
        raise TypeError(f"substitute_in_graph expects a function but got {type(original_fn)!r}")

    def register(traceable_fn):
        if not isinstance(traceable_fn, kinds):
            raise TypeError(f"@substitute_in_graph(...) expects a function but got {type(traceable_fn)!r}")
        if not skip_signature_check:
            _check_signatures(original_fn, traceable_fn)
        if _substitutes.get(original_fn) is not _own_substitutes.get(original_fn):
            raise ValueError(f"Duplicate polyfilled object {original_fn}")
        _substitutes[original_fn] = traceable_fn
        _C._set_substitutes(_substitutes)

        @functools.wraps(traceable_fn)
        def wrapped(*args, **kwargs):
            return original_fn(*args, **kwargs)

        return wrapped

    return register


# ---- which guards to keep, for options={"guard_filter_fn": ...} ----


def keep_portable_guards_unsafe(guard_entries):
    """Those on tensors that are no globals, on sizes and on global state."""
    return [
        entry.guard_type in ("GLOBAL_STATE", "SHAPE_ENV")
        or (entry.guard_type == "TENSOR_MATCH" and not entry.is_global)
        for entry in guard_entries
    ]


def keep_tensor_guards_unsafe(guard_entries, keep_parameters=False):
    """Those on tensors, on parameters only when asked for."""
    from ..nn import Parameter

    return [
        entry.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(entry.value, Parameter))
        for entry in guard_entries
    ]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries):
    """All but those on modules of torch.nn."""
    return [not entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries):
    """All but those on modules."""
    return [not entry.orig_guard.source.is_unspecialized_nn_module() for entry in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries):
    """All but those on globals."""
    return [not entry.is_global for entry in guard_entries]


def skip_all_guards_unsafe(guard_entries):
    """None."""
    return [False for _ in guard_entries]


# ---- native code for other machines ----


class CacheInfo:
    """What save_cache_artifacts() has packed, or load_cache_artifacts() has put in place: artifacts["native"] has names."""

    _HEAD, _NAME, _END = 16, 32, 32  # bytes: the mark, a name, the hash behind all

    def __init__(self, data):
        names, at = [], self._HEAD
        while at < len(data) - self._END:
            names.append(data[at : at + self._NAME].hex())
            at += self._NAME + 8 + int.from_bytes(data[at + self._NAME : at + self._NAME + 8], "little")
        self.artifacts = {"native": names}

    def empty(self):
        return not self.artifacts["native"]


def save_cache_artifacts():
    """(bytes, CacheInfo): native code of all that this process has compiled or found in the cache; None: there is none.

    Code that is still being compiled is not in it: see wait_for_native() of compiled functions.

        open("model.wick", "wb").write(save_cache_artifacts()[0])
    """
    data = _C._save_native()
    return None if data is None else (data, CacheInfo(data))


def load_cache_artifacts(serialized_artifacts):
    """Puts into the cache what save_cache_artifacts() gave in a process of the same build of wick; CacheInfo, or None
    where it is something else. It is code that this process will run: load only what you trust.

        load_cache_artifacts(open("model.wick", "rb").read())
    """
    return CacheInfo(serialized_artifacts) if _C._load_native(serialized_artifacts) >= 0 else None


def load_compiled_function(file, *, f_globals=None, external_data=None):
    """The function or module that torch.jit.save() has written to a file object, as fused kernels.

    with open("model.pt", "rb") as file:
        run = load_compiled_function(file)
    """
    from ..jit import load, optimize_for_inference

    return optimize_for_inference(load(file).eval())


# ---- stances ----

_STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile")
_stance = ("default", None)  # and the backend that is forced


class set_stance:  # noqa: N801  as PyTorch has it
    """What calls of compiled functions do from here on; inside of a `with` block; or while a decorated function runs.

    stance: "default": they are captured and replayed. "force_eager": they run as they are. "eager_on_recompile": what was
    captured is used, nothing more is captured. "fail_on_recompile": where that would be needed is an error, a
    RuntimeError that says which guard did not hold. "eager_then_compile": the first call of each runs as it is; sizes that
    are others in the second are symbols in its graph. "aot_eager_then_compile" is the same here.
    force_backend: with "default", in the place of the backend that functions were compiled with. Guards are always checked,
    so skip_guard_eval_unsafe changes nothing.

        with set_stance("fail_on_recompile"):
            model(batch)
    """

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        known = stance.removeprefix("aot_") if stance == "aot_eager_then_compile" else stance
        if known not in _STANCES:
            raise RuntimeError(f"invalid torch.compile stance '{stance}'")
        if force_backend is not None:
            if stance != "default":
                raise RuntimeError("non-default stance cannot have force_backend set")
            _backend_of(force_backend, None)
        self._wanted = (known, force_backend)
        self._before = _take_stance(self._wanted)

    def __enter__(self):
        _take_stance(self._wanted)

    def __exit__(self, *exception):
        _take_stance(self._before)

    def __call__(self, function):
        _take_stance(self._before)

        @functools.wraps(function)
        def inside(*args, **kwargs):
            before = _take_stance(self._wanted)
            try:
                return function(*args, **kwargs)
            finally:
                _take_stance(before)

        inside._wick_disable = True
        return inside


def _take_stance(wanted):
    """Gives the one before."""
    global _stance
    before, _stance = _stance, wanted
    stance, backend = wanted
    _C._set_stance(_STANCES.index(stance))
    _C._set_forced_compiled(None if backend is None else functools.partial(_with_backend, backend))
    return before


def _with_backend(backend, compiled):
    """Another Compiled of the same function, kept with the first one."""
    own = compiled.__dict__.setdefault("_with_backends", {})
    if backend not in own:
        settings = _settings(backend, None, None, compiled.fullgraph, None)
        own[backend] = _compiled(compiled.function, {**settings, "dynamic": compiled.dynamic})
    return own[backend]


def regions():
    """What has been found hot in a program under `python -m wick --compile`, oldest first.

    Each is (name, file, line, kind, compiled): of the function, "loop" or "function", and what has its report().
    """
    from .._regions import regions as found

    return found()


_missing = _getter(__name__)


def __getattr__(name):
    if name != "config":
        return _missing(name)
    import importlib

    return importlib.import_module(".config", __name__)

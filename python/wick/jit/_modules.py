"""ScriptModule, ScriptFunction and their kin: what script(), trace() and load() give.

script() gives the Python that it is given, which notes its first call, so that save() can capture that one, or else one
that the first layer is made for; trace() runs the graph of its example, and the Python where there is no such graph; load() has programs alone.
Tests: tests/python/test_jit.py.
"""

import functools

from .. import _C
from ..nn import Module
from ._guesses import guesses
from ._programs import CannotSave, State, captures, choose, flatten, unflatten

__all__ = [
    "Example", "LoadedModule", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "TopLevelTracedModule",
    "TracedModule", "frozen", "programs_of", "stand_in",
]  # fmt: skip


# ---- what was called ----


class Example:
    """The arguments of a call, without their values: enough to capture it again."""

    def __init__(self, args, kwargs):
        tensors = []
        self.structure = flatten([list(args), dict(kwargs)], tensors)
        self.kinds = [(tuple(t.shape), t.dtype, t.requires_grad) for t in tensors]

    def arguments(self):
        """(args, kwargs) with tensors of zeros."""
        return unflatten(
            self.structure, [_C.zeros(size, dtype=dtype, requires_grad=grad) for size, dtype, grad in self.kinds]
        )


def _note(examples, training, args, kwargs):
    try:
        examples[training] = Example(args, kwargs)
    except CannotSave as error:
        examples[training] = error


def _captured(function, module, example, training):
    if isinstance(example, CannotSave):
        raise example
    args, kwargs = example.arguments()
    return captures(function, module, args, kwargs, training)


def _cannot_save(what, why):
    return RuntimeError(
        f"{what} cannot be saved: {why}. What wick saves is the graph of a call; Python that no graph says can be saved as "
        "a state_dict, beside the program's text"
    )


_NOT_CALLED = (
    "it was scripted and not called yet, and its first layer does not say what it is called with, so that no call is known "
    "whose graph could be written. Call it once before "
    "save(), or give script() the example_inputs, or use trace()"
)


# ---- functions ----


class ScriptFunction:
    """A function that was scripted or traced: the function, which notes its first call, or its program."""

    __module__ = "torch.jit"

    def __init__(self, function, programs=()):
        functools.update_wrapper(self, function)
        self._programs, self._examples, self._why = list(programs), {}, None

    def __call__(self, *args, **kwargs):
        if not _C._is_compiling() and not self._examples and not self._programs:
            _note(self._examples, None, args, kwargs)
        chosen = choose(self._programs, args, kwargs, {}) if not _C._is_compiling() else None
        if chosen and chosen[2]:
            return chosen[0].run(chosen[1], {})
        return self.__wrapped__(*args, **kwargs)

    def __reduce__(self):
        return self.__qualname__

    name = property(lambda self: self.__name__, doc="The function's name.")
    graph = property(lambda self: _text(programs_of(self)), doc="The text of its graph.")
    code = graph

    def save(self, f, _extra_files=None):
        """Writes it to a file: jit.save(self, f)."""
        from ._archive import save

        save(self, f, _extra_files)


# ---- modules ----


def _text(programs):
    return programs["forward"][0].text


class ScriptModule(Module):
    """A module whose forward can be saved as a graph. A class that programs derive from as well."""

    def save(self, f, _extra_files=None, **unused):
        """Writes it to a file: jit.save(self, f)."""
        from ._archive import save

        save(self, f, _extra_files)

    @property
    def original_name(self):
        """The name of the class that it was made of."""
        return self.__dict__.get("_original_name") or type(self).__name__

    @property
    def graph(self):
        """The text of forward's graph."""
        return _text(programs_of(self))

    @property
    def code(self):
        """The same as graph: the text that is saved."""
        return _text(programs_of(self))


class RecursiveScriptModule(ScriptModule):
    """What script() makes of modules, and what load() gives."""


class TracedModule(ScriptModule):
    """What trace() makes of modules."""


class TopLevelTracedModule(TracedModule):
    """What trace() gives."""


_KINDS = {"script": RecursiveScriptModule, "trace": TopLevelTracedModule}


class _StandIn:
    """What is the same for all modules that stand for another one, `_original`: over its parameters and attributes."""

    def forward(self, *args, **kwargs):
        return self._call_method("forward", args, kwargs)

    def __getattr__(self, name):
        own = self.__dict__
        if name in own["_programs"]:
            return lambda *args, **kwargs: self._call_method(name, args, kwargs)
        return getattr(own["_original"], name)

    def __setattr__(self, name, value):
        setattr(self.__dict__["_original"], name, value)

    def __delattr__(self, name):
        delattr(self.__dict__["_original"], name)

    def __reduce_ex__(self, protocol):
        own = self.__dict__
        return stand_in, (own["_kind"], own["_original"], own["_programs"], own["_examples"], own["_why"])

    def _call_method(self, name, args, kwargs):
        own = self.__dict__
        module = own["_original"]
        if not _C._is_compiling():
            chosen = choose(own["_programs"].get(name, ()), args, kwargs, own["_state"])
            if chosen and chosen[2]:
                return chosen[0].run(chosen[1], own["_state"])
            if own["_kind"] == "script" and module.training not in own["_examples"]:
                _note(own["_examples"], module.training, args, kwargs)
        return getattr(module, name)(*args, **kwargs)


@functools.lru_cache(maxsize=None)
def _class_over(kind, original):
    return type(original.__name__, (_StandIn, _KINDS[kind], original), {"__module__": original.__module__})


@functools.lru_cache(maxsize=None)
def _containers():
    return frozenset(name for name, value in vars(Module()).items() if isinstance(value, (dict, set)))


def stand_in(kind, module, programs=None, examples=None, why=None):
    """A module that was scripted ("script") or traced ("trace"). why: there is no graph of it."""
    kind_of = _class_over(kind, type(module))
    made = kind_of.__new__(kind_of)
    made.__dict__.update((name, module.__dict__[name]) for name in _containers() if name in module.__dict__)
    made.__dict__.update(
        _kind=kind, _original=module, _programs=programs or {}, _examples=examples or {}, _why=why, _state=State(module),
    )  # fmt: skip
    return made


# ---- what can be saved of them ----


def _from_examples(function, module, examples):
    """A program for each mode that has an example; of a module also for the other mode, where that one works."""
    if not examples:
        return _from_guesses(function, module)
    programs = []
    for training in [*examples, *({True, False} - examples.keys() if module is not None else ())]:
        example = examples.get(training, next(iter(examples.values())))
        try:
            programs += _in_mode(function, module, example, training)
        except Exception:
            if training in examples:
                raise
    return programs


def _from_guesses(function, module):
    """The same of a module that was not called: a program for each call that it seems to be made for."""
    programs = []
    for tensor in guesses(module) if module is not None else ():
        for training in (True, False):
            try:
                programs += _in_mode(function, module, Example((tensor,), {}), training)
            except Exception:  # it is made for another
                pass
    if not programs:
        raise CannotSave(_NOT_CALLED)
    return programs


def _in_mode(function, module, example, training):
    if isinstance(example, CannotSave):
        raise example
    args, kwargs = example.arguments()
    if module is None or module.training == training:
        return captures(function, module, args, kwargs, training)
    modes = [(part, part.training) for part in module.modules()]
    module.train(training)
    try:
        return captures(function, module, args, kwargs, training)
    finally:
        for part, mode in modes:
            part.training = mode


def programs_of(made):
    """{method: programs} of what script(), trace() or load() gave; a RuntimeError where there is no graph."""
    own = made.__dict__
    try:
        if own.get("_why"):
            raise CannotSave(own["_why"])
        if isinstance(made, ScriptFunction):
            return {"forward": made._programs or _from_examples(made.__wrapped__, None, made._examples)}
        if own.get("_programs"):
            return own["_programs"]
        if "_original" not in own:
            raise CannotSave("it is a module of a class of its own: script() or trace() it")
        return {"forward": _from_examples(own["_original"].forward, own["_original"], own["_examples"])}
    except CannotSave as error:
        name = made.__name__ if isinstance(made, ScriptFunction) else made.original_name
        raise _cannot_save(name, error) from None


# ---- modules that are programs alone ----


class LoadedModule(RecursiveScriptModule):
    """What a file holds: a tree of parameters and buffers, and the programs of the whole."""

    def __init__(self, original_name):
        super().__init__()
        self.__dict__.update(_original_name=original_name, _programs={}, _compiled=False)

    def extra_repr(self):
        """The class that it was."""
        return f"original_name={self.original_name}"

    def _get_name(self):
        return "RecursiveScriptModule"

    def forward(self, *args, **kwargs):
        """What the saved graph gives."""
        return self._call_method("forward", args, kwargs)

    def __getattr__(self, name):
        if name in self.__dict__.get("_programs", ()):
            return lambda *args, **kwargs: self._call_method(name, args, kwargs)
        return super().__getattr__(name)

    def __deepcopy__(self, memo):
        from ._archive import copied

        return copied(self)

    def _call_method(self, name, args, kwargs):
        own = self.__dict__
        if name not in own["_programs"]:
            raise NotImplementedError(
                f"{self.original_name} is a part of a saved module, whose graphs are of the whole"
            )
        state = own.get("_state") or own.setdefault("_state", State(self))
        for_mode = [p for p in own["_programs"][name] if p.training in (None, self.training)]
        chosen = choose(for_mode, args, kwargs, state)
        if not chosen:
            raise RuntimeError(self._refusal(name, for_mode))
        program, tensors, fits = chosen
        try:
            return program.run(tensors, state, own["_compiled"])
        except ValueError as error:
            if fits:
                raise
            raise RuntimeError(f"{self.original_name}.{name}() was saved for other sizes: {error}") from None

    def _refusal(self, name, for_mode):
        if not for_mode:
            mode = "train" if self.training else "eval"
            return f"{self.original_name}.{name}() was saved in the other mode: there is no graph for {mode}()"
        taken = ", ".join(f"{key}={value}" for key, value in for_mode[0].arguments["dict"].items())
        return f"{self.original_name}.{name}() was saved for a call of other arguments: {taken}"


def frozen(made, compiled=False):
    """A LoadedModule without parameters: what it computes with are attributes of its programs."""
    import copy

    state = made.__dict__.get("_state") or State(made)
    result = LoadedModule(made.original_name)
    result.__dict__["_compiled"] = compiled
    for name, programs in programs_of(made).items():
        result._programs[name] = [copy.copy(p) for p in programs if not p.training]
        for program in result._programs[name]:
            tensors = {key: value.detach().clone() for key, value in state.items() if key in program.inputs}
            program.attributes = {**program.attributes, **tensors}
    return result.eval()

"""What a saved program is: the graph of one call of a function or module, as text, and how its values come and go.

A call is captured as compile() captures one (docs/capture.md), with a symbol for each size that may change. The text of
the graph, the guards of its sizes, and the structure of arguments and results are a Program: plain data that can be
written to a file and runs without the Python that it came from. What a graph cannot say (a branch on a value, an
attribute that is no number) is CannotSave, with the reason. Tests: tests/python/test_jit.py.
"""

import inspect

from .. import _C
from ..compiler import compile
from ..random import fork_rng

__all__ = ["CannotSave", "Program", "State", "captures", "choose", "flatten", "tensor_count", "unflatten"]


class CannotSave(RuntimeError):
    """No graph says what the program does."""


# ---- structure: what a graph does not hold, as JSON ----


def flatten(value, tensors):
    """The structure of a value; its tensors are appended to the list.

    >>> flatten({"x": wick.ones(1), "scale": 2.0}, [])
    {'dict': {'x': {'tensor': 0}, 'scale': {'value': 2.0}}}
    """
    if isinstance(value, _C.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: flatten(item, tensors) for key, item in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [flatten(item, tensors) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    if isinstance(value, _C.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    raise CannotSave(f"a value of the type {type(value).__name__} is neither a tensor nor a number or text")


def unflatten(structure, tensors):
    """The value again. What is no structure is a ValueError."""
    try:
        ((kind, content),) = structure.items()
        if kind == "tensor" and 0 <= content < len(tensors):
            return tensors[content]
        if kind == "dict":
            return {key: unflatten(item, tensors) for key, item in content.items()}
        if kind in ("list", "tuple"):
            return (list if kind == "list" else tuple)(unflatten(item, tensors) for item in content)
        if kind == "value" and (content is None or isinstance(content, (bool, int, float, str))):
            return content
        if kind == "dtype" and isinstance(getattr(_C, content), _C.dtype):
            return getattr(_C, content)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"no structure of values: {error}") from None
    raise ValueError(f"no structure of values: {str(structure)[:100]}")


def tensor_count(structure):
    """How many tensors a structure needs: one more than the largest number in it."""
    ((kind, content),) = structure.items()
    if kind in ("list", "tuple", "dict"):
        return max(map(tensor_count, content.values() if kind == "dict" else content), default=0)
    return content + 1 if kind == "tensor" else 0


def _holds_integer(structure):
    kind, content = next(iter(structure.items()))
    if kind in ("list", "tuple", "dict"):
        return any(map(_holds_integer, content.values() if kind == "dict" else content))
    return kind == "value" and type(content) is int


# ---- programs ----


class Program:
    """The graph of a call. `text`, `guards` and `constants` are LoadedGraph's.

    parameters: (name, kind, has a default, its structure) of the function. arguments, results: structures. inputs: one
    of the graph each, a name of the module's state or the number of an argument's tensor. outputs: where each tensor
    of the results comes from, an output of the graph, or -1 - i: the argument's tensor i. training: the mode of the
    module that it is for; None: any. attributes: further tensors by name that the graph reads.
    """

    fields = "text", "guards", "parameters", "arguments", "results", "inputs", "outputs", "training"

    def __init__(self, constants=(), attributes=None, **fields):
        self.constants, self.attributes = list(constants), attributes or {}
        for name in self.fields:
            setattr(self, name, fields[name])
        self._graphs = {}

    def __deepcopy__(self, memo):
        return self

    def graph(self, compiled=False):
        """The graph, to be called; compiled: fused, for inference."""
        if compiled not in self._graphs:
            text = self.text.replace(" = taped ", " = ") if compiled else self.text
            self._graphs[compiled] = _C.LoadedGraph(text, self.constants, compiled, self.guards)
        return self._graphs[compiled]

    def signature(self):
        """The function's inspect.Signature."""
        kinds = {kind.name: kind for kind in inspect._ParameterKind}
        return inspect.Signature(
            [
                inspect.Parameter(name, kinds[kind], default=unflatten(default, []) if optional else inspect._empty)
                for name, kind, optional, default in self.parameters
            ]
        )

    def bind(self, args, kwargs):
        """The tensors of a call's arguments; None when they are of another structure than the captured ones."""
        tensors = []
        same = flatten(_bound(self.signature(), args, kwargs), tensors) == self.arguments
        return tensors if same else None

    def inputs_of(self, tensors, state):
        """What the graph is called with; `state`: the module's tensors by name."""
        return [tensors[i] if isinstance(i, int) else self.attributes[i] if i in self.attributes else state[i]
                for i in self.inputs]  # fmt: skip

    def fits(self, tensors, state):
        """Whether the graph is for tensors of these sizes and dtypes."""
        return self.graph().fits(*self.inputs_of([t.contiguous() for t in tensors], state))

    def run(self, tensors, state, compiled=False):
        """What the function gives for the tensors of its arguments."""
        near = [t.contiguous() for t in tensors]
        made = self.graph(compiled)(*self.inputs_of(near, state))
        for given, used in zip(tensors, near, strict=True):
            if used is not given and used._version:  # the graph writes it
                given.copy_(used)
        return unflatten(self.results, [made[i] if i >= 0 else tensors[-1 - i] for i in self.outputs])


def _bound(signature, args, kwargs):
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def places_of(module):
    """{name: (container, key)} of a module's parameters and buffers, all names of those that have several."""
    places = {}
    for path, part in module.named_modules(remove_duplicate=False) if module is not None else ():
        for container in (part._parameters, part._buffers):
            for key, tensor in container.items():
                if tensor is not None:
                    places[f"{path}.{key}" if path else key] = container, key
    return places


class State:
    """A module's tensors by name, as they are when they are asked for."""

    def __init__(self, module):
        self._places = places_of(module)

    def __getitem__(self, name):
        container, key = self._places[name]
        return container[key]

    def items(self):
        """(name, tensor) of each."""
        return [(name, self[name]) for name in self._places]


# ---- capturing ----


class _Seen:
    """The backend that is given the graph, and tells which of its outputs a result is: a replay gives stand-ins."""

    def __init__(self):
        self.modules, self.examples, self.all_examples, self.stand_ins, self.given = [], [], [], [], ()

    def __call__(self, module, examples):
        self.modules.append(module)
        self.all_examples = list(examples)  # sizes among them
        self.examples.append([e for e in examples if isinstance(e, _C.Tensor)])
        return self.replay

    def replay(self, *inputs):
        self.given = inputs
        (outputs,) = self.modules[0].graph.output_node().args
        self.stand_ins = [_C.empty(0) for _ in outputs]
        return self.stand_ins


class _Untouched:
    """What a call changes of the module and of the random numbers is put back."""

    def __init__(self, module):
        self.module, self.rng = module, fork_rng(devices=())

    def __enter__(self):
        self.rng.__enter__()
        self.buffers = [(b, b.clone()) for b in self.module.buffers()] if self.module is not None else []

    def __exit__(self, *exception):
        with _C.no_grad():
            for buffer, before in self.buffers:
                buffer.copy_(before)
        return self.rng.__exit__(*exception)


def _own(tensor):
    """A tensor of the same kind in memory of its own, side by side; no history."""
    return tensor.detach().contiguous().clone().requires_grad_(tensor.requires_grad)


def _parameters_of(signature):
    rows = []
    for p in signature.parameters.values():
        try:
            default = flatten(p.default, []) if p.default is not p.empty else None
        except CannotSave:
            default = {"value": None}
        rows.append([p.name, p.kind.name, p.default is not p.empty, default])
    return rows


def capture(function, module, args, kwargs, training=None):
    """The Program of function(*args, **kwargs), whose parameters and buffers are the module's (None: it has none).

    The call is made, and leaves the module, the random numbers and the arguments as they were.
    """
    signature = inspect.signature(function)
    tensors = []
    arguments = flatten(_bound(signature, args, kwargs), tensors)

    order = []
    given_as = flatten([list(args), kwargs], order)  # a decorator may tell what is given by name from the rest
    places = [_position(t, tensors) for t in order]

    def call(*tensors):
        args, kwargs = unflatten(given_as, [tensors[i] for i in places])
        return function(*args, **kwargs)

    with _Untouched(module), _C.enable_grad():
        for dynamic in (True, False):  # an integer among the results may be a size
            seen, given = _Seen(), [_own(t) for t in tensors]
            compiled = compile(call, backend=seen, fullgraph=True, dynamic=dynamic)
            try:
                structure = flatten(compiled(*given), [])
            except _C.Unsupported as error:
                raise CannotSave(str(error).replace("fullgraph=True, but the graph breaks here: ", "", 1)) from None
            if not dynamic or not _holds_integer(structure):
                break
        report = compiled.report()
        if len(report) != 1 or report[0]["end"] != "return" or len(seen.modules) > 1:
            raise CannotSave(
                "its calls are more than one graph: " + next((r["reason"] for r in report if r["reason"]), "?")
            )
        results = []
        structure = flatten(compiled(*given), results)
    return _program(report[0], seen, module, given, results, dict(
        parameters=_parameters_of(signature), arguments=arguments, results=structure, training=training,
    ))  # fmt: skip


def _position(tensor, tensors):
    return next((i for i, other in enumerate(tensors) if other is tensor), None)


def captures(function, module, args, kwargs, training=None):
    """The Programs of a call: as it is, and with a batch of one where it has more, or of two where it has one.

    A size of one is a number in a graph (it broadcasts), so that one graph is not both.
    """
    programs, tensors = [capture(function, module, args, kwargs, training)], []
    structure = flatten([list(args), kwargs], tensors)
    batch = next((t.shape[0] for t in tensors if t.ndim), 0)
    if batch:
        other = [_of_other_batch(t) if t.ndim and t.shape[0] == batch else t for t in tensors]
        try:
            programs.append(capture(function, module, *unflatten(structure, other), training))
        except Exception:  # it is not for such a batch
            pass
    return programs


def _of_other_batch(tensor):
    tensor = tensor.detach()
    return _C.cat([tensor, tensor]) if tensor.shape[0] == 1 else tensor[:1]


def choose(programs, args, kwargs, state):
    """(program, tensors of the arguments) of the one whose graph is for such a call; the first that takes such
    arguments when none is for these sizes, with False; None when there is no such call."""
    near = None
    for program in programs:
        tensors = program.bind(args, kwargs)
        if tensors is not None and program.fits(tensors, state):
            return program, tensors, True
        near = near or (tensors is not None and (program, tensors, False)) or None
    return near


def _program(report, seen, module, given, results, fields):
    outputs, inputs, attributes = [], [], {}
    for tensor in results:
        output, argument = _position(tensor, seen.stand_ins), _position(tensor, given)
        if output is None and argument is None:
            raise CannotSave("it gives a tensor of its own that no call computes")
        outputs.append(output if output is not None else -1 - argument)
    names = {id(tensor): name for name, tensor in reversed(State(module).items())}
    for tensor in seen.examples[0] if seen.examples else []:
        argument = _position(tensor, given)
        name = names.get(id(tensor)) or f"attribute {len(attributes)}"
        inputs.append(argument if argument is not None else name)
        if argument is None and id(tensor) not in names:
            attributes[name] = tensor
    constants = list(seen.modules[0].buffers()) if seen.modules else []
    text = str(_C.LoadedGraph(report["graph"] or "graph() {\n  return ()\n}\n", constants))  # without source lines
    return Program(
        constants, attributes, text=text, guards=list(report["size_guards"]), inputs=inputs, outputs=outputs, **fields
    )

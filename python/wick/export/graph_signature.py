"""What the inputs and outputs of an exported graph are: parameters, buffers, constants, the caller's own; what is written."""

import dataclasses
import enum

__all__ = [
    "ConstantArgument", "CustomObjArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind", "InputSpec",
    "OutputKind", "OutputSpec", "SymBoolArgument", "SymFloatArgument", "SymIntArgument", "TensorArgument",
]  # fmt: skip


@dataclasses.dataclass
class TensorArgument:
    """A tensor, by its node's name."""

    name: str


@dataclasses.dataclass
class TokenArgument:
    """A token that orders effects: wick's graphs have none."""

    name: str


@dataclasses.dataclass
class SymIntArgument:
    """A size that is a symbol."""

    name: str


@dataclasses.dataclass
class SymFloatArgument:
    """A float that is a symbol: floats of a captured program are constants."""

    name: str


@dataclasses.dataclass
class SymBoolArgument:
    """A bool that is a symbol: bools of a captured program are constants."""

    name: str


@dataclasses.dataclass
class CustomObjArgument:
    """An object of a class that was registered in C++: none can be captured."""

    name: str
    class_fqn: str
    fake_val: object = None


@dataclasses.dataclass
class ConstantArgument:
    """A number, text or None, whose value is part of the program."""

    name: str
    value: object


_ARGUMENTS = (TensorArgument, SymIntArgument, SymFloatArgument, SymBoolArgument, ConstantArgument, CustomObjArgument,
              TokenArgument)  # fmt: skip


class InputKind(enum.Enum):
    """What an input is."""

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    """What an output is."""

    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


def _check_argument(arg):
    if not isinstance(arg, _ARGUMENTS):
        raise AssertionError(f"expected valid arg type, got {type(arg)}")


def _line(spec, persistent=None):
    target = "" if spec.target is None else f" target='{spec.target}'"
    return f"{spec.arg.name}: {spec.kind.name}{target}{'' if persistent is None else f' persistent={persistent}'}"


@dataclasses.dataclass
class InputSpec:
    """An input: `target` is the module's name for a parameter, buffer or constant."""

    kind: InputKind
    arg: object
    target: str | None
    persistent: bool | None = None

    def __post_init__(self):
        if self.kind == InputKind.BUFFER and self.persistent is None:
            raise AssertionError("Failed to specify persistent flag on BUFFER.")
        _check_argument(self.arg)

    def __str__(self):
        return _line(self, self.persistent)


@dataclasses.dataclass
class OutputSpec:
    """An output: `target` is the module's name for what is written, or the input's."""

    kind: OutputKind
    arg: object
    target: str | None

    def __post_init__(self):
        _check_argument(self.arg)

    def __str__(self):
        return _line(self)


@dataclasses.dataclass
class ExportBackwardSignature:
    """Which outputs are gradients: for programs whose backward pass is in the graph."""

    gradients_to_parameters: dict
    gradients_to_user_inputs: dict
    loss_output: str


def _value(arg):
    """A name, or a constant's value."""
    return arg.value if isinstance(arg, ConstantArgument) else arg.name


@dataclasses.dataclass
class ExportGraphSignature:
    """The inputs and outputs of an exported graph, in order."""

    input_specs: list
    output_specs: list

    def _targets(self, kind, persistent=None):
        specs = [s for s in self.input_specs if s.kind is kind]
        return tuple(s.target for s in specs if persistent is None or s.persistent is persistent)

    def _by_name(self, specs, kind):
        return {s.arg.name: s.target for s in specs if s.kind is kind}

    @property
    def parameters(self):
        """The parameters' names in the module."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self):
        """The buffers' names in the module."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self):
        """The names of those buffers that a state_dict does not have."""
        return self._targets(InputKind.BUFFER, persistent=False)

    @property
    def lifted_tensor_constants(self):
        """The names of other tensors that the program uses."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self):
        """The names of objects that the program uses: none."""
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self):
        """The names of the caller's tensors, and values of what is constant."""
        return tuple(_value(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self):
        """The names of what the caller gets, and values of what is constant."""
        kinds = OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT
        return tuple(_value(s.arg) for s in self.output_specs if s.kind in kinds)

    @property
    def inputs_to_parameters(self):
        """{input: parameter}"""
        return self._by_name(self.input_specs, InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self):
        """{input: buffer}"""
        return self._by_name(self.input_specs, InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self):
        """{input: constant}"""
        return self._by_name(self.input_specs, InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self):
        """{input: object}: none"""
        return self._by_name(self.input_specs, InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self):
        """{output: the buffer that it is written to}"""
        return self._by_name(self.output_specs, OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self):
        """{output: the parameter that it is written to}"""
        return self._by_name(self.output_specs, OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self):
        """{output: the caller's input that it is written to}"""
        return self._by_name(self.output_specs, OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self):
        """None: there are no gradients among the outputs."""
        return None

    @property
    def assertion_dep_token(self):
        """None: assertions are guards of module()."""
        return None

    input_tokens = property(lambda self: self._targets(InputKind.TOKEN), doc="None are there.")
    output_tokens = property(lambda self: (), doc="None are there.")

    def replace_all_uses(self, old, new):
        """Another name for a node."""
        if not isinstance(old, str) or not isinstance(new, str):
            raise AssertionError(f"expected str for old and new, got {type(old)} and {type(new)}")
        for spec in [*self.input_specs, *self.output_specs]:
            if spec.arg.name == old and not isinstance(spec.arg, ConstantArgument):
                spec.arg.name = new

    def get_replace_hook(self, replace_inputs=False):
        """A function for replaced nodes: it gives the outputs' (and inputs') specs the new name."""

        def replace(old, new, user):
            if user.op == "output":
                self.replace_all_uses(old.name, new)
            elif replace_inputs and old.op == "placeholder":
                self.replace_all_uses(old.name, new)

        return replace

    def __str__(self):
        inputs, outputs = ("\n".join(map(str, specs)) for specs in (self.input_specs, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"

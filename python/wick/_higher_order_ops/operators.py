"""torch.ops.higher_order: control flow as the nodes of a graph name it, with graphs for functions."""

from . import control_flow


class HigherOrderOperator:
    """One of torch.ops.higher_order: called with functions, or with the graphs that they were captured as."""

    def __init__(self, name, call):
        self.__name__, self.__module__, self._call = name, "torch.ops.higher_order", call

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)

    def name(self):
        return self.__name__

    def __str__(self):
        return self.__name__

    def __reduce__(self):
        return self.__name__  # a name of this module


def _cond(pred, true_fn, false_fn, operands=()):
    return control_flow.cond(pred, true_fn, false_fn, tuple(operands))


def _while_loop(cond_fn, body_fn, carried_inputs, additional_inputs=()):
    def goes_on(*carried):
        value = cond_fn(*carried, *additional_inputs)
        return value[0] if isinstance(value, tuple) else value  # a graph gives a tuple

    def body(*carried):
        return tuple(body_fn(*carried, *additional_inputs))

    return control_flow.while_loop(goes_on, body, tuple(carried_inputs))


cond = HigherOrderOperator("cond", _cond)
while_loop = HigherOrderOperator("while_loop", _while_loop)

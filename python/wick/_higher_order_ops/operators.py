"""torch.ops.higher_order: control flow as the nodes of a graph name it, with graphs for functions."""

from . import control_flow
from .associative_scan import associative_scan as _scanned


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


def _scan(combine_fn, init, xs, additional_inputs=(), reverse=False):
    """[*carry, *ys] along the first dim; combine_fn takes and gives lists, one behind the other. reverse: from the last
    slice to the first."""
    carried = len(init)

    def step(carry, x):
        made = list(combine_fn(*carry, *x, *additional_inputs))
        return made[:carried], made[carried:]

    carry, ys = control_flow.scan(step, list(init), list(xs), reverse=reverse)
    return [*carry, *ys]


def _associative_scan(combine_fn, xs, additional_inputs=()):
    """Along the first dim; combine_fn takes the leaves of both sides, one behind the other."""

    def combine(left, right):
        return list(combine_fn(*left, *right, *additional_inputs))

    return _scanned(combine, list(xs), 0, combine_mode="generic")


def _map_impl(f, xs, pos_args=()):
    return list(control_flow.map(lambda x, *args: list(f(*x, *args)), list(xs), *pos_args))


scan = HigherOrderOperator("scan", _scan)
associative_scan = HigherOrderOperator("associative_scan", _associative_scan)
map_impl = HigherOrderOperator("map_impl", _map_impl)

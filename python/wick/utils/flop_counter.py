"""torch.utils.flop_counter: how many floating point operations products, convolutions and attention are, by module.

with FlopCounterMode(display=False) as counter:
    model(x).sum().backward()
counter.get_total_flops()

Formulas are PyTorch's: a multiplication and an addition for each term. Calls are told by the core (src/ops/watch.c), and
counted under the operators that PyTorch makes of them: F.linear is addmm or mm, gradients of convolutions are
convolution_backward. Attention is counted as on PyTorch's other devices; its CPU build counts none. Compiled functions
run as the Python that they are meanwhile. Tests: tests/python/test_flop_counter.py.
"""

import collections
import functools
import math
import re
import warnings

from .. import _C
from .._names import getter as _getter
from .._ops import OpOverloadPacket, ops
from ._pytree import tree_map
from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

aten = ops.aten
flop_registry = {}  # OpOverloadPacket -> formula


# ---- formulas ----


def shape_wrapper(formula):
    """A formula of shapes as one of tensors."""

    @functools.wraps(formula)
    def of_tensors(*args, out_val=None, **kwargs):
        args, kwargs, out_shape = tree_map(lambda x: getattr(x, "shape", x), (args, kwargs, out_val))
        return formula(*args, out_shape=out_shape, **kwargs)

    return of_tensors


def register_flop_formula(targets, get_raw=False):
    """Decorates formula(*shapes of the arguments, out_shape=...) of operators; get_raw: it gets tensors and out_val.

    @register_flop_formula(torch.ops.mylib.product)
    def product_flop(a, b, *args, out_shape=None, **kwargs): return 2 * a[0] * a[1] * b[1]
    """

    def register(formula):
        formula = formula if get_raw else shape_wrapper(formula)
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            if not isinstance(target, OpOverloadPacket) and not hasattr(target, "_overloads"):
                raise ValueError(
                    "register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. torch.ops.mylib.foo), "
                    f"JitFunction, or HigherOrderOperator, got {target} which is of type {type(target)}"
                )
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = formula
        return formula

    return register


@register_flop_formula(aten.mm)
def mm_flop(a, b, *args, out_shape=None, **kwargs):
    """(m, k) by (k, n)."""
    return 2 * a[0] * a[1] * b[1]


@register_flop_formula(aten.addmm)
def addmm_flop(self, a, b, *args, out_shape=None, **kwargs):
    """The product's."""
    return mm_flop.__wrapped__(a, b)


@register_flop_formula(aten.bmm)
def bmm_flop(a, b, *args, out_shape=None, **kwargs):
    """(b, m, k) by (b, k, n)."""
    return 2 * a[0] * a[1] * a[2] * b[2]


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(self, a, b, *args, out_shape=None, **kwargs):
    """The product's."""
    return bmm_flop.__wrapped__(a, b)


def conv_flop_count(x, weight, out, transposed=False):
    """A product of `weight` at each place of the result, of the input where it is transposed."""
    return 2 * math.prod((x if transposed else out)[2:]) * math.prod(weight) * x[0]


@register_flop_formula(aten.convolution)
def conv_flop(x, weight, bias, stride, padding, dilation, transposed, *args, out_shape=None, **kwargs):
    """As conv_flop_count."""
    return conv_flop_count(x, weight, out_shape, transposed)


def _convolution_weight_flop(grad, x, weight, transposed):
    grad, x = (grad[1], grad[0], *grad[2:]), (x[1], x[0], *x[2:])
    left, right = (grad, x) if transposed else (x, grad)
    return conv_flop_count(left, right, (weight[1], weight[0], *weight[2:]))


@register_flop_formula(aten._scaled_dot_product_flash_attention_for_cpu)
def sdpa_flop(query, key, value, *args, out_shape=None, **kwargs):
    """Two products: (T, D) by (D, S), (T, S) by (S, V)."""
    batch, heads, rows, width = query
    return 2 * batch * heads * rows * key[-2] * (width + value[-1])


@register_flop_formula(aten._scaled_dot_product_flash_attention_for_cpu_backward)
def sdpa_backward_flop(grad, query, key, value, *args, out_shape=None, **kwargs):
    """Five products: the scores again, and the gradients of scores, values, query and key."""
    batch, heads, rows, width = query
    return 2 * batch * heads * rows * key[-2] * (3 * width + 2 * value[-1])


# ---- calls ----


def _linear(overload, args, result, in_backward):
    x, weight, bias = args
    inner = math.prod(x.shape[:-1]), x.shape[-1]
    return aten.mm if bias is None else aten.addmm, 2 * inner[0] * inner[1] * weight.shape[0]


def _convolution(overload, args, result, in_backward):
    packet = aten.convolution_backward if in_backward else aten.convolution
    return packet, conv_flop_count(args[0].shape, args[1].shape, result.shape, args[6])


def _convolution_weight(overload, args, result, in_backward):
    return aten.convolution_backward, _convolution_weight_flop(args[0].shape, args[1].shape, result.shape, args[6])


# What PyTorch calls otherwise: -> (the operator that it counts, operations).
_TRANSLATED = {
    "aten::linear": _linear, "aten::convolution": _convolution, "aten::_convolution_backward_weight": _convolution_weight,
}  # fmt: skip


@functools.lru_cache(maxsize=None)
def _names_behind_star(schema):
    _, _, behind = schema.partition("*, ")
    return re.findall(r"(\w+)(?:=[^,)]*)?(?=[,)])", behind.partition(") ->")[0] + ")")


class FlopCounterMode:
    """Counts what runs inside of `with`. display: prints a table at the end, modules down to `depth`. custom_mapping:
    {torch.ops.aten.name: formula} beside those of register_flop_formula; a formula with _get_raw = True gets tensors."""

    def __init__(self, mods=None, depth=2, display=True, custom_mapping=None):
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        own = {k: f if getattr(f, "_get_raw", False) else shape_wrapper(f) for k, f in (custom_mapping or {}).items()}
        self.depth, self.display, self.flop_registry, self._own = depth, display, {**flop_registry, **own}, own
        self.flop_counts = collections.defaultdict(lambda: collections.defaultdict(int))
        self.mod_tracker = ModuleTracker()

    def get_total_flops(self):
        """All operations that it has counted."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self):
        """{module: {operator: operations}}; "Global" is everything."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def _told(self, overload, args, result, in_backward):
        packet = overload.overloadpacket
        translated = (
            None if packet in self._own else _TRANSLATED.get(overload._schema.partition("(")[0].partition(".")[0])
        )
        if translated:
            packet, count = translated(overload, args, result, in_backward)
        elif packet in self.flop_registry:
            names = _names_behind_star(overload._schema)
            split = len(args) - len(names)
            keywords = dict(zip(names, args[split:], strict=True))
            count = self.flop_registry[packet](*args[:split], **keywords, out_val=result)
        else:
            return
        for name in self.mod_tracker.parents:
            self.flop_counts[name][packet] += count

    def __enter__(self):
        self.flop_counts.clear()
        self.flop_counts["Global"].clear()
        self.mod_tracker.__enter__()
        self._plain_before = _C._set_stance(1)
        self._watched_before = _C._watch_calls(self._told)
        return self

    def __exit__(self, *exception):
        _C._watch_calls(self._watched_before)
        _C._set_stance(self._plain_before)
        self.mod_tracker.__exit__()
        if self.display:
            print(self.get_table(self.depth))

    # ---- the table ----

    def get_table(self, depth=None):
        """The counts as text: modules down to `depth`, each with its operators and its share."""
        depth = depth or self.depth or 999999
        total = self.get_total_flops()
        shown = sorted(name for name in self.flop_counts if name != "Global" and name.count(".") < depth)
        whole = any(sum(self.flop_counts[name].values()) >= total for name in shown)
        rows = [row for name in shown for row in self._rows(name, name.count(".") + (not whole), total)]
        if not whole and self.flop_counts["Global"]:
            rows = self._rows("Global", 0, total) + rows
        return _table([("Module", "FLOP", "% Total"), *(rows or [("Global", "0", "0%")])])

    def _rows(self, name, indent, total):
        counts = self.flop_counts[name]
        lines = [(name, sum(counts.values())), *((f" - {operator}", count) for operator, count in counts.items())]
        return [
            (" " * indent + text, _with_suffix(count, total), f"{count / total:.2%}" if total else "0%")
            for text, count in lines
        ]


def _with_suffix(count, total):
    power = max(0, min(4, (len(str(total)) - 2) // 3))  # of the whole, so that the rows compare
    return f"{count / 1000**power:.3f}{('', 'K', 'M', 'B', 'T')[power]}"


def _table(rows):
    widths = [max(len(rows[0][i]) + 2, *(len(row[i]) for row in rows)) for i in range(3)]
    lines = ["  ".join((a.ljust(widths[0]), b.rjust(widths[1]), c.rjust(widths[2]))).rstrip() for a, b, c in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


__getattr__ = _getter(__name__)

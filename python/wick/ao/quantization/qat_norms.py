"""Batch norms of training behind convolutions, as quantization is trained with them: prepare_qat_pt2e and convert_pt2e.

The convolution has the weight that it will have when the norm is folded into it, so that this is what is rounded; its
result is what it was without, and the norm takes statistics of that and updates the running ones:

    factor = gain / sqrt(running_var + eps)
    y = convolution(x, w factor) / factor + b
    norm(y)

(Krishnamoorthi, Quantizing deep convolutional networks for efficient inference, 2018, section 3.2). fold() then puts the
convolution with w factor and shift + (b - running_mean) factor in the place of both. Tests:
tests/python/test_quantize_qat.py.
"""

import operator

from ..._ops import ops
from ...fx import Node

aten = ops.aten
KEY = "norm_of_training"  # in the convolution's meta: the norm's name
WEIGHT = "scaled_weight"  # in the meta of a weight that is computed
STATISTICS = "statistics"  # in the meta of nodes that no quantizer is to look at
_UPDATE = aten.copy_.default


def _is_call(node, target):
    return isinstance(node, Node) and node.op == "call_function" and node.target is target


def _is_getitem(node, number):
    return node.op == "call_function" and node.target is operator.getitem and node.args[1] == number


def _moments(conv):
    """The node of the moments of what a convolution gives."""
    for user in conv.users:
        for reader in user.users if _is_call(user, aten.detach.default) else ():
            if _is_call(reader, aten._channel_moments.default):
                return reader
    return None


def _reached(node):
    """All that is computed from a node."""
    found, left = set(), list(node.users)
    while left:
        user = left.pop()
        if user not in found:
            found.add(user)
            left += user.users
    return found


def _updates(moments, number):
    """The copies into a running statistic of one of the moments: 0 the mean, 1 the variance."""
    starts = [node for node in moments.users if _is_getitem(node, number)]
    others = {node for node in moments.users if not _is_getitem(node, number)}
    found = [node for start in starts for node in _reached(start) if node.target is _UPDATE]
    return [n for n in found if n.args[0].op == "get_attr" and not any(n in _reached(other) for other in others)]


def _parts(conv, norm):
    """(moments, copy into running_mean, copy into running_var) where both are one layer in training; else None."""
    if (
        not _is_call(norm, aten._native_batch_norm.default)
        or not norm.args[7]
        or not _is_call(conv, aten.convolution.default)
    ):
        return None
    moments = _moments(conv)
    if moments is None or conv.args[6] or conv.args[1].op != "get_attr" or len(conv.users) != 2 or norm.args[1] is None:
        return None
    mean, variance = _updates(moments, 0), _updates(moments, 1)
    return (moments, mean[0], variance[0]) if len(mean) == len(variance) == 1 else None


def _by_channel(graph, node, dims, leading):
    return graph.call_function(aten.view.default, (node, [*[1] * leading, -1, *[1] * (dims - 1 - leading)]))


def _scale(model, conv, norm, moments, variance):
    graph, weight = model.graph, conv.args[1]
    dims = operator.attrgetter(weight.target)(model).dim()
    with graph.inserting_before(conv):
        running, gain = graph.get_attr(variance.args[0].target), graph.get_attr(norm.args[1].target)
        shifted = graph.call_function(aten.add.Scalar, (running, norm.args[8]))
        factor = graph.call_function(aten.mul.Tensor, (gain, graph.call_function(aten.rsqrt.default, (shifted,))))
        scaled = graph.call_function(aten.mul.Tensor, (weight, _by_channel(graph, factor, dims, 0)))
    scaled.meta[WEIGHT], bias = True, conv.args[2]
    readers = list(conv.users)
    with graph.inserting_after(conv):
        given = graph.call_function(aten.div.Tensor, (conv, factor))
    with graph.inserting_before(given):
        given.args = (conv, _by_channel(graph, factor, dims, 1))
    if bias is not None:
        with graph.inserting_after(given):
            total = graph.call_function(aten.add.Tensor, (given, bias))
        with graph.inserting_before(total):
            total.args = (given, _by_channel(graph, bias, dims, 1))
        total.meta[STATISTICS], given = True, total
    for reader in readers:
        reader.replace_input_with(conv, given)
    conv.args = (conv.args[0], scaled, None, *conv.args[3:])
    conv.meta[KEY] = norm.name, bias.target if bias is not None else None


def scale_weights(model):
    """Gives the convolutions in front of such norms their scaled weights."""
    for norm in list(model.graph.nodes):
        conv = norm.args[0] if norm.op == "call_function" and norm.args else None
        parts = _parts(conv, norm)
        if parts is None:
            continue
        moments, mean, variance = parts
        for node in _reached(moments) - _reached(norm) - {norm}:
            node.meta[STATISTICS] = True
        _scale(model, conv, norm, moments, variance)
    model.recompile()


# ---- convert ----


def _counter_updates(graph, target):
    """Copies of a count of batches, one more than it was."""
    for node in graph.nodes:
        if _is_call(node, target) and _is_call(node.args[1], aten.add.Scalar) and node.args[1].args[1] == 1:
            counted = node.args[1].args[0]
            if node.args[0].op == counted.op == "get_attr" and node.args[0].target == counted.target:
                yield node


def _fold(model, conv, norm, bias_name, buffer):
    graph, value = model.graph, lambda name: operator.attrgetter(name)(model).detach()
    source = conv.args[1]  # the scaled weight, or what rounds it
    scaled = source.args[0] if source.op == "call_module" else source
    moments = next(n for n in norm.all_input_nodes[0].users if _is_call(n, aten.detach.default))
    moments = next(n for n in moments.users if _is_call(n, aten._channel_moments.default))
    (mean,), (variance,) = _updates(moments, 0), _updates(moments, 1)
    factor = value(norm.args[1].target) * (value(variance.args[0].target) + norm.args[8]).rsqrt()
    weight = value(scaled.args[0].target)
    bias = (value(bias_name) if bias_name else 0) - value(mean.args[0].target)
    bias = bias * factor + (value(norm.args[2].target) if norm.args[2] is not None else 0)
    with graph.inserting_before(scaled):
        attribute = graph.get_attr(buffer(model, "_folded_w", weight * factor.reshape(-1, *[1] * (weight.dim() - 1))))
    with graph.inserting_before(conv):
        shift = graph.get_attr(buffer(model, "_folded_b", bias))
    scaled.replace_all_uses_with(attribute)
    norm.replace_all_uses_with(conv)
    conv.args = (conv.args[0], conv.args[1], shift, *conv.args[3:])
    for update in (mean, variance):
        graph.erase_node(update)


def fold(model, buffer):
    """Puts one convolution, of running statistics, in the place of each that scale_weights found, and of its norm."""
    graph = model.graph
    nodes = {node.name: node for node in graph.nodes}
    found = [node for node in graph.nodes if KEY in node.meta]
    for conv in found:
        name, bias = conv.meta[KEY]
        _fold(model, conv, nodes[name], bias, buffer)
    graph.eliminate_dead_code()
    left = any(_is_call(n, aten._native_batch_norm.default) and n.args[7] for n in graph.nodes)
    if found and not left:
        for update in list(_counter_updates(graph, _UPDATE)):
            graph.erase_node(update)
        graph.eliminate_dead_code()

"""torch.autograd.functional: Jacobians, Hessians and their products with vectors, by the tape.

J = jacobian(torch.sin, x)
"""

from .. import _C
from .._names import getter as _getter

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _grad(outputs, inputs, gradients=None, create_graph=False, retain_graph=None, batched=False):
    """Gradients of the outputs that are recorded; None for an input that none depends on."""
    from . import grad

    gradients = (None,) * len(outputs) if gradients is None else gradients
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o is not None and o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    outputs, gradients = zip(*pairs, strict=True)
    return grad(
        outputs, inputs, gradients, allow_unused=True, create_graph=create_graph, retain_graph=retain_graph,
        is_grads_batched=batched,
    )  # fmt: skip


# ---- what goes in and out ----


def _tuple(x, argument, function):
    """(whether it was a tuple, it as one)"""
    was = isinstance(x, tuple)
    items = x if was else (x,)
    for k, item in enumerate(items):
        if isinstance(item, _C.Tensor):
            continue
        which = f"value at index {k} has" if was else f"given {argument} has"
        raise TypeError(
            f"The {argument} given to {function} must be either a Tensor or a tuple of Tensors but the {which} type "
            f"{type(item)}."
        )
    return was, items


def _inputs(tensors, create_graph, need_graph):
    """New tensors, so that those that the function captures are others."""
    return tuple(
        t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_(need_graph) for t in tensors
    )


def _finish(x, create_graph):
    if isinstance(x, tuple):
        return tuple(_finish(item, create_graph) for item in x)
    return x if create_graph else x.detach()


def _unpack(x, is_tuple):
    return x if is_tuple else x[0]


def _check_v(v, others, is_tuple):
    if len(v) != len(others):
        raise RuntimeError(
            f"v is a tuple of invalid length: should be {len(others)} but got {len(v)}."
            if is_tuple
            else "The given v should contain a single Tensor."
        )
    for k, (a, b) in enumerate(zip(v, others, strict=True)):
        if a.size() != b.size():
            raise RuntimeError(
                f"{f'Entry {k} in ' if is_tuple else ''}v has invalid size: should be {b.size()} but got {a.size()}."
            )


_STRICT = {
    "outputs": "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode.",
    "grad_inputs": "The gradient with respect to input {} is independent of the inputs of the user-provided function. This "
    "is not allowed in strict mode.",
    "jacobian": "While computing the hessian, found that the jacobian of the user-provided function with respect to input "
    "{} is independent of the input. This is not allowed in strict mode. You should ensure that your function is twice "
    "differentiable and that the jacobian depends on the inputs (this would be violated by a linear function for example).",
    "hessian": "The hessian of the user-provided function with respect to input {} is independent of the input. This is not "
    "allowed in strict mode. You should ensure that your function is thrice differentiable and that the hessian depends on "
    "the inputs.",
}


def _check_recorded(tensors, kind, strict):
    for k, t in enumerate(tensors if strict else ()):
        if t is None:
            raise RuntimeError(
                f"The output of the user-provided function is independent of input {k}. This is not allowed in strict "
                "mode."
            )
        if not t.requires_grad:
            raise RuntimeError(_STRICT[kind].format(k))


_MISSING = {
    "back": "The output of the user-provided function is independent of input {}. This is not allowed in strict mode.",
    "back_trick": "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the "
    "double backward trick to compute forward mode gradients. This is not allowed in strict mode.",
    "double_back": "The jacobian of the user-provided function is independent of input {}. This is not allowed in strict "
    "mode.",
    "double_back_trick": "The hessian of the user-provided function is independent of entry {} in the grad_jacobian. This "
    "is not allowed in strict mode as it prevents from using the double backward trick to replace forward mode AD.",
}


def _with_zeros(gradients, like, strict, create_graph, stage):
    """The gradients, zeros for those that are None."""
    result = []
    for k, (g, t) in enumerate(zip(gradients, like, strict=True)):
        if g is None and strict:
            raise RuntimeError(_MISSING[stage].format(k))
        if g is None:
            g = _C.zeros_like(t)
        elif strict and create_graph and not g.requires_grad:
            what = "hessian" if "double" in stage else "jacobian"
            raise RuntimeError(
                f"The {what} of the user-provided function is independent of input {k}. This is not allowed in strict mode "
                "when create_graph=True."
            )
        result.append(g)
    return tuple(result)


# ---- products ----


def _vector(v, others, is_tuple, message, name):
    """v as a tuple like `others`; None for the one element of a single one."""
    if v is not None:
        _, v = _tuple(v, "v", name)
        v = _inputs(v, False, False)
        _check_v(v, others, is_tuple)
    elif len(others) != 1 or others[0].nelement() != 1:
        raise RuntimeError(message)
    return v


def vjp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), v^T J)"""
    with _C.enable_grad():
        was_tuple, inputs = _tuple(inputs, "inputs", "vjp")
        inputs = _inputs(inputs, create_graph, True)
        outputs_tuple, outputs = _tuple(func(*inputs), "outputs of the user-provided function", "vjp")
        _check_recorded(outputs, "outputs", strict)
        message = (
            "The vector v can only be None if the user-provided function returns a single Tensor with a single element."
        )
        v = _vector(v, outputs, outputs_tuple, message, "vjp")
    with _C.set_grad_enabled(create_graph or _C.is_grad_enabled()):
        found = _with_zeros(_grad(outputs, inputs, v, create_graph), inputs, strict, create_graph, "back")
    return _unpack(_finish(outputs, create_graph), outputs_tuple), _unpack(_finish(found, create_graph), was_tuple)


def jvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), J v): the derivative of v^T J by v, which is linear in it."""
    with _C.enable_grad():
        was_tuple, inputs = _tuple(inputs, "inputs", "jvp")
        inputs = _inputs(inputs, create_graph, True)
        message = "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
        v = _vector(v, inputs, was_tuple, message, "jvp")
        outputs_tuple, outputs = _tuple(func(*inputs), "outputs of the user-provided function", "jvp")
        _check_recorded(outputs, "outputs", strict)
        ones = tuple(_C.zeros_like(o, requires_grad=True) for o in outputs)
        pulled = _grad(outputs, inputs, ones, create_graph=True)
        _check_recorded(pulled, "grad_inputs", strict)
    with _C.set_grad_enabled(create_graph or _C.is_grad_enabled()):
        found = _with_zeros(_grad(pulled, ones, v, create_graph), outputs, strict, create_graph, "back_trick")
    return _unpack(_finish(outputs, create_graph), outputs_tuple), _unpack(_finish(found, create_graph), outputs_tuple)


def _one_output(outputs_tuple, outputs, name):
    if outputs_tuple or not isinstance(outputs[0], _C.Tensor):
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if outputs[0].nelement() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")


def _first_derivative(func, inputs, v, create_graph, strict, name):
    """Of a function of one value: (were the inputs a tuple, inputs, v, outputs, derivative), all as tuples."""
    was_tuple, inputs = _tuple(inputs, "inputs", name)
    inputs = _inputs(inputs, create_graph, True)
    message = "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
    v = _vector(v, inputs, was_tuple, message, name)
    outputs_tuple, outputs = _tuple(func(*inputs), "outputs of the user-provided function", name)
    _check_recorded(outputs, "outputs", strict)
    _one_output(outputs_tuple, outputs, name)
    jac = _grad(outputs, inputs, create_graph=True)
    _check_recorded(jac, "jacobian", strict)
    return was_tuple, inputs, v, outputs, jac


def vhp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), v^T H)"""
    with _C.enable_grad():
        was_tuple, inputs, v, outputs, jac = _first_derivative(func, inputs, v, create_graph, strict, "vhp")
    with _C.set_grad_enabled(create_graph or _C.is_grad_enabled()):
        found = _with_zeros(_grad(jac, inputs, v, create_graph), inputs, strict, create_graph, "double_back")
    return _finish(outputs, create_graph)[0], _unpack(_finish(found, create_graph), was_tuple)


def hvp(func, inputs, v=None, create_graph=False, strict=False):
    """(func(*inputs), H v)"""
    with _C.enable_grad():
        was_tuple, inputs, v, outputs, jac = _first_derivative(func, inputs, v, create_graph, strict, "hvp")
        zeros = tuple(_C.zeros_like(t, requires_grad=True) for t in inputs)
        twice = _grad(jac, inputs, zeros, create_graph=True)
        _check_recorded(twice, "hessian", strict)
    with _C.set_grad_enabled(create_graph or _C.is_grad_enabled()):
        found = _with_zeros(_grad(twice, zeros, v, create_graph), inputs, strict, create_graph, "double_back_trick")
    return _finish(outputs, create_graph)[0], _unpack(_finish(found, create_graph), was_tuple)


# ---- matrices ----


def _check_strategy(strategy, outer=False):
    name = "outer_jacobian_strategy" if outer else "strategy"
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            f'Expected {name} to be either "reverse-mode" or "forward-mode". Hint: If your function has more outputs than '
            'inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )


def _jacobian_forward(func, inputs, strict, vectorize):
    from .._functorch.eager_transforms import jacfwd

    if strict:
        raise RuntimeError(
            'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are not supported together '
            '(yet). Please either set `strict=False` or `strategy="reverse-mode"`.'
        )
    if not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for `vectorize=True`."
        )
    was_tuple, inputs = _tuple(inputs, "inputs", "jacobian")
    found = jacfwd(func, tuple(range(len(inputs))))(*inputs)
    if was_tuple:
        return found
    return tuple(rows[0] for rows in found) if isinstance(found[0], tuple) else found[0]


def _rows_at_once(outputs, inputs, create_graph, strict):
    from .._functorch.eager_transforms import _basis

    if strict:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. Please "
            "either set `strict=False` or `vectorize=False`."
        )
    sizes = [o.numel() for o in outputs]
    found = _grad(outputs, inputs, tuple(_basis(outputs)), create_graph, True, batched=True)
    columns = [
        g.split(sizes) if g is not None else [_C.zeros([n, *i.shape], dtype=i.dtype) for n in sizes]
        for g, i in zip(found, inputs, strict=True)
    ]
    return tuple(
        tuple(parts[k].view([*o.shape, *i.shape]) for parts, i in zip(columns, inputs, strict=True))
        for k, o in enumerate(outputs)
    )


def _rows_one_by_one(outputs, inputs, create_graph, strict):
    result = []
    for k, output in enumerate(outputs):
        rows = []
        for element in output.reshape(-1):
            gradients = _grad((element,), inputs, create_graph=create_graph, retain_graph=True)
            for j, g in enumerate(gradients):
                if strict and g is None:
                    raise RuntimeError(
                        f"Output {k} of the user-provided function is independent of input {j}. This is not allowed in "
                        "strict mode."
                    )
                if strict and create_graph and not g.requires_grad:
                    raise RuntimeError(
                        "The jacobian of the user-provided function is independent of "
                        f"input {j}. This is not allowed in strict mode when create_graph=True."
                    )
            rows.append([_C.zeros_like(i) if g is None else g for g, i in zip(gradients, inputs, strict=True)])
        result.append(
            tuple(
                _C.stack([row[j] for row in rows]).view([*output.shape, *i.shape])
                if rows
                else i.new_zeros([*output.shape, *i.shape])
                for j, i in enumerate(inputs)
            )
        )
    return tuple(result)


def jacobian(func, inputs, create_graph=False, strict=False, vectorize=False, strategy="reverse-mode"):
    """The derivative of each element of func's results by each of the inputs: (*result shape, *input shape), in tuples
    where there are several.

    vectorize: all rows at once, by vmap. strategy: "forward-mode" by columns.
    """
    _check_strategy(strategy)
    if strategy == "forward-mode":
        if create_graph:
            raise NotImplementedError(
                'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported '
                'together (yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.'
            )
        return _jacobian_forward(func, inputs, strict, vectorize)
    with _C.enable_grad():
        was_tuple, inputs = _tuple(inputs, "inputs", "jacobian")
        inputs = _inputs(inputs, create_graph, True)
        outputs_tuple, outputs = _tuple(func(*inputs), "outputs of the user-provided function", "jacobian")
        _check_recorded(outputs, "outputs", strict)
        rows = (_rows_at_once if vectorize else _rows_one_by_one)(outputs, inputs, create_graph, strict)
    rows = tuple(_unpack(_finish(row, create_graph), was_tuple) for row in rows)
    return _unpack(rows, outputs_tuple)


def hessian(func, inputs, create_graph=False, strict=False, vectorize=False, outer_jacobian_strategy="reverse-mode"):
    """The second derivatives of a function whose result is one number."""
    was_tuple, inputs = _tuple(inputs, "inputs", "hessian")
    _check_strategy(outer_jacobian_strategy, outer=True)
    forward = outer_jacobian_strategy == "forward-mode"

    def one_number(*args):
        outputs_tuple, outputs = _tuple(func(*args), "outputs of the user-provided function", "hessian")
        _check_recorded(outputs, "outputs", strict)
        _one_output(outputs_tuple, outputs, "hessian")
        return outputs[0].squeeze()

    def gradient(*args):
        if forward:
            args = tuple(t.requires_grad_(True) if not t.requires_grad else t for t in args)
        found = jacobian(one_number, args, create_graph=True)
        _check_recorded(found, "jacobian", strict)
        return found

    if forward:
        from .._functorch.eager_transforms import jacfwd, jacrev

        places = tuple(range(len(inputs)))
        found = jacfwd(jacrev(one_number, places), places)(*inputs)
    else:
        found = jacobian(gradient, inputs, create_graph=create_graph, strict=strict, vectorize=vectorize)
    return found if was_tuple else found[0][0]


__getattr__ = _getter(__name__)

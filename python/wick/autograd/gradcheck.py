"""Gradients against central finite differences, in float64. A complex element is two real ones, its parts: its gradient holds
the derivatives by either."""

import itertools

from .. import _C

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """The gradients of a function are not those that finite differences give."""


def _as_tuple(value):
    return value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)


def _indices(tensor):
    return itertools.product(*(range(n) for n in tensor.shape))


def _differentiable(values):
    """The positions of tensors that require grad."""
    return [i for i, v in enumerate(values) if isinstance(v, _C.Tensor) and v.requires_grad]


def _numbers(tensor):
    """The elements as a flat list, in the order of _indices; of complex ones both parts."""
    flat = tensor.detach().reshape(-1)
    return (_C.view_as_real(flat).reshape(-1) if flat.is_complex() else flat).tolist()


def _units(tensor):
    """The directions in which an element can move."""
    return (1, 1j) if tensor.is_complex() else (1,)


def _numerical(function, inputs, which, outputs, eps):
    """{output: columns}: for each element of inputs[which] how each element of the output changes."""
    data, columns = inputs[which].data, {o: [] for o in outputs}
    for index, unit in itertools.product(_indices(data), _units(data)):
        before, sides = data[index].item(), []
        for step in (eps * unit, -eps * unit):
            data[index] = before + step
            values = _as_tuple(function(*inputs))
            sides.append({o: _numbers(values[o]) for o in outputs})
        data[index] = before
        for o in outputs:
            columns[o].append([(a - b) / (2 * eps) for a, b in zip(sides[0][o], sides[1][o], strict=True)])
    return columns


def _analytical(output, inputs):
    """[input][row][column] by one backward for each element of the output."""
    from . import grad

    rows = []
    for index, direction in itertools.product(_indices(output), _units(output)):
        unit = _C.zeros_like(output)
        unit[index] = direction
        gradients = grad(output, inputs, unit, retain_graph=True, allow_unused=True)
        none = [[0.0] * (t.numel() * len(_units(t))) for t in inputs]
        rows.append([zeros if g is None else _numbers(g) for g, zeros in zip(gradients, none, strict=True)])
    return [[row[k] for row in rows] for k in range(len(inputs))]


def _distance(a, b, atol=0.0, rtol=0.0):
    """How far the rows are apart beyond the tolerance; not a number counts as infinitely far."""
    worst = 0.0
    for x, y in zip(itertools.chain(*a), itertools.chain(*b), strict=True):
        beyond = abs(x - y) - (atol + rtol * abs(y))
        if not beyond <= worst:
            worst = beyond if beyond == beyond else float("inf")
    return worst


def _check_inputs(inputs):
    if not any(isinstance(t, _C.Tensor) and t.requires_grad for t in inputs):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    for i in _differentiable(inputs):
        if inputs[i].dtype not in (_C.float64, _C.complex128):
            import warnings

            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=4,
            )


def _check(function, inputs, eps, atol, rtol, nondet_tol):
    _check_inputs(inputs)
    wanted = _differentiable(inputs)
    values = _as_tuple(function(*inputs))
    outputs = _differentiable(values)
    if not outputs:
        _check_independent(function, inputs, wanted, values, eps, atol)
    tensors = [inputs[i] for i in wanted]
    numerical = [_numerical(function, inputs, i, outputs, eps) for i in wanted]
    for o in outputs:
        analytical, again = _analytical(values[o], tensors), _analytical(values[o], tensors)
        for k, i in enumerate(wanted):
            columns = numerical[k][o]
            rows = [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in analytical[k]]
            if _distance(analytical[k], rows, atol, rtol) > 0:
                raise GradcheckError(
                    f"Jacobian mismatch for output {o} with respect to input {i},\nnumerical:{rows}\n"
                    f"analytical:{analytical[k]}\n"
                )
            if _distance(analytical[k], again[k]) > nondet_tol:
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                    "gives different values, although analytical gradient matches numerical gradient."
                    f"The tolerance for nondeterminism was {nondet_tol}."
                )
    return True


def _check_independent(function, inputs, wanted, values, eps, atol):
    """Outputs that say they do not depend on the inputs must not."""
    floating = [
        o for o, v in enumerate(values) if isinstance(v, _C.Tensor) and (v.is_floating_point() or v.is_complex())
    ]
    for i in wanted:
        for columns in _numerical(function, inputs, i, floating, eps).values():
            if any(abs(x) > atol for column in columns for x in column):
                raise GradcheckError("Numerical gradient for function expected to be zero")


def gradcheck(
    func,
    inputs,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_batched_forward_grad=False,
    check_forward_ad=False,
    check_backward_ad=True,
    fast_mode=False,
    masked=None,
):
    """True when the gradients of func(*inputs) agree with finite differences; else GradcheckError, or False.

    gradcheck(lambda x: x.exp(), (wick.randn(3, dtype=wick.float64, requires_grad=True),))
    """
    try:
        return _check(func, _as_tuple(inputs), eps, atol, rtol, nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False


def gradgradcheck(
    func,
    inputs,
    grad_outputs=None,
    *,
    eps=1e-6,
    atol=1e-5,
    rtol=1e-3,
    gen_non_contig_grad_outputs=False,
    raise_exception=True,
    nondet_tol=0.0,
    check_undefined_grad=True,
    check_grad_dtypes=False,
    check_batched_grad=False,
    check_fwd_over_rev=False,
    check_rev_over_rev=True,
    fast_mode=False,
    masked=False,
):
    """As gradcheck, for the gradients of the gradients; random grad_outputs unless some are given.

    gradgradcheck(lambda x: x.exp(), (wick.randn(3, dtype=wick.float64, requires_grad=True),))
    """
    from . import grad

    inputs = _as_tuple(inputs)
    if grad_outputs is None:
        values = _as_tuple(func(*inputs))
        outputs = [values[o] for o in _differentiable(values)]
        grad_outputs = tuple(_C.randn(o.shape, dtype=o.dtype).requires_grad_() for o in outputs)
    grad_outputs = _as_tuple(grad_outputs)

    def gradients(*arguments):
        own, given = arguments[: len(inputs)], arguments[len(inputs) :]
        values = _as_tuple(func(*own))
        outputs = [values[o] for o in _differentiable(values)]
        tensors = [own[i] for i in _differentiable(own)]
        found = grad(outputs, tensors, given, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients, inputs + grad_outputs, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol,
    )  # fmt: skip

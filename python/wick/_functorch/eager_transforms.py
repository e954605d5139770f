"""grad, vjp, jvp, Jacobians, Hessians: derivatives of functions as functions."""

import functools

from .. import _C
from ..utils import _pytree
from ._levels import FORWARD, GRAD, level, run_whole, value, values, wrap
from .vmap import vmap

__all__ = [
    "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp",
]  # fmt: skip

_flatten, _unflatten = _pytree.tree_flatten, _pytree.tree_unflatten


def _tuple(x):
    return x if isinstance(x, tuple) else (x,)


# ---- which arguments ----


def _position(argnum, count):
    if not isinstance(argnum, int):
        raise RuntimeError(f"argnum must be int, got: {type(argnum)}")
    if not -count <= argnum < count:
        raise RuntimeError(f"Got argnum={argnum}, but only {count} positional inputs")
    return argnum % count


def _positions(argnums, count):
    """A number or a tuple of them, counted from the front."""
    if isinstance(argnums, int):
        return _position(argnums, count)
    if not isinstance(argnums, tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    found = tuple(_position(n, count) for n in argnums)
    if not found:
        raise RuntimeError("argnums must be non-empty")
    if len(set(found)) != len(found):
        raise RuntimeError(f"argnums elements must be unique, got {found}")
    return found


def _pick(args, argnums):
    """What is differentiated by, in the form that gradients get: one argument, or a tuple."""
    return args[argnums] if isinstance(argnums, int) else tuple(args[n] for n in argnums)


def _replace(args, argnums, new):
    """The arguments with those in their places."""
    places = {argnums: new} if isinstance(argnums, int) else dict(zip(argnums, new, strict=True))
    return tuple(places.get(n, arg) for n, arg in enumerate(args))


# ---- the tape of a level ----


def _leaf(x):
    if isinstance(x, _C.Tensor):
        return _C._level_leaf(x)
    raise ValueError(f"Thing passed to transform API must be Tensor, got {type(x)}")


def _gradients(outputs, inputs, gradients=None, retain_graph=False, create_graph=False):
    """Of the outputs that are recorded, for each input; zeros where nothing depends on it."""
    if gradients is None:
        gradients = [None] * len(outputs)
    recorded = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    if not recorded:
        return [_C.zeros_like(x) for x in inputs]
    outputs, gradients = zip(*recorded, strict=True)
    found = _C._run_backward(outputs, gradients, retain_graph, create_graph, tuple(inputs), True, False)
    return [_C.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def _split_aux(output, text):
    if not (isinstance(output, tuple) and len(output) == 2):
        raise RuntimeError(f"{text}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return output


# ---- grad ----


def _check_scalar(output):
    start = "grad_and_value(f)(*args): Expected f(*args) "
    if not isinstance(output, _C.Tensor):
        raise RuntimeError(f"{start}to return a Tensor, got {type(output)}")
    if output.dim() != 0:
        raise RuntimeError(
            f"{start}to return a scalar Tensor, got tensor with {output.dim()} dims. Maybe you wanted to use the vjp or "
            "jacrev APIs instead?"
        )


@run_whole
def _grad_and_value(func, argnums, has_aux, args, kwargs):
    with level(GRAD), _C.enable_grad():
        args, kwargs = wrap(args), wrap(kwargs)
        argnums = _positions(argnums, len(args))
        leaves = _pytree.tree_map(_leaf, _pick(args, argnums))
        output, aux = func(*_replace(args, argnums, leaves), **kwargs), None
        if has_aux:
            output, aux = _split_aux(output, "grad_and_value(f)(*args)")
        _check_scalar(output)
        flat, spec = _flatten(leaves)
        found = [value(g) for g in _gradients([output], flat)]
        output, aux = value(output), values(aux, "aux") if has_aux else None
    gradient = _unflatten(found, spec)
    return (gradient, (output, aux)) if has_aux else (gradient, output)


def grad_and_value(func, argnums=0, has_aux=False):
    """A function that gives the gradient of func's result, a number, and that result."""

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        return _grad_and_value(func, argnums, has_aux, args, kwargs)

    return wrapper


def grad(func, argnums=0, has_aux=False):
    """The gradient of a function whose result is a number, by its arguments argnums.

    cosine = grad(torch.sin)       # and grad(grad(torch.sin)) is -sin
    """

    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        gradient, output = _grad_and_value(func, argnums, has_aux, args, kwargs)
        return (gradient, output[1]) if has_aux else gradient

    return wrapper


# ---- vjp ----


def _check_outputs(flat, api):
    if not flat or flat == [None]:
        raise RuntimeError(f"{api}: Expected f to be a function that has non-empty output (got output = {flat})")
    for output in flat:
        if not isinstance(output, _C.Tensor):
            raise RuntimeError(
                f"{api}: expected f(*primals) to return only tensors, got unsupported type {type(output)}"
            )


def _pullback(outputs, spec, leaves, leaves_spec):
    """The function of cotangents."""

    @run_whole
    def wrapper(cotangents, retain_graph=True, create_graph=None):
        flat, cotangents_spec = _flatten(cotangents)
        if cotangents_spec != spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                f"cotangents: {_pytree.treespec_pprint(cotangents_spec)}, primal output: {_pytree.treespec_pprint(spec)}"
            )
        if create_graph is None:
            create_graph = _C.is_grad_enabled()
        return _unflatten(_gradients(outputs, leaves, flat, retain_graph, create_graph), leaves_spec)

    return wrapper


@run_whole
def _vjp_with_argnums(func, *primals, argnums=None, has_aux=False):
    with level(GRAD), _C.enable_grad():
        primals = wrap(primals)
        if argnums is None:
            leaves = _pytree.tree_map(_leaf, primals)
            outputs = func(*leaves)
        else:
            argnums = _positions(argnums, len(primals))
            leaves = _pytree.tree_map(_leaf, _pick(primals, argnums))
            outputs = func(*_replace(primals, argnums, leaves))
        aux = None
        if has_aux:
            outputs, aux = _split_aux(outputs, "vjp(f, *primals)")
            aux = values(aux, "aux")
        flat, spec = _flatten(outputs)
        _check_outputs(flat, "vjp(f, *primals)")
        for output in flat:
            if not (output.is_floating_point() or output.is_complex()):
                raise RuntimeError(
                    "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                    f"{output.dtype}"
                )
        results = _unflatten([value(o) for o in flat], spec)
    pullback = _pullback(flat, spec, *_flatten(leaves))
    return (results, pullback, aux) if has_aux else (results, pullback)


def vjp(func, *primals, has_aux=False):
    """(func(*primals), a function from gradients of the results to those of the primals, as a tuple).

    y, pull = vjp(torch.sin, x)
    (dx,) = pull(torch.ones_like(y))
    """
    return _vjp_with_argnums(func, *primals, has_aux=has_aux)


# ---- jvp ----

_JVP = "jvp(f, primals, tangents)"


def _check_tuple(x, name):
    if not isinstance(x, tuple):
        raise RuntimeError(f"{_JVP}: Expected {name} to be a tuple. E.g. it should be valid to call f(*primals).")


def _check_tensors(flat, name):
    if not flat:
        raise RuntimeError(f"{_JVP}: Expected {name} to contain at least one Tensor.")
    for x in flat:
        if not isinstance(x, _C.Tensor):
            raise RuntimeError(f"{_JVP}: Expected {name} to only contain Tensors, got {type(x)}")


def _take_dual(dual, strict):
    if not isinstance(dual, _C.Tensor):
        raise RuntimeError(f"{_JVP}: expected f(*primals) to return only tensors, got unsupported type {type(dual)}")
    primal, tangent = value(dual), _C._level_tangent(dual)
    if tangent is None and strict:
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed "
            "with strict=True."
        )
    return primal, tangent


def _dual(primal, tangent):
    from ..autograd.forward_ad import check_dual

    check_dual(primal, tangent)
    return _C._level_wrap(primal, -1, tangent)


@run_whole
def _jvp_with_argnums(func, primals, tangents, argnums, *, strict=False, has_aux=False):
    _check_tuple(primals, "primals")
    argnums = None if argnums is None else _positions(argnums, len(primals))
    inputs = primals if argnums is None else _tuple(_pick(primals, argnums))
    flat, spec = _flatten(inputs)
    flat_tangents, tangents_spec = _flatten(tangents)
    if spec != tangents_spec:
        raise RuntimeError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple "
            f"of 3 tensors, tangents also must be. Got primals with structure {spec} and tangents with structure "
            f"{tangents_spec}"
        )
    _check_tensors(flat, "primals")
    _check_tensors(flat_tangents, "tangents")
    with level(FORWARD):
        duals = _unflatten([_dual(p, t) for p, t in zip(flat, flat_tangents, strict=True)], spec)
        if argnums is not None:
            others = wrap(primals)
            duals = _replace(others, argnums, duals[0] if isinstance(argnums, int) else duals)
        output, aux = func(*duals), None
        if has_aux:
            output, aux = _split_aux(output, _JVP)
            aux = values(aux, "aux")
        flat, spec = _flatten(output)
        if not flat or flat == [None]:
            _check_outputs(flat, _JVP)
        taken = [_take_dual(dual, strict) for dual in flat]
    primals_out = _unflatten([p for p, _ in taken], spec)
    tangents_out = _unflatten([_C.zeros_like(p) if t is None else t for p, t in taken], spec)
    return (primals_out, tangents_out, aux) if has_aux else (primals_out, tangents_out)


def jvp(func, primals, tangents, *, strict=False, has_aux=False):
    """(func(*primals), the derivative of it in the direction `tangents`).

    y, dy = jvp(torch.sin, (x,), (torch.ones_like(x),))
    """
    return _jvp_with_argnums(func, primals, tangents, None, strict=strict, has_aux=has_aux)


def _check_tangents(flat, primals):
    for k, (t, p) in enumerate(zip(flat, primals, strict=True)):
        for what, of_t, of_p in (
            ("shape", t.shape, p.shape),
            ("device", t.device, p.device),
            ("dtype", t.dtype, p.dtype),
        ):
            if of_t != of_p:
                raise RuntimeError(
                    f"tangent:{k} with {what} {of_t} in flattened pytree doesn't match the {what} {of_p} of the "
                    "corresponding primal."
                )


def linearize(func, *primals):
    """(func(*primals), the derivative there as a function of tangents), which does not call func again.

    y, push = linearize(torch.sin, x)
    dy = push(torch.ones_like(x))
    """
    output, pull = vjp(func, *primals)
    flat, spec = _flatten(primals)
    zeros = _pytree.tree_map(_C.zeros_like, output)
    _, transposed = vjp(pull, zeros)  # pull is linear: its derivative is the same everywhere

    def push(*tangents):
        given, given_spec = _flatten(tangents)
        if given_spec != spec:
            raise RuntimeError(f"Expected the tangents {given_spec} to have the same argspec as the primals {spec}")
        _check_tangents(given, flat)
        return transposed(tangents)[0]

    return output, push


# ---- Jacobians ----


def _refuse_complex(name, args, kind):
    for k, arg in enumerate(_pytree.tree_leaves(args)):
        if isinstance(arg, _C.Tensor) and arg.dtype.is_complex:
            raise RuntimeError(
                f"{name}: Expected all {kind} to be real but received complex tensor at flattened input idx: {k}"
            )


def _basis(tensors):
    """Each tensor's part of the unit vectors of all of them: (N, *shape)."""
    count = sum(t.numel() for t in tensors)
    parts, start = [], 0
    for t in tensors:
        part = t.new_zeros(count, t.numel())
        part.diagonal(-start).fill_(1)
        parts.append(part.view([count, *t.shape]))
        start += t.numel()
    return parts


def _check_flat_output(output, api):
    if isinstance(output, _C.Tensor):
        return
    if not isinstance(output, tuple):
        raise RuntimeError(f"{api}: Expected output of f to be a Tensor or Tensors, got {type(output)}")
    if not output:
        raise RuntimeError(f"{api}: Expected output of f to be a non-empty tuple of Tensors.")
    for x in output:
        if not isinstance(x, _C.Tensor):
            raise RuntimeError(f"{api}: Expected output of f to be a Tensor or Tensors, got {type(x)} as an output")


def jacrev(func, argnums=0, *, has_aux=False, chunk_size=None, _preallocate_and_copy=False):
    """The Jacobian of a function by its arguments argnums, row by row: (*output shape, *input shape).

    J = jacrev(torch.sin)(x)       # diagonal
    chunk_size: no more rows than that at once.
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args):
        _refuse_complex("jacrev", args, "inputs")
        output, pull, *aux = _vjp_with_argnums(func, *args, argnums=argnums, has_aux=has_aux)
        _refuse_complex("jacrev", output, "outputs")
        flat, spec = _flatten(output)
        rows = vmap(pull, chunk_size=chunk_size)(_unflatten(_basis(flat), spec))
        by_input, inputs_spec = _flatten(rows)
        # of each input and output its rows, in the output's shape
        split = [x.split([o.numel() for o in flat]) for x in by_input]
        of_output = [
            _unflatten([rows[k].view([*o.shape, *rows[k].shape[1:]]) for rows in split], inputs_spec)
            for k, o in enumerate(flat)
        ]
        result = _unflatten(of_output, spec)
        return (result, *aux) if has_aux else result

    return wrapper


def jacfwd(func, argnums=0, has_aux=False, *, randomness="error"):
    """The Jacobian as jacrev gives it, column by column: cheaper where there are more outputs than inputs."""

    @functools.wraps(func)
    def wrapper(*args):
        _refuse_complex("jacfwd", args, "inputs")
        places = _positions(argnums, len(args))
        inputs = _tuple(_pick(args, places))
        flat, spec = _flatten(inputs)

        def push(*basis):
            tangents = _unflatten(list(basis), spec)
            output, derivative, *aux = _jvp_with_argnums(func, args, tangents, argnums, has_aux=has_aux)
            _check_flat_output(output, "jacfwd")
            return (derivative, output, *aux)

        out_dims = (0, None, None) if has_aux else (0, None)
        columns, output, *aux = vmap(push, out_dims=out_dims, randomness=randomness)(*_basis(flat))
        _refuse_complex("jacfwd", output, "outputs")
        by_output, output_spec = _flatten(columns)
        sizes = [x.numel() for x in flat]
        of_output = []
        for x in by_output:
            parts = [
                part.movedim(0, -1).reshape([*part.shape[1:], *i.shape])
                for part, i in zip(x.split(sizes), flat, strict=True)
            ]
            of_input = _unflatten(parts, spec)
            of_output.append(of_input[0] if isinstance(argnums, int) else of_input)
        result = _unflatten(of_output, output_spec)
        return (result, *aux) if has_aux else result

    return wrapper


def hessian(func, argnums=0):
    """Second derivatives: the Jacobian, forward, of the Jacobian, backward."""
    return jacfwd(jacrev(func, argnums), argnums)


# ---- functionalize ----


def functionalize(func, *, remove="mutations"):
    """The function, as it is: what wick records of it has no mutations, whatever the program writes
    (torch.fx.experimental.proxy_tensor.make_fx)."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced with "
            "their out-of-place equivalents.\n     remove='mutations_and_views': In addition to the above, all aliasing "
            "operators {view} will be replaced with their non-aliasing counterparts, {view}_copy.\n"
        )

    @functools.wraps(func)
    def wrapped(*args, **kwargs):
        return func(*args, **kwargs)

    return wrapped

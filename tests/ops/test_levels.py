"""Every row of the operator table under function transforms, by its samples: vmap against a loop over examples, forward
mode against the derivative backward, derivatives of batches and batches of derivatives."""

from sampling import ROWS, arguments, is_random, tensors_in
from test_operators import as_function, cases, has_gradient

import wick
from wick import _C, func

DYNAMIC = {name for name, row in ROWS.items() if "breaks" in row.tests}  # what they give depends on values


# Whose values decide what is done: under vmap an error, as in PyTorch.
STRIDED = "as_strided_scatter(T(3, 4).t(), T(2, 2), (2, 2), (5, 1))"  # about memory, which a stack lays out otherwise
LOOKS_AT_VALUES = ("cov", "quantile", "nanquantile", "masked_select")


def other_example(t):
    """A tensor like it, of other values that are as good."""
    if t.dtype.is_floating_point:
        return t * 0.9 + 0.05
    if t.dtype == wick.complex128:
        return t * (0.9 + 0.1j)
    return t.flatten().flip(0).view(t.shape)


def replaced(value, tensors):
    if isinstance(value, wick.Tensor):
        return next(tensors)
    if isinstance(value, (tuple, list)):
        return type(value)(replaced(item, tensors) for item in value)
    return value


def as_function_of_all(name, sample):
    """The operator as a function of all its tensors, and those."""
    args, kwargs = arguments(wick, sample, wick.float64)

    def function(*tensors):
        stream = iter(tensors)
        call_args = replaced(args, stream)
        out = _C._operator(name)(*call_args, **{k: replaced(v, stream) for k, v in kwargs.items()})
        return tuple(tensors_in(out))

    return function, list(tensors_in([args, kwargs]))


def writes(name):
    return any(p.written for p in ROWS[name].schema.parameters)


def has_batch(name, sample):
    if is_random(name) or name in DYNAMIC or name in LOOKS_AT_VALUES or writes(name):
        return False
    if f"{name}({sample})" == STRIDED:
        return False
    function, tensors = as_function_of_all(name, sample)
    return bool(tensors) and bool(function(*tensors))


def choices(count):
    """Which tensors have a batch: all, and each by itself."""
    return [tuple(range(count))] + ([(k,) for k in range(count)] if count > 1 else [])


def check_batch(function, tensors, chosen):
    examples = [tensors, [other_example(t) if k in chosen else t for k, t in enumerate(tensors)]]
    try:
        wanted = [wick.stack(results) for results in zip(*(function(*e) for e in examples), strict=True)]
    except (RuntimeError, IndexError):
        return  # the other example has a result of another shape, or none
    dims = [(t.dim() if k % 2 else 0) if k in chosen else None for k, t in enumerate(tensors)]
    batched = [
        t if d is None else wick.stack(pair, d)
        for t, d, pair in zip(tensors, dims, zip(*examples, strict=True), strict=True)
    ]
    found = func.vmap(function, tuple(dims))(*batched)
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape and f.dtype == w.dtype, (chosen, f.shape, w.shape, f.dtype)
        wick.testing.assert_close(f, w, rtol=1e-9, atol=1e-9, equal_nan=True, msg=lambda m: f"{chosen}: {m}")


@cases(has_batch)
def test_vmap(name, sample):
    function, tensors = as_function_of_all(name, sample)
    for chosen in choices(len(tensors)):
        masks = name == "index.Tensor" and any(tensors[k].dtype == wick.bool for k in chosen)
        if not masks:  # how many elements they choose is another number for each example
            check_batch(function, tensors, chosen)


def inner_product(a, b):
    return sum((x * y).sum() for x, y in zip(a, b, strict=True))


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def directions(tensors, seed):
    generator = wick.Generator().manual_seed(seed)
    return tuple(wick.randn(t.shape, dtype=t.dtype, generator=generator) for t in tensors)


def results_with_history(name, sample, inputs):
    """The operator as a function of its float tensors that gives the results with a derivative."""
    leaves = tuple(t.clone().requires_grad_() for t in inputs)
    kept = [k for k, r in enumerate(all_results(name, sample, leaves)) if r.requires_grad]

    def function(*tensors):
        results = all_results(name, sample, tensors)
        return tuple(results[k] for k in kept)

    return function


# The derivative that is recorded keeps the gradient of what was overwritten, as PyTorch's does.
NO_TRANSPOSE = {STRIDED}


@cases(lambda name, sample: f"{name}({sample})" not in NO_TRANSPOSE and has_gradient(name, sample))
def test_forward_is_the_transpose_of_backward(name, sample):
    inputs = tuple(t.detach() for t in as_function(name, sample)[1])
    chosen = results_with_history(name, sample, inputs)
    tangents = directions(inputs, 1)
    results, forward = func.jvp(chosen, inputs, tangents)
    cotangents = directions(results, 2)
    backward = func.vjp(chosen, *inputs)[1](cotangents)
    left, right = inner_product(forward, cotangents), inner_product(backward, tangents)
    assert abs(left - right) <= 1e-8 * max(1, abs(left)), (left, right)


def all_results(name, sample, tensors):
    """Float results of the operator for these in the place of its float tensors."""
    args, kwargs = arguments(wick, sample, wick.float64)
    stream = iter(tensors)

    def rebuild(value):
        if isinstance(value, wick.Tensor):
            return next(stream) if value.dtype == wick.float64 else value
        if isinstance(value, (tuple, list)):
            return type(value)(rebuild(item) for item in value)
        return value

    out = _C._operator(name)(*rebuild(args), **{k: rebuild(v) for k, v in kwargs.items()})
    return [t for t in tensors_in(out) if t.dtype == wick.float64]


@cases(lambda name, sample: name not in LOOKS_AT_VALUES and has_gradient(name, sample))
def test_gradients_of_examples(name, sample):
    """The gradients of each example by itself are those of the sum of all."""
    inputs = tuple(t.detach() for t in as_function(name, sample)[1])
    function = results_with_history(name, sample, inputs)
    both = tuple(wick.stack([t, other_example(t)]) for t in inputs)

    def loss(*tensors):
        return inner_product(function(*tensors), weights)

    weights = directions(function(*inputs), 3)
    everything = tuple(range(len(inputs)))
    one_by_one = [func.grad(loss, everything)(*(t[k].clone() for t in both)) for k in range(2)]
    wanted = [wick.stack(pair) for pair in zip(*one_by_one, strict=True)]
    batch_of_gradients = func.vmap(func.grad(loss, everything))(*both)
    gradient_of_batch = func.grad(lambda *all: func.vmap(loss)(*all).sum(), everything)(*both)
    for found in batch_of_gradients, gradient_of_batch:
        for f, w in zip(found, wanted, strict=True):
            wick.testing.assert_close(f, w, rtol=1e-8, atol=1e-8, equal_nan=True)

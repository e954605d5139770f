"""Every operator on tracing tensors: captured and replayed it gives the bits, strides and gradients of the eager call."""

import pytest
from sampling import ROWS, SAMPLES, arguments, has_method_in_place

import wick
from wick import _C


def cases(chosen):
    return pytest.mark.parametrize("name,sample", [pytest.param(*c, id=f"{c[0]}({c[1]})") for c in chosen])


def has_inplace_form(name, sample):
    if not has_method_in_place(name):
        return False
    args = arguments(wick, sample, wick.float64)[0]
    return bool(args) and isinstance(args[0], wick.Tensor)


def described(result):
    if isinstance(result, wick.Tensor):
        grad = (result.requires_grad, result.grad_fn is not None)  # its name may be CompiledFunctionBackward
        return (str(result.dtype), tuple(result.shape), tuple(result.stride()), repr(result.tolist()), grad)
    if isinstance(result, (tuple, list)):
        return [described(r) for r in result]
    return result


def outcome(function, args):
    wick.manual_seed(7)
    try:
        return described(function(*args))
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error), str(error)


def inputs_of(sample, requires_grad):
    args, kwargs = arguments(wick, sample, wick.float64)

    def asking(value):
        if isinstance(value, wick.Tensor) and value.is_floating_point():
            return value.detach().clone(memory_format=wick.preserve_format).requires_grad_()
        return [asking(v) for v in value] if isinstance(value, list) else value

    return ([asking(a) for a in args], kwargs) if requires_grad else (args, kwargs)


@pytest.mark.parametrize("requires_grad", [False, True], ids=["plain", "grad"])
@cases(SAMPLES)
def test_captured(name, sample, requires_grad):
    operator = _C._operator(name)
    keywords = arguments(wick, sample, wick.float64)[1]

    def function(*args):
        return operator(*args, **keywords)

    compiled = _C.Compiled(function)
    for _ in range(3):
        args, _ = inputs_of(sample, requires_grad)
        others, _ = inputs_of(sample, requires_grad)
        assert outcome(compiled, args) == outcome(function, others)
        assert described(args) == described(others)
    errs = isinstance(outcome(function, inputs_of(sample, requires_grad)[0]), tuple)
    assert compiled.captures >= 1 or errs or "breaks" in ROWS[name].tests


@cases([case for case in SAMPLES if has_inplace_form(*case)])
def test_captured_in_place(name, sample):
    method = name.split(".")[0] + "_"
    keywords = arguments(wick, sample, wick.float64)[1]

    def function(target, *rest):
        view = target.view(-1) if target.is_contiguous() else target
        getattr(target, method)(*rest, **keywords)
        return view + 0

    compiled = _C.Compiled(function)
    for _ in range(3):
        ours, theirs = arguments(wick, sample, wick.float64)[0], arguments(wick, sample, wick.float64)[0]
        assert outcome(compiled, ours) == outcome(function, theirs)
        assert described(ours) == described(theirs)

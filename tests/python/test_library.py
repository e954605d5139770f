"""torch.library: operators that programs define."""

import pytest

import wick
from wick import library


@pytest.fixture(autouse=True)
def no_operators(monkeypatch):
    monkeypatch.setattr(library, "_operators", {})


def test_custom_op_with_derivative_and_fake():
    @library.custom_op("mylib::scaled", mutates_args=())
    def scaled(x: wick.Tensor, factor: float = 2.0) -> wick.Tensor:
        return x * factor

    assert scaled._schema == "(Tensor x, float factor=2.0) -> Tensor"
    x = wick.ones(2, requires_grad=True)
    library.register_autograd(
        "mylib::scaled",
        lambda ctx, g: (g * ctx.factor, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]),
    )
    wick.ops.mylib.scaled(x, factor=3.0).sum().backward()
    assert x.grad.tolist() == [3, 3]
    scaled.register_fake(lambda x, factor=2.0: wick.empty_like(x))
    assert scaled(wick.ones(4, device="meta")).shape == (4,)
    assert wick.compile(lambda t: wick.ops.mylib.scaled(t) + 1)(wick.ones(2)).tolist() == [3, 3]


def test_define_and_impl():
    library.define("mylib::plus", "(Tensor x, int n=1) -> Tensor")

    @library.impl("mylib::plus", "cpu")
    def plus(x, n=1):
        return x + n

    assert wick.ops.mylib.plus(wick.zeros(1), 4).item() == 4
    made = library.Library("other", "DEF")
    made.define("twice(Tensor x) -> Tensor")
    made.impl("twice", lambda x: x * 2, "CPU")
    assert wick.ops.other.twice.default(wick.ones(1)).item() == 2


def test_errors():
    with pytest.raises(RuntimeError, match="operator mylib::none does not exist"):
        library.register_autograd("mylib::none", lambda ctx, g: g)
    with pytest.raises(AttributeError, match="has no attribute 'none'"):
        wick.ops.mylib.none  # noqa: B018
    library.define("mylib::empty", "(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="Could not run 'mylib::empty'"):
        wick.ops.mylib.empty(wick.ones(1))
    with pytest.raises(ValueError, match="must have a type annotation"):
        library.custom_op("mylib::bare", lambda x: x, mutates_args=())
    with pytest.raises(OSError, match="Could not load"):
        wick.ops.load_library("/nowhere.so")


def test_fake_before_the_definition():
    library.register_fake("mylib::late", lambda x: wick.empty_like(x))
    library.define("mylib::late", "(Tensor x) -> Tensor")
    assert wick.ops.mylib.late(wick.ones(3, device="meta")).shape == (3,)


def test_an_opaque_operator_without_a_derivative():
    @library.custom_op("mylib::plain", mutates_args=())
    def plain(x: wick.Tensor) -> wick.Tensor:
        return x * 2

    y = plain(wick.ones(2, requires_grad=True))
    assert type(y.grad_fn).__name__ == "GeneratedBackwardFor_mylib_plain_defaultBackward"
    with pytest.raises(
        RuntimeError, match="backward through mylib.plain.default but no autograd formula was registered"
    ):
        y.sum().backward()
    library.define("mylib::open", "(Tensor x) -> Tensor")
    library.impl("mylib::open", "cpu", lambda x: x * 2)
    x = wick.ones(2, requires_grad=True)
    wick.ops.mylib.open(x).sum().backward()  # the tape looks into it
    assert x.grad.tolist() == [2.0, 2.0]


def test_what_an_opaque_operator_may_not_do():
    same = library.custom_op("mylib::same", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="same: The output of this custom operator .1. must not also be an input"):
        same(wick.ones(2))
    with pytest.raises(RuntimeError, match="same: The output of this custom operator"):
        library.custom_op("mylib::same", lambda x: x[:1], mutates_args=(), schema="(Tensor x) -> Tensor")(wick.ones(2))
    written = library.custom_op("mylib::written", lambda x: None, mutates_args=("x",), schema="(Tensor(a!) x) -> ()")
    with pytest.raises(RuntimeError, match="Cannot register autograd formula for non-functional operator"):
        written.register_autograd(lambda ctx, g: g)


def test_arguments_by_the_schema():
    library.define("mylib::args", "(Tensor x, int[] n=[1, 2], *, str how='sum', float? scale=None) -> Tensor")
    library.impl("mylib::args", "cpu", lambda x, n, how, scale: x * sum(n) * (scale or 1))
    f = wick.ops.mylib.args
    assert f(wick.ones(1)).item() == 3 and f(wick.ones(1), [2], scale=2.0).item() == 4
    with pytest.raises(
        RuntimeError, match=r"mylib::args\(\) is missing value for argument 'x'. Declaration: mylib::args"
    ):
        f()
    with pytest.raises(RuntimeError, match=r"expected at most 4 argument\(s\) but received 5 argument\(s\)"):
        f(wick.ones(1), [1], "sum", 2.0, 5)
    with pytest.raises(RuntimeError, match="Unknown keyword argument 'other' for operator 'mylib::args'"):
        f(wick.ones(1), other=1)


def test_opcheck():
    x = wick.ones(2, requires_grad=True)
    every = {name: "SUCCESS" for name in library.opcheck.__globals__["ALL"]}

    @library.custom_op("mylib::twice", mutates_args=())
    def twice(x: wick.Tensor) -> wick.Tensor:
        return x * 2

    def refused(match, operator, *args):
        with pytest.raises(Exception, match=match) as caught:
            library.opcheck(operator, args)
        assert type(caught.value).__name__ == "OpCheckError"

    refused("test_faketensor failed with There was no fake impl registered for <CustomOpDef.mylib::twice.>", twice, x)
    twice.register_fake(lambda x: wick.empty_like(x))
    refused("test_aot_dispatch_dynamic failed with Trying to backward through mylib.twice.default", twice, x)
    found = library.opcheck(twice, (x,), raise_exception=False)
    assert isinstance(found.pop("test_aot_dispatch_dynamic"), RuntimeError) and set(found.values()) == {"SUCCESS"}
    twice.register_autograd(lambda ctx, g: g * 2)
    assert library.opcheck(twice, (x,)) == library.opcheck(wick.ops.mylib.twice, (x,)) == every
    assert library.opcheck(twice, (x,), test_utils="test_schema") == {"test_schema": "SUCCESS"}

    @library.custom_op("mylib::lying", mutates_args=())
    def lying(x: wick.Tensor) -> wick.Tensor:
        return x.add_(1).sum()

    lying.register_fake(lambda x: wick.empty_like(x))
    refused("test_schema failed with Argument x is not defined as mutable but was mutated", lying, wick.ones(2))

    @library.custom_op("mylib::summed", mutates_args=())
    def summed(x: wick.Tensor) -> wick.Tensor:
        return x.sum()

    summed.register_fake(lambda x: wick.empty_like(x))
    refused("found mismatched tensor metadata: Shapes .* are not equal", summed, wick.ones(2))

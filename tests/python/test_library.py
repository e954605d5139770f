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

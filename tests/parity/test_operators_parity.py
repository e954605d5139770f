"""Every sample of the operator table against an installed PyTorch: values, sizes, strides, dtypes in f64, f32, bf16 and, where
the arguments are floats, the type and first line of errors for wrong dtypes."""

import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path[:0] = [
    str(pathlib.Path(__file__).parent.parent / "ops"),
    str(pathlib.Path(__file__).parent.parent.parent / "tools"),
]
import wick  # noqa: E402, I001
from record_operators import oracle  # noqa: E402
from sampling import SAMPLES, arguments, is_random, tensors_in  # noqa: E402
from wick import _C  # noqa: E402

CASES = [
    pytest.param(name, sample, id=f"{name}({sample})")
    for name, sample in SAMPLES
    if not (is_random(name) and "True" in sample)
]


def outcome(function, library, sample, dtype):
    """(shape, dtype, stride, values) of every result, or the error's type."""
    args, kwargs = arguments(library, sample, getattr(library, dtype))
    try:
        result = function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  compared below
        return type(error).__name__
    return [(tuple(t.shape), str(t.dtype), t.stride(), t.double().flatten().tolist()) for t in tensors_in(result)]


@pytest.mark.parametrize("dtype,tolerance", [("float64", 1e-11), ("float32", 2e-5)])
@pytest.mark.parametrize("name,sample", CASES)
def test_values(name, sample, dtype, tolerance):
    ours = outcome(_C._operator(name), wick, sample, dtype)
    theirs = outcome(oracle(name), torch, sample, dtype)
    assert [r[:3] for r in ours] == [r[:3] for r in theirs]
    for o, t in zip(ours, theirs, strict=True):
        assert o[3] == pytest.approx(t[3], rel=tolerance, abs=tolerance, nan_ok=True)


@pytest.mark.parametrize(
    "call",
    [
        "t.randn(2, 3) + t.randn(4)",
        "t.randn(2, 3) @ t.randn(2, 3)",
        "t.randn(2, 3).view(7)",
        "t.randn(2, 3).view(-1, -1)",
        "t.randn(2, 3).permute(0, 0)",
        "t.randn(2, 3).transpose(0, 5)",
        "t.randn(2, 3)[5]",
        "t.randn(2, 3)[0, 0, 0]",
        "t.randn(2, 3).squeeze(7)",
        "t.randn(2, 3).sum(9)",
        "t.zeros(-1)",
        "t.ones(2).add_(t.ones(3))",
        "t.ones(2, dtype=t.int64).add_(1.5)",
        "t.cat([])",
        "t.cat([t.ones(2, 3), t.ones(3, 2)])",
        "t.stack([t.ones(2), t.ones(3)])",
        "t.mean(t.ones(2, dtype=t.int64))",
        "t.ones(2, dtype=t.bool) - t.ones(2, dtype=t.bool)",
        "t.randn(3).expand(2, 4)",
        "t.nn.functional.linear(t.randn(2, 3), t.randn(4, 5))",
        "t.bmm(t.randn(2, 3), t.randn(2, 3))",
        "t.tensor([[1], [2, 3]])",
        "t.add(t.ones(2), 'x')",
        "t.relu()",
        "t.relu(t.ones(2), 3, 4)",
        "t.softmax(t.ones(2), dim='a')",
        "bool(t.ones(2))",
        "t.ones(2).item()",
        "t.randn(2, 3).narrow(0, 1, 5)",
        "t.randn(2, 3).split(0)",
        "t.arange(0, 1, 0)",
        "t.ones(2).nope",
        "t.empty(0).max()",
        "t.nn.functional.embedding(t.tensor([7]), t.randn(3, 2))",
        "t.ones(3)[t.tensor([5])]",
        "t.argmax(t.empty(0))",
        "t.nn.functional.cross_entropy(t.randn(2, 3), t.tensor([0, 5]))",
        "len(t.tensor(1))",
        "t.ones(2).numpy().nope",
        "t.pow(t.tensor(2), -1)",
    ],
)
def test_errors(call):
    found = []
    for library in (torch, wick):
        with pytest.raises(Exception) as caught:
            eval(call, {"t": library})
        found.append((type(caught.value).__name__, str(caught.value).splitlines()[0]))
    assert found[1] == found[0]

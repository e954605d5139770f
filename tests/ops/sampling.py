"""The operator table's rows, and the inputs of the generated tests from their samples.

A sample is a Python argument list. In it T(2, 3) is a tensor of floats in (-2, 2), P of floats in (0.5, 2), U in (0.1, 0.9),
S(2, 3) of rows of floats that ascend from -2 to 2, I(high, 2, 3) of integers below high, B(2, 3) of bools; dtype names
stand for dtypes. Numbers come from a generator of our own, so that the same sample is the same in wick, in PyTorch and
in the recorded expectations.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from ops import language  # noqa: E402

ROWS = {row.schema.name: row for row in language.read(sorted((ROOT / "src" / "ops" / "tables").glob("*.ops")))}
TEST_ROWS = {row.schema.name for row in language.read(sorted((ROOT / "tests" / "ops" / "rows").glob("*.ops")))}
SAMPLES = [(name, sample) for name, row in ROWS.items() for sample in row.samples]
DTYPES = ("float64", "float32", "int64", "int32", "bool", "float16", "bfloat16", "uint8")


class Numbers:
    """A multiplicative congruential generator: every number away from kinks and ties by construction."""

    def __init__(self):
        self.state = 20261121

    def unit(self):
        self.state = self.state * 48271 % 2147483647
        return self.state / 2147483647


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def ascending(shape, numbers):
    """Rows of floats, each in the next part of (-2, 2)."""
    n = shape[-1] if shape else 1
    return [-2 + 4 * (k % n + numbers.unit()) / n for k in range(count(shape))]


def namespace(torch, dtype):
    """What a sample's text may name, making tensors of `dtype` with the given library."""
    numbers = Numbers()

    def floats(low, high):
        def make(*shape):
            values = [low + (high - low) * numbers.unit() for _ in range(count(shape))]
            return torch.tensor(values, dtype=torch.float64).reshape(shape).to(dtype)

        return make

    def rows(*shape):
        return torch.tensor(ascending(shape, numbers), dtype=torch.float64).reshape(shape).to(dtype)

    def integers(high, *shape):
        return torch.tensor([int(numbers.unit() * high) for _ in range(count(shape))], dtype=torch.int64).reshape(shape)

    def bools(*shape):
        return torch.tensor([numbers.unit() < 0.5 for _ in range(count(shape))], dtype=torch.bool).reshape(shape)

    names = {"T": floats(-2, 2), "P": floats(0.5, 2), "U": floats(0.1, 0.9), "S": rows, "I": integers, "B": bools}
    names |= {name: getattr(torch, name) for name in DTYPES}
    return names


def arguments(torch, sample, dtype):
    """(args, kwargs) of one sample."""
    return eval(f"(lambda *a, **k: (a, k))({sample})", namespace(torch, dtype))


def meant(name):
    """The row that this one is another name of, or gives copies of the views of; else itself."""
    target = ROWS[name].alias_of
    return next((n for n, row in ROWS.items() if row.symbol == target), name)


def is_random(name):
    return "random" in ROWS[name].flags


def has_method_in_place(name):
    """Whether Tensor has a method that writes its first argument."""
    return "inplace" in ROWS[name].forms


def tensors_in(value):
    """Tensors among arguments or results, in order."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)

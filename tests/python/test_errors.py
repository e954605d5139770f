"""Bad input gives PyTorch's error: its type and the first line of its text, as recorded in errors.json (`t` is the package,
`F` its nn.functional). tests/parity/test_errors_parity.py checks the record against an installed PyTorch."""

import json
import pathlib
import re

import pytest

import wick

RECORD = json.loads((pathlib.Path(__file__).parent / "errors.json").read_text())


def error_of(library, code):
    """(type, first line) of what the code raises; wick's own name reads as PyTorch's."""
    library.manual_seed(0)
    names = {"t": library, "F": library.nn.functional, "inf": float("inf")}
    try:
        (exec if "\n" in code else eval)(code, names)
    except Exception as error:  # noqa: BLE001  compared by the caller
        text = re.sub(r"\bwick\.", "torch.", str(error))
        return type(error).__name__, (text.splitlines() or [""])[0]
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("code,kind,text", [pytest.param(*entry, id=entry[0].replace("\n", "; ")) for entry in RECORD])
def test_error(code, kind, text):
    assert error_of(wick, code) == (kind, text)


def test_a_bad_index_leaves_the_operators_usable():
    table = wick.arange(6.0).reshape(3, 2)
    for index in (3, -1):
        with pytest.raises(IndexError, match="^index out of range in self$"):
            wick.embedding(table, wick.tensor([0, index]))
        with pytest.raises(RuntimeError, match=f"^index {index} is out of bounds for dimension 0 with size 3$"):
            table.gather(0, wick.tensor([[index, 0]]))
    assert wick.embedding(table, wick.tensor([2])).tolist() == [[4.0, 5.0]]
    assert table.gather(0, wick.tensor([[2, 0]])).tolist() == [[4.0, 1.0]]


def test_indices_of_subscripts_count_from_the_end():
    x = wick.arange(3)
    assert x[wick.tensor([-1, -3])].tolist() == [2, 0]
    with pytest.raises(IndexError, match="index -4 is out of bounds for dimension 0 with size 3"):
        x[wick.tensor([-4])]


def test_the_first_index_that_is_out_of_range_is_named():
    index = wick.tensor([0, 7, 1, 9])
    for call in (
        lambda: wick.gather(wick.ones(3), 0, index),
        lambda: wick.ones(3).scatter(0, index, wick.ones(4)),
        lambda: wick.ones(3)[index],
        lambda: wick.gather(wick.ones(3, 2), 0, wick.tensor([[0, 7], [8, 9]])),
        wick.compile(lambda: wick.gather(wick.ones(3), 0, index) * 2),
    ):
        for _ in range(2):
            with pytest.raises(
                (RuntimeError, IndexError), match="^index 7 is out of bounds for dimension 0 with size 3$"
            ):
                call()


def test_binary_cross_entropy_refuses_what_is_no_probability():
    loss = wick.nn.functional.binary_cross_entropy
    one = wick.tensor([1.0])
    for bad in (1.5, -0.5, float("nan")):
        with pytest.raises(RuntimeError, match="^all elements of input should be between 0 and 1$"):
            loss(wick.tensor([bad]), one)
        with pytest.raises(RuntimeError, match="^all elements of target should be between 0 and 1$"):
            loss(one, wick.tensor([bad]))
    assert loss(wick.ones(2, device="meta"), wick.ones(2, device="meta")).shape == ()
    compiled = wick.compile(loss, fullgraph=True)
    for _ in range(2):
        assert compiled(one / 2, one).item() == loss(one / 2, one).item()

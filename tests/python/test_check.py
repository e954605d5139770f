"""torch._check and its kind."""

import subprocess
import sys

import pytest

import wick as torch


def test_what_holds_says_nothing():
    x = torch.ones(2, 3)
    torch._check(x.shape[0] == 2, lambda: "never asked")
    torch._check_is_size(3, max=3)
    torch._check_tensor_all(x > 0)


@pytest.mark.parametrize(
    ("name", "error"),
    [("_check", RuntimeError), ("_check_index", IndexError), ("_check_value", ValueError), ("_check_type", TypeError),
     ("_check_not_implemented", NotImplementedError)],
)  # fmt: skip
def test_the_error_of_what_does_not(name, error):
    with pytest.raises(error, match="of 3"):
        getattr(torch, name)(False, lambda: "of 3")
    with pytest.raises(error, match="Expected cond to be True, but got False"):
        getattr(torch, name)(False)


def test_misuse():
    with pytest.raises(TypeError, match="cond must be a bool, but got a Tensor. For tensor conditions"):
        torch._check(torch.tensor(True))
    with pytest.raises(TypeError, match="cond must be a bool, but got <class 'int'>"):
        torch._check(1)
    with pytest.raises(TypeError, match="message must be a callable"):
        torch._check(False, "text")
    with pytest.raises(TypeError, match="cond must be a tensor, but got <class 'bool'>"):
        torch._check_tensor_all(True)
    with pytest.raises(RuntimeError, match="Expected cond"):
        torch._check_is_size(-1)
    with pytest.raises(ValueError, match="m"):
        torch._check_with(ValueError, False, lambda: "m")
    with pytest.raises(RuntimeError, match="no"):
        torch._check_tensor_all(torch.tensor([True, False]), lambda: "no")


def test_captured():
    def function(x):
        torch._check(x.shape[0] > 1, lambda: f"{x.shape[0]} rows")
        return x * 2

    compiled = torch.compile(function, fullgraph=True)
    assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
    assert compiled(torch.ones(4)).tolist() == [2, 2, 2, 2]
    with pytest.raises(RuntimeError, match="1 rows"):
        compiled(torch.ones(1))


def test_each_name_is_a_function_whichever_was_asked_for_first():
    code = "import wick as torch; torch._check_with(ValueError, True); torch._check(True); torch._check_value(True)"
    subprocess.run([sys.executable, "-c", code], check=True)

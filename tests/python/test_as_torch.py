"""python -m wick: a program with `import torch` served by wick behaves as with plain python."""

import subprocess
import sys

import pytest


def run(*arguments, cwd=None, wick=True):
    command = [sys.executable, *(["-m", "wick"] if wick else []), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def ok(code):
    status, out, err = run("-c", code)
    assert status == 0, err
    return out


def test_torch_is_wick():
    ok(
        "import wick, torch, torch.nn.functional as F, torch.utils.data\n"
        "from torch import nn, optim\n"
        "from torch.optim.lr_scheduler import StepLR\n"
        "assert torch is not wick and torch.__name__ == 'torch'\n"
        "assert torch.__version__ == wick.__version__ == torch.version.__version__ == '2.13.0'\n"
        "assert F is wick.nn.functional and nn is wick.nn and torch.utils.data is wick.utils.data\n"
        "assert torch.nn.Linear is wick.nn.Linear and torch.add is wick.add and torch.float32 is wick.float32\n"
        "assert wick.nn.functional.__spec__.name == 'wick.nn.functional'\n"
        "assert nn.Linear(2, 3)(torch.ones(1, 2)).shape == (1, 3)\n"
    )


def test_a_tensor_says_that_it_is_torchs():
    """By which other libraries choose their functions for it."""
    out = ok("import torch\nprint(type(torch.ones(1)), type(torch.nn.Parameter(torch.ones(1)).data).__module__)")
    assert out == "<class 'torch.Tensor'> torch\n"
    ok(
        "import torch, pickle, copy\nx = torch.ones(2)\nassert pickle.loads(pickle.dumps(torch.Tensor)) is type(copy.deepcopy(x))"
    )


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("torch.nested", "torch.nested exists in PyTorch 2.13 but wick does not have it yet"),
        (
            "torch.nn.Container",
            "torch.nn.Container exists in PyTorch 2.13 but wick does not have it yet",
        ),
        ("torch.nonsense", "module 'torch' has no attribute 'nonsense'"),
    ],
)
def test_missing_names(expression, text):
    assert ok(f"import torch\ntry: {expression}\nexcept AttributeError as e: print(e)").strip() == text


def test_missing_modules():
    code = "import torch\ntry: import torch.{}\nexcept ModuleNotFoundError as e: print(e)"
    assert "exists in PyTorch 2.13 but wick does not have it yet" in ok(code.format("nested"))
    assert ok(code.format("nonsense")).strip() == "No module named 'torch.nonsense'"


NOT_YET = " exists in PyTorch 2.13 but wick does not have it yet"


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("from torch import nested", "ImportError torch.nested" + NOT_YET),
        ("from torch import nn, int_repr", "ImportError torch.int_repr" + NOT_YET),
        (
            "from torch.nn import Linear, Container",
            "ImportError torch.nn.Container" + NOT_YET,
        ),
        ("from torch.distributed import pipelining", "ImportError torch.distributed.pipelining" + NOT_YET),
        ("import torch.distributed.pipelining", "ModuleNotFoundError torch.distributed.pipelining" + NOT_YET),
        ("import torch.nested", "ModuleNotFoundError torch.nested" + NOT_YET),
        ("from torch import nonsense", "ImportError cannot import name 'nonsense' from 'torch' ("),
        ("import torch.nonsense", "ModuleNotFoundError No module named 'torch.nonsense'"),
        ("import torch; torch.ones(2).q_scale()", "AttributeError torch.Tensor.q_scale" + NOT_YET),
        ("import torch; torch.Tensor.q_scale", "AttributeError torch.Tensor.q_scale" + NOT_YET),
        ("import torch; torch.ones(2).nonsense", "AttributeError 'Tensor' object has no attribute 'nonsense'"),
    ],
)
def test_what_missing_names_say(statement, text):
    code = f"try: exec({statement!r})\nexcept Exception as e: print(type(e).__name__, e)"
    assert ok(code).strip().startswith(text)


@pytest.mark.parametrize(
    "statement",
    ["from torch import int_repr", "import torch; torch.int_repr", "import torch; torch.ones(2).q_scale"],
)
def test_a_name_that_is_not_there_yet_is_not_taken_for_a_slip(statement):
    _, _, err = run("-c", statement)
    assert err.strip().endswith(NOT_YET)  # and no "Did you mean"


def test_missing_methods_are_seen_nowhere_else():
    ok(
        "import torch\nt = torch.ones(2)\n"
        "assert not hasattr(t, 'q_scale') and not hasattr(torch.Tensor, 'q_scale') and 'q_scale' not in dir(t)\n"
        "assert getattr(t, 'q_scale', 5) == 5 and 'sum' in dir(t) and hasattr(t, 'sum')\n"
        "class Own(torch.Tensor):\n    def q_scale(self): return 7\n"
        "assert t.as_subclass(Own).q_scale() == 7\n"
        "class Asks(torch.Tensor):\n    def __getattr__(self, name): return name\n"
        "assert t.as_subclass(Asks).q_scale == 'q_scale'\n"
        "torch.Tensor.q_scale = lambda self: 8\nassert t.q_scale() == 8\n"
    )


def test_modules_that_are_not_there_have_no_spec():
    ok(
        "from importlib.util import find_spec\nimport torch\n"
        "for name in ('torch', 'torch.nn', 'torch.nn.functional', 'torch.cuda'): assert find_spec(name).name == name\n"
        "for name in ('torch.anything', 'torch.nested', 'torch.nn.anything', 'torch.distributed.pipelining'):\n"
        "    assert find_spec(name) is None, name\n"
    )


@pytest.mark.parametrize(
    "first", ["", "import torch", "import torch.autograd", "from torch import nn", "import torch.nn"]
)
def test_a_function_stays_where_a_module_has_its_name(first):
    ok(
        f"{first}\nfrom torch.autograd.gradcheck import gradgradcheck\nimport torch, torch.autograd.gradcheck\n"
        "from torch.autograd import gradcheck\n"
        "assert type(gradcheck).__name__ == type(torch.autograd.gradcheck).__name__ == 'function'\n"
        "x = torch.ones(2, dtype=torch.float64, requires_grad=True)\nassert gradcheck(lambda x: x * x, (x,))\n"
    )


@pytest.fixture
def programs(tmp_path):
    (tmp_path / "helper.py").write_text("def boom(): raise ValueError('x')\n")
    (tmp_path / "script.py").write_text(
        "import sys, helper\n"
        "print(__name__, sys.argv, sys.path[0], __file__)\n"
        "if 'exit' in sys.argv: sys.exit(7)\n"
        "if 'text' in sys.argv: sys.exit('bye')\n"
        "if 'interrupt' in sys.argv: raise KeyboardInterrupt\n"
        "if 'boom' in sys.argv: helper.boom()\n"
    )
    (tmp_path / "bad.py").write_text("def f(:\n")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys\nprint(__package__, __spec__.name, sys.argv)\n")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        "script.py",
        "script.py a b",
        "script.py exit",
        "script.py text",
        "script.py interrupt",
        "script.py boom",
        "bad.py",
        "none.py",
        "package",
        "-m script a",
        "-m package",
        "-m none",
        "-m json.none",
        "-c 1/0",
    ],
)
def test_as_plain_python(programs, arguments):
    plain, served = (run(*arguments.split(), cwd=programs, wick=wick) for wick in (False, True))
    if arguments.startswith("-c") and sys.version_info >= (
        3,
        13,
    ):  # it keeps the text of its own -c to show lines of it
        status, out, err = plain
        plain = status, out, err.replace("    1/0\n    ~^~\n", "")
    assert served == plain


def test_traceback_of_a_module_begins_in_it(programs):
    status, _, err = run("-m", "script", "boom", cwd=programs)
    assert status == 1 and "runpy" not in err and "wick" not in err and err.rstrip().endswith("ValueError: x")


def test_spawned_processes_are_served_too(tmp_path):
    (tmp_path / "spawn.py").write_text(
        "import multiprocessing, torch\n"
        "def work(q): q.put(torch.__version__)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    q = context.SimpleQueue()\n"
        "    p = context.Process(target=work, args=(q,)); p.start(); print(q.get()); p.join()\n"
    )
    status, out, err = run("spawn.py", cwd=tmp_path)
    assert (status, out.strip()) == (0, "2.13.0"), err


def test_torchaudio_runs_without_its_compiled_part(tmp_path):
    extension = tmp_path / "torchaudio" / "_extension"
    extension.mkdir(parents=True)
    (tmp_path / "torchaudio" / "__init__.py").write_text("from . import _extension\n")
    (extension / "utils.py").write_text("def _load_lib(lib): raise OSError(lib)\n")
    (extension / "__init__.py").write_text("from .utils import _load_lib\nTHERE = _load_lib('_torchaudio')\n")
    status, out, err = run("-c", "import torchaudio; print(torchaudio._extension.THERE)", cwd=tmp_path)
    assert (status, out.strip()) == (0, "False"), err

"""torch.cuda has every name that PyTorch's has, but those that are listed here. What a name cannot do here it says when it is used."""

import importlib

import pytest

torch = pytest.importorskip("torch")

import wick  # noqa: E402, F401

# Storages by dtype are an older way to write what UntypedStorage is.
LEFT_OUT = {
    "cuda": {
        f"{kind}Storage"
        for kind in "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short".split()
    },
}
MODULES = """cuda cuda.amp cuda.comm cuda.graphs cuda.jiterator cuda.memory cuda.nccl cuda.nvtx cuda.random cuda.sparse
cuda.streams cuda.tunable nn.parallel nn.parallel.comm""".split()


@pytest.mark.parametrize("name", MODULES)
def test_every_name_is_there(name):
    theirs, ours = (importlib.import_module(f"{package}.{name}") for package in ("torch", "wick"))
    missing = {n for n in getattr(theirs, "__all__", ()) if not hasattr(ours, n)}
    assert missing == LEFT_OUT.get(name, set())

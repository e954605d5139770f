"""The nests that are made native when wick is built, as text: those of the most used eager operators whose time is spent
in several steps over each row.

    PYTHONPATH=build/python python tools/record_nests.py > src/cpu/native/built.nests

Runs calls on a wick that logs its nests and prints each once. Tests: tests/python/test_built_nests.py.
"""

import os
import subprocess
import sys

HEAD = """\
# Nests that are made native when wick is built (src/cpu/native/built.h). Written by tools/record_nests.py.
"""
OPERATORS = {
    "_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm",
    "_layer_norm_backward_input", "_layer_norm_backward_weight", "_fused_rms_norm", "_rms_norm_backward_input",
    "_rms_norm_backward_weight", "_native_batch_norm", "_channel_moments",
    "_channel_sums", "_channel_line", "_native_group_norm",
}  # fmt: skip


def calls():
    """Calls whose nests are wanted, on small tensors: a nest knows numbers of dims, not sizes."""
    import wick as torch

    f = torch.nn.functional
    for lead in ((8,), (2, 4), (2, 2, 4)):
        for function in (f.softmax, f.log_softmax):
            x = torch.randn(*lead, 16, requires_grad=True)
            function(x, -1).sum().backward()
    for lead in ((8,), (2, 4)):
        for has_weight in (True, False):
            x = torch.randn(*lead, 16, requires_grad=True)
            weight, bias = (torch.randn(16, requires_grad=True) if has_weight else None for _ in range(2))
            f.layer_norm(x, (16,), weight, bias).sum().backward()
            f.rms_norm(x, (16,), weight).sum().backward()
        f.rms_norm(x, (16,), torch.ones(16), 1e-6)
    f.cross_entropy(torch.randn(8, 16), torch.zeros(8, dtype=torch.int64))
    weight, bias = (torch.rand(4, requires_grad=True) for _ in range(2))
    for sizes in ((8, 4), (2, 4, 3), (2, 4, 3, 3)):
        f.batch_norm(torch.randn(*sizes, requires_grad=True), None, None, weight, bias, True).sum().backward()
        f.group_norm(torch.randn(*sizes, requires_grad=True), 2, weight, bias).sum().backward()


def recorded():
    """The text of built.nests as the package that is imported would have it."""
    environment = dict(os.environ, WICK_LOGS="loop")
    run = subprocess.run(
        [sys.executable, __file__, "--calls"], env=environment, capture_output=True, text=True, check=True
    )
    nests = {}
    for block in run.stderr.split("[wick:loop] ")[1:]:
        name, _, text = block.partition("\n")
        if name in OPERATORS:
            nests.setdefault(text.strip(), name)
    return HEAD + "".join(f"\n# {name}\n{text}\n" for text, name in nests.items())


if __name__ == "__main__":
    calls() if sys.argv[1:] == ["--calls"] else sys.stdout.write(recorded())

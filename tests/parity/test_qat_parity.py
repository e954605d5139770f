"""Layers with rounded weights against PyTorch's: names of qconfigs, results, gradients and running statistics of a step."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import wick  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def pair(name, *args, **kwargs):
    """The same layer of both, with PyTorch's parameters."""
    made = []
    for lib in (torch, wick):
        module = __import__(f"{lib.__name__}.ao.nn.intrinsic.qat", fromlist=["x"])
        qconfig = lib.ao.quantization.get_default_qat_qconfig("x86")
        made.append(getattr(module, name)(*args, qconfig=qconfig, **kwargs).train())
    theirs, ours = made
    with torch.no_grad(), wick.no_grad():
        for n, p in theirs.named_parameters():
            if n.startswith("bn"):
                p.uniform_(0.5, 2)
            dict(ours.named_parameters())[n].copy_(wick.tensor(p.detach().numpy()))
    assert sorted(dict(ours.named_parameters())) == sorted(dict(theirs.named_parameters()))
    return theirs, ours


LAYERS = [
    ("ConvBn2d", (3, 5, 3), {"bias": True}, (4, 3, 8, 8)),
    ("ConvBn2d", (3, 5, 3), {}, (4, 3, 8, 8)),
    ("ConvBnReLU2d", (4, 6, 3), {"groups": 2, "padding": 1}, (2, 4, 6, 6)),
    ("ConvBnReLU1d", (4, 6, 3), {}, (2, 4, 9)),
    ("ConvReLU2d", (3, 4, 2), {}, (2, 3, 5, 5)),
    ("LinearReLU", (6, 4), {}, (5, 6)),
]


@pytest.mark.parametrize("name,args,kwargs,sizes", LAYERS)
def test_steps(name, args, kwargs, sizes):
    torch.manual_seed(0)
    theirs, ours = pair(name, *args, **kwargs)
    for _ in range(3):
        x = torch.randn(sizes)
        wanted, found = theirs(x), ours(wick.tensor(x.numpy()))
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-4)
        factors = torch.randn(wanted.shape)  # the sum of a norm's squares has no gradient
        (wanted * factors).sum().backward()
        (found * wick.tensor(factors.numpy())).sum().backward()
    grads = {n: p.grad.numpy() for n, p in theirs.named_parameters()}
    for n, p in ours.named_parameters():  # 5e-5: a bias in front of a norm has none but what is rounded
        np.testing.assert_allclose(p.grad.numpy(), grads[n], rtol=1e-3, atol=1e-3 * np.abs(grads[n]).max() + 5e-5)
    buffers = dict(theirs.named_buffers())
    for n in ("bn.running_mean", "bn.running_var", "weight_fake_quant.scale"):
        if n in buffers:
            np.testing.assert_allclose(dict(ours.named_buffers())[n].numpy(), buffers[n].numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["x86", "fbgemm", "qnnpack", "onednn"])
@pytest.mark.parametrize("version", [0, 1])
def test_default_qconfigs(backend, version):
    facts = []
    for lib in (torch, wick):
        qconfig = lib.ao.quantization.get_default_qat_qconfig(backend, version)
        for made in (qconfig.activation(), qconfig.weight()):
            own = made.activation_post_process
            facts.append(
                (type(made).__name__, type(own).__name__, own.quant_min, own.quant_max, str(own.qscheme).split(".")[-1])
            )
    assert facts[:2] == facts[2:]

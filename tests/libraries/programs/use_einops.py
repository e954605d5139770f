"""einops: its functions and layers, eager and compiled in one graph."""

import json

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce

torch.manual_seed(0)
x = torch.randn(2, 4, 6, 8, requires_grad=True)
figures = {kind: reduce(x, "b c (h p) w -> b h", kind, p=2).square().sum().item() for kind in ("mean", "max", "min")}
figures["rearrange"] = list(rearrange(x, "b c (h p) w -> (b h) (p c) w", p=2).shape)
figures["repeat"] = repeat(x, "b c h w -> b (c r) h w", r=3).std().item()
figures["einsum"] = einsum(x, torch.randn(8, 5), "b c h w, w k -> b k").square().sum().item()
packed, shapes = pack([x, x[:, :, 0]], "b c * w")
figures["unpack"] = [list(part.shape) for part in unpack(packed, shapes, "b c * w")]
model = torch.nn.Sequential(
    Rearrange("b c h w -> b (h w) c"),
    EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=4, d=3),
    Reduce("b t d -> b d", "mean"),
)
model(x).square().sum().backward()
figures["gradient"] = x.grad.norm().item()


def f(x):
    a, _ = pack([rearrange(x, "b c h w -> b (h w) c"), x.mean((2, 3))], "b * c")
    return reduce(a, "b t c -> b c", "max") + repeat(x.mean((2, 3)), "b c -> b c")


for function in (f, model):
    compiled = torch.compile(function, fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x))
    torch.testing.assert_close(compiled(x[:1]), function(x[:1]))
print(json.dumps(figures))

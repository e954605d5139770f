"""torch.fx.experimental.proxy_tensor."""

from ..proxy import make_graph as make_fx

__all__ = ["make_fx"]

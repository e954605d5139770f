"""torch.ao.nn.quantized: FloatFunctional, with which models write the additions that are to be observed."""

from .... import _C
from ...._names import cannot_be_made
from ...._names import getter as _getter
from ....nn import Identity, Module, functional

__all__ = ["FloatFunctional", "QFunctional"]


class FloatFunctional(Module):
    """Operators as methods, each followed by `activation_post_process`, which quantization replaces."""

    def __init__(self):
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x):
        raise RuntimeError("FloatFunctional is not intended to use the forward. Please use the underlying operation")

    def add(self, x, y):
        """x + y"""
        return self.activation_post_process(_C.add(x, y))

    def add_scalar(self, x, y):
        """x + y for a number"""
        return _C.add(x, y)

    def mul(self, x, y):
        """x * y"""
        return self.activation_post_process(_C.mul(x, y))

    def mul_scalar(self, x, y):
        """x * y for a number"""
        return _C.mul(x, y)

    def cat(self, x, dim=0):
        """The tensors behind each other."""
        return self.activation_post_process(_C.cat(x, dim=dim))

    def add_relu(self, x, y):
        """relu(x + y)"""
        return self.activation_post_process(functional.relu(_C.add(x, y)))

    def matmul(self, x, y):
        """x @ y"""
        return self.activation_post_process(_C.matmul(x, y))


QFunctional = cannot_be_made("torch.ao.nn.quantized.QFunctional", "wick has no quantized tensors")

__getattr__ = _getter(__name__)

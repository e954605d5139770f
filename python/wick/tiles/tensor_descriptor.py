"""Tensors as arguments whose blocks a kernel loads and stores by offsets."""


class TensorDescriptor:
    """A tensor, its shape and strides, and the shape of the blocks; strides but the last may be any, that is 1."""

    def __init__(self, base, shape, strides, block_shape, padding="zero"):
        self.base, self.shape, self.strides = base, list(shape), list(strides)
        self.block_shape, self.padding = list(block_shape), padding
        if not len(self.shape) == len(self.strides) == len(self.block_shape):
            raise ValueError("shape, strides and block_shape have to be of one length")
        if self.strides[-1] != 1:
            raise ValueError("Last dimension must be contiguous")

    @staticmethod
    def from_tensor(tensor, block_shape):
        return TensorDescriptor(tensor, tensor.shape, tensor.stride(), block_shape)

    def parts(self):
        """What a kernel is given: the tensor, sizes, and strides but the last."""
        return [self.base, *self.shape, *self.strides[:-1]]

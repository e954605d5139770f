"""PyTorch's dtypes that wick cannot store. Libraries put them into tables when they are imported; a call that is given one
raises a TypeError."""


class AbsentDtype:
    """Has a dtype's name and size, and is none."""

    is_floating_point = False

    def __init__(self, name, itemsize, is_complex=False):
        self._name, self.itemsize, self.is_complex = name, itemsize, is_complex
        self.is_signed = is_complex

    def __repr__(self):
        return f"torch.{self._name}"

    def __reduce__(self):
        return self._name


uint16, uint32, uint64 = (AbsentDtype(f"uint{8 * size}", size) for size in (2, 4, 8))
complex32 = chalf = AbsentDtype("complex32", 4, is_complex=True)

"""A dtype of PyTorch that wick cannot store. Libraries put it into tables and compare with it; a call that is given it
raises a TypeError."""


class AbsentDtype:
    """Has a dtype's name and size, and is none."""

    is_floating_point, is_complex, is_signed = False, True, True

    def __init__(self, name, itemsize):
        self._name, self.itemsize = name, itemsize

    def __repr__(self):
        return f"torch.{self._name}"

    def __reduce__(self):
        return self._name


complex32 = chalf = AbsentDtype("complex32", 4)

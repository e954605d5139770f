"""Dtypes of PyTorch that wick cannot store. Libraries put them into tables and compare with them; a call that is given one
raises a TypeError."""


class AbsentDtype:
    """Has a dtype's name, size and kind, and is none."""

    def __init__(self, name, itemsize, kind="signed"):
        self._name, self.itemsize, self._kind = name, itemsize, kind

    @property
    def is_complex(self):
        return self._name.startswith("complex")

    @property
    def is_floating_point(self):
        return self._name.startswith("float")

    @property
    def is_signed(self):
        if self._kind == "bits":
            raise RuntimeError("Bits types are undefined")
        return self._kind == "signed"

    def __repr__(self):
        return f"torch.{self._name}"

    def __reduce__(self):
        return self._name


complex32 = chalf = AbsentDtype("complex32", 4)
int1, int2, int3, int4, int5, int6, int7 = (AbsentDtype(f"int{n}", 1) for n in range(1, 8))
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = (AbsentDtype(f"uint{n}", 1, "unsigned") for n in range(1, 8))
bit = uint1
bits1x8, bits2x4, bits4x2, bits8 = (AbsentDtype(name, 1, "bits") for name in ("bits1x8", "bits2x4", "bits4x2", "bits8"))
bits16 = AbsentDtype("bits16", 2, "bits")
float4_e2m1fn_x2 = AbsentDtype("float4_e2m1fn_x2", 1)

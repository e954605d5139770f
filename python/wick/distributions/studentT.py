"""The distribution StudentT, under the name that programs import it by."""

from ._continuous import StudentT

__all__ = ["StudentT"]

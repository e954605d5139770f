"""QConfigMapping: which qconfig an operator of a captured graph has: by its module's name, by its type, or the one of all.

>>> QConfigMapping().set_global(get_default_qconfig("x86")).set_object_type(wick.nn.Linear, None)      # doctest: +SKIP

Tests: tests/python/test_quantize_fx.py.
"""

from collections import OrderedDict

from .qconfig import get_default_qat_qconfig, get_default_qconfig

__all__ = ["QConfigMapping", "get_default_qat_qconfig_mapping", "get_default_qconfig_mapping"]

_KINDS = ("object_type", "module_name_regex", "module_name", "module_name_object_type_order")


class QConfigMapping:
    """What is said later of the same key counts; None leaves what it is said of in floats."""

    def __init__(self):
        self.global_qconfig = None
        for kind in _KINDS:
            setattr(self, f"{kind}_qconfigs", OrderedDict())

    def set_global(self, global_qconfig):
        """Of all that nothing else is said of."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type, qconfig):
        """Of a type of modules or a function."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex, qconfig):
        """Of modules whose names a regular expression matches; the first one that does counts."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name, qconfig):
        """Of a module and what is in it."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(self, module_name, object_type, index, qconfig):
        """Of one call in a module: the how manieth of its type."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def to_dict(self):
        """As from_dict takes it."""
        made = {"": self.global_qconfig}
        for kind in _KINDS:
            pairs = getattr(self, f"{kind}_qconfigs").items()
            made[kind] = [(*(key if isinstance(key, tuple) else (key,)), qconfig) for key, qconfig in pairs]
        return made

    @classmethod
    def from_dict(cls, qconfig_dict):
        """{"": qconfig, "object_type": [(type, qconfig)], ...}"""
        made = cls().set_global(qconfig_dict.get("", None))
        for kind in _KINDS:
            for *key, qconfig in qconfig_dict.get(kind, ()):
                getattr(made, f"set_{kind}")(*key, qconfig)
        return made

    def __repr__(self):
        lines = ["QConfigMapping (", " global_qconfig", f"  {self.global_qconfig}"]
        for kind in _KINDS:
            pairs = getattr(self, f"{kind}_qconfigs")
            lines += [f" {kind}_qconfigs", *(f"  {key}: {qconfig}" for key, qconfig in pairs.items())]
            lines += [] if pairs else ["  OrderedDict()"]
        return "\n".join([*lines, ")"])


def get_default_qconfig_mapping(backend="x86", version=0):
    """get_default_qconfig for all."""
    return QConfigMapping().set_global(get_default_qconfig(backend, version))


def get_default_qat_qconfig_mapping(backend="x86", version=1):
    """get_default_qat_qconfig for all."""
    return QConfigMapping().set_global(get_default_qat_qconfig(backend, version))

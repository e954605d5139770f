"""Patterns of module and file names: * is any part of a name, ** any number of names."""

import re


class GlobGroup:
    """Names that a pattern of `include` matches, and none of `exclude`.

    >>> GlobGroup("models.**", exclude="models.tests.*").matches("models.layers")
    True
    """

    def __init__(self, include, *, exclude=(), separator="."):
        self._text = f"GlobGroup(include={include}, exclude={exclude})"
        self.separator = separator
        self.include, self.exclude = (
            [_compiled(p, separator) for p in ([given] if isinstance(given, str) else given)]
            for given in (include, exclude)
        )

    def matches(self, candidate):
        """Whether a name is one of them."""
        candidate = self.separator + candidate
        return any(p.fullmatch(candidate) for p in self.include) and all(
            not p.fullmatch(candidate) for p in self.exclude
        )

    def __str__(self):
        return self._text

    __repr__ = __str__


def _compiled(pattern, separator):
    apart = re.escape(separator)

    def part(name):
        if name == "**":
            return f"({apart}[^{separator}]+)*"
        if "**" in name:
            raise ValueError("** can only appear as an entire path segment")
        return apart + f"[^{separator}]*".join(map(re.escape, name.split("*")))

    return re.compile("".join(map(part, pattern.split(separator))))

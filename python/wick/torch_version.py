"""torch.torch_version: a version's text that compares as a version: with texts, and with numbers as (2, 1)."""

from ._names import getter as _getter

_PATTERN = (
    r"\s*v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?:-(?P<post_alone>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?\s*"
)
_FIRST, _LAST = (0,), (2,)  # where what is not there stands beside (1, ...), which is
_LETTERS = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}


def _number(text):
    return int(text or 0)


def _release(text):
    """The numbers of 1.2.0 without zeros at the end, which do not count."""
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _local(text):
    """The parts behind the +: numbers come after words."""
    if text is None:
        return _FIRST
    parts = text.replace("-", ".").replace("_", ".").split(".")
    return (1, *((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts))


def _key(text):
    """What a version is ordered by (PEP 440), None of a text that is not one."""
    import re

    found = re.fullmatch(_PATTERN, text, re.IGNORECASE)
    if found is None:
        return None
    part = {name: value and value.lower() for name, value in found.groupdict().items()}
    is_post = part["post"] is not None or part["post_alone"] is not None
    if part["pre"] is not None:
        pre = (1, _LETTERS.get(part["pre"], part["pre"]), _number(part["pre_number"]))
    else:
        pre = _FIRST if part["dev"] is not None and not is_post else _LAST
    post = (1, _number(part["post_alone"] or part["post_number"])) if is_post else _FIRST
    dev = (1, _number(part["dev_number"])) if part["dev"] is not None else _LAST
    return _number(part["epoch"]), _release(part["release"]), pre, post, dev, _local(part["local"])


def _text_of(other):
    """A version as text: of a text, of numbers; else None."""
    if isinstance(other, str):
        return other
    return ".".join(str(item) for item in other) if hasattr(other, "__iter__") else None


class TorchVersion(str):
    """A version's text. With what is no version it compares as a text does.

    >>> TorchVersion("2.13.0") >= (2, 1), TorchVersion("2.13.0") > "2.6"
    (True, True)
    """

    __slots__ = ()

    def _compare(self, name, other):
        text = _text_of(other)
        ours, theirs = _key(str.__str__(self)), text and _key(text)
        if not (ours and theirs):
            return getattr(str, name)(self, other)
        return getattr(ours, name)(theirs)

    def __eq__(self, other):
        return self._compare("__eq__", other)

    def __lt__(self, other):
        return self._compare("__lt__", other)

    def __le__(self, other):
        return self._compare("__le__", other)

    def __gt__(self, other):
        return self._compare("__gt__", other)

    def __ge__(self, other):
        return self._compare("__ge__", other)

    __ne__ = str.__ne__  # as PyTorch's, whose versions are unequal as texts
    __hash__ = str.__hash__


__getattr__ = _getter(__name__)

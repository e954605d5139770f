"""FileCheck: says what a text has to contain, in order; run() raises a RuntimeError where it does not.
Tests: tests/parity/test_schema_parity.py."""

import re


class FileCheck:
    """FileCheck().check("a").check_next("b").check_not("c").run(text)"""

    __module__ = "torch.testing"

    def __init__(self):
        self._checks = []

    def _add(self, kind, pattern, count=1, exactly=False):
        self._checks.append((kind, pattern, count, exactly))
        return self

    def check(self, pattern):
        """It comes somewhere behind what was found before."""
        return self._add("CHECK", pattern)

    def check_not(self, pattern):
        """It does not come between what is found before and behind."""
        return self._add("CHECK-NOT", pattern)

    def check_same(self, pattern):
        """It comes in the same line."""
        return self._add("CHECK-SAME", pattern)

    def check_next(self, pattern):
        """It comes in the next line."""
        return self._add("CHECK-NEXT", pattern)

    def check_count(self, pattern, count, exactly=False):
        """It comes so often, and with `exactly` not once more."""
        return self._add("CHECK-COUNT", pattern, count, exactly)

    def check_dag(self, pattern):
        """It comes somewhere; neighbours of this kind in any order."""
        return self._add("CHECK-DAG", pattern)

    def check_regex(self, pattern):
        """A regular expression matches."""
        return self._add("CHECK-REGEX", pattern)

    def check_source_highlighted(self, pattern):
        """It comes with a line of ~ below."""
        return self._add("CHECK-SOURCE-HIGHLIGHTED", pattern)

    def _find(self, text, pattern, start, end=None, regex=False):
        """(begin, end) of the first match, or None."""
        if regex:
            found = re.compile(pattern).search(text, start, len(text) if end is None else end)
            return found and found.span()
        at = text.find(pattern, start, len(text) if end is None else end)
        return None if at < 0 else (at, at + len(pattern))

    def _fail(self, kind, pattern, text, start):
        raise RuntimeError(
            f'Expected to find "{pattern}" but did not find it\nSearched string:\n{text[start:]}\nFrom {kind}: {pattern}\n'
        )

    def _refuse(self, nots, text, start, end):
        for pattern in nots:
            found = self._find(text, pattern, start, end)
            if found:
                raise RuntimeError(
                    f'Expected to not find "{pattern}" but found it\n{text[found[0] : found[1]]}\nFrom CHECK-NOT: {pattern}\n'
                )

    def _one(self, kind, pattern, text, at):
        if kind == "CHECK-SAME":
            end = text.find("\n", at)
            found = self._find(text, pattern, at, None if end < 0 else end)
        elif kind == "CHECK-NEXT":
            line = text.find("\n", at)
            end = text.find("\n", line + 1) if line >= 0 else -1
            found = line >= 0 and self._find(text, pattern, line + 1, None if end < 0 else end)
        elif kind == "CHECK-SOURCE-HIGHLIGHTED":
            found = self._find(text, pattern, at)
            below = text[text.find("\n", found[0]) + 1 :].split("\n", 1)[0] if found else ""
            found = found if "~" in below else None
        else:
            found = self._find(text, pattern, at, regex=kind == "CHECK-REGEX")
        return found or self._fail(kind, pattern, text, at)

    def run(self, text):
        """Compares a text with what was said."""
        text, at, nots, place = str(text), 0, [], 0
        while place < len(self._checks):
            kind, pattern, count, exactly = self._checks[place]
            place += 1
            if kind == "CHECK-NOT":
                nots.append(pattern)
                continue
            start = at
            if kind == "CHECK-DAG":
                group = [pattern]
                while place < len(self._checks) and self._checks[place][0] == "CHECK-DAG":
                    group.append(self._checks[place][1])
                    place += 1
                spans = [self._one(kind, p, text, start) for p in group]
                first, at = min(s for s, _ in spans), max(e for _, e in spans)
            else:
                first = None
                for _ in range(count):
                    begin, at = self._one(kind, pattern, text, at)
                    first = begin if first is None else first
                if exactly:
                    nots_behind = self._find(text, pattern, at)
                    if nots_behind:
                        raise RuntimeError(
                            f'Expected to not find "{pattern}" but found it\nFrom CHECK-NOT: {pattern}\n'
                        )
            self._refuse(nots, text, start, first if first is not None else at)
            nots = []
        self._refuse(nots, text, at, None)

"""Refuses phrases that a native engineer would stumble over, in code, comments and pages; docs/words.md has the terms."""

import pathlib
import re
import subprocess
import sys

ODD = {
    r"\b[Hh]angs? on\b|\bhanging on\b": "depends on, belongs to",
    r"\b(?:it|which|that|that name|what) is none\b(?! of)": "is not one",
    r"\bgo(?:es|ing)? round\b": "bypasses, wraps around",
    r"\b[Ww]hence\b": "from where",
    r"\b[Nn]obody\b": "nothing, no one; or the passive: 'is not read'",
    r"\banew\b": "again",
    r"\bat the price of\b": "which costs",
    r"\b(?:as )?many an? (?!time)": "many",
    r"\bthere(?:of|with|upon)\b|\bwhere(?:of|upon)\b": "of it, with it",
    r"\bin vain\b": "without effect",
}
SAYS_THEM = {"tools/check_words.py", "tests/python/test_lint_checks.py"}
ENDINGS = {".c", ".h", ".py", ".md", ".ops", ".def", ".build", ".sh"}
ODD = {re.compile(phrase): better for phrase, better in ODD.items()}


def main():
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    failures = 0
    for name in files.stdout.splitlines():
        file = pathlib.Path(name)
        if file.suffix not in ENDINGS or not file.exists() or name in SAYS_THEM:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            for phrase, better in ODD.items():
                for found in phrase.finditer(line):
                    print(f"{name}:{number}: '{found[0]}': say {better}")
                    failures += 1
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())

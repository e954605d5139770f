"""What the pages say is there is there: relative links with their anchors, paths, and the parts of commands.

Of commands are looked at: targets and variables of `make`, modules of `python -m`, scripts, and the options of both,
which have to stand in their source. Looked at are README.md and docs/*.md. Names without a folder (train.py) are the
reader's own files. Of comments in the source, the tests that they name are looked at.
"""

import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("", "src", "src/dynamo", "docs", "tests", "python", "python/wick", "include")
GENERATED = {"wick/operators.h"}
LINK = re.compile(r"\]\(([^)\s]+)\)|<img[^>]*\ssrc=\"([^\"]+)\"")
SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.\-]+(?:/[\w.\-]+)*/[\w\-]+\.(?:c|h|py|md|ops|def|txt|build|svg|sh)")
SETTING = re.compile(r"\bWICK_[A-Z_]+\b")
TEST = re.compile(r"\btests/[\w/]+\.(?:c|py)\b")
PYTHON = re.compile(r"(?:.*/)?python[\d.]*$")


def existing(path):
    return next((ROOT / folder / path for folder in FOLDERS if (ROOT / folder / path).exists()), None)


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def bad_link(page, link):
    if re.match(r"[a-z]+:", link):
        return None
    name, _, anchor = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return f"no file {link}"
    if anchor and anchor not in anchors(target):
        return f"no heading {link}"
    return None


def spoken(text):
    """(line number, text) of what is set as code: spans, and blocks that are fenced or indented."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield number, line.strip()
        else:
            for span in SPAN.finditer(line):
                yield number, span[1]


def source_of(module):
    """The source of a module of the package and of those beside it in its folder; None when there is no such module."""
    base = ROOT.joinpath("python", *module.split("."))
    if base.is_dir():
        return "".join(file.read_text(encoding="utf-8") for file in base.glob("*.py"))
    return base.with_suffix(".py").read_text(encoding="utf-8") if base.with_suffix(".py").exists() else None


def bad_options(words, source, what):
    for word in words:
        if word == "--":
            return
        option = word.partition("=")[0]
        if option.startswith("--") and f'"{option}"' not in source:
            yield f"{what} has no option {option}"


def bad_make(words):
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for word in words:
        if word.startswith("#"):
            return
        if "=" in word:
            name = word.partition("=")[0]
            if not re.search(rf"\b{name}\b", text):
                yield f"make has no variable {name}"
        elif re.fullmatch(r"[\w-]+", word) and not re.search(rf"^{word}:", text, re.MULTILINE):
            yield f"make has no target {word}"


def bad_python(words):
    """Of the words behind `python`."""
    if words[:1] == ["-m"] and words[1:2]:
        module, rest = words[1], words[2:]
        if not module.startswith("wick"):
            return
        source = source_of(module)
        if source is None:
            yield f"no module {module}"
        elif module == "wick":
            yield from bad_python(rest)
        else:
            yield from bad_options(rest, source, module)
    elif words[:1] and "/" in words[0] and words[0].endswith(".py"):
        script = ROOT / words[0]
        if not script.exists():
            yield f"no script {words[0]}"
        else:
            yield from bad_options(words[1:], script.read_text(encoding="utf-8"), words[0])


def bad_command(line):
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if not words:
        return
    if words[0] == "make":
        yield from bad_make(words[1:])
    elif PYTHON.match(words[0]):
        yield from bad_python(words[1:])


def settings():
    """The WICK_ variables that the source knows."""
    files = [
        *ROOT.glob("src/**/*.[ch]"),
        *ROOT.glob("python/**/*.py"),
        *ROOT.glob("tests/**/*.py"),
        ROOT / "meson.build",
    ]
    return set(SETTING.findall("\n".join(file.read_text(encoding="utf-8") for file in files)))


def problems(page, text, known):
    """(line, what is wrong) of a page's text."""
    for number, line in enumerate(text.splitlines(), 1):
        for link in LINK.finditer(line):
            if problem := bad_link(page, link[1] or link[2]):
                yield number, problem
        for name in SETTING.findall(line):
            if name not in known:
                yield number, f"nothing reads {name}"
    for number, code in spoken(text):
        for path in PATH.findall(code):
            outside = path.startswith(("/", "build", ".venv", "~")) or "://" in code or path in GENERATED
            if not outside and not existing(path):
                yield number, f"no file {path}"
        for problem in bad_command(code):
            yield number, problem


def missing_tests(text):
    """(line, what is wrong) of the tests that a source file names."""
    for number, line in enumerate(text.splitlines(), 1):
        for path in TEST.findall(line):
            if not existing(path):
                yield number, f"no file {path}"


def main():
    pages, known, failures = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], settings(), 0
    for page in pages:
        for number, problem in problems(page, page.read_text(encoding="utf-8"), known):
            print(f"{page.relative_to(ROOT)}:{number}: {problem}")
            failures += 1
    for file in sorted(f for place in ("src", "python", "tools") for f in (ROOT / place).rglob("*.[chp]*")):
        if file.suffix in (".c", ".h", ".py"):
            for number, problem in missing_tests(file.read_text(encoding="utf-8")):
                print(f"{file.relative_to(ROOT)}:{number}: {problem}")
                failures += 1
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())

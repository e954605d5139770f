"""A device's memory is its own folder's: elsewhere addresses are computed with, and values come by tensor/host.c.

Refused outside of DEVICES: wk__data(), which is an address to be followed; bytes copied or set at a tensor's address; and
the CPU's headers, but for what is listed with its reason.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
DEVICES = ("cpu", "cuda", "host2")
FOLLOWED = re.compile(r"\bwk__data\(|\bmem(?:cpy|set|move)\([^;]*\b(?:wk__address\(|storage->data)")
CPU_HEADER = re.compile(r'#include "(cpu/[^"]+)"')
KNOWN = {
    "src/compile/tune.c": "max-autotune times the CPU's ways of products",
    "src/compile/pipeline.c": "a graph that was tuned may take the CPU's library",
    "src/python/module.c": "what tests and reports ask of the CPU's memory and tier 0",
}


def problems(name, text):
    for line, code in enumerate(text.splitlines(), 1):
        if FOLLOWED.search(code) and not code.startswith("static inline char *wk__data"):
            yield line, "follows an address in a device's memory: see tensor/tensor.h, a tensor's values on the host"
        header = CPU_HEADER.search(code)
        if header and name not in KNOWN:
            yield line, f"includes {header.group(1)}: ask the device's table, device/device.h"


def main():
    failures = 0
    for path in sorted((ROOT / "src").rglob("*.[ch]")):
        name = path.relative_to(ROOT).as_posix()
        if name.split("/")[1] in DEVICES:
            continue
        for line, problem in problems(name, path.read_text()):
            print(f"{name}:{line}: {problem}")
            failures += 1
    sys.exit(failures > 0)


main()

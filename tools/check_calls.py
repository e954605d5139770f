"""No object of a part uses a name that a later part defines, but for the tables of wiring.c.

Takes a build folder; reads its object files with nm. Headers alone cannot show this: a lower header may declare what an
upper part defines."""

import pathlib
import re
import subprocess
import sys

from check_includes import ORDER

WIRED = {"wk__layers", "wk__upcalls", "wk__device_types"}  # defined in wiring.c, which belongs to no part
OBJECT = re.compile(r"(?:^|.*\.\._)src_(?:(wiring)|([a-z]+)_.*)\.c\.o$")


def names(objects, flag):
    """Object file -> the names that `nm flag` gives."""
    lines = subprocess.run(["nm", "-A", "-P", flag, *objects], capture_output=True, text=True, check=True).stdout
    found = {str(o): set() for o in objects}
    for line in lines.splitlines():
        file, name, kind = line.split(": ", 1)[0], *line.split(": ", 1)[1].split()[:2]
        if kind in "TDBRVCU":
            found[file].add(name)
    return found


def main(build):
    part_of = {}
    for file in pathlib.Path(build).rglob("*.o"):
        match = OBJECT.match(file.name)
        if match and (match[1] or match[2] in ORDER):
            part_of[file] = match[1] or match[2]
    if len(set(part_of.values())) < 10:
        sys.exit(f"{build}: hardly any objects of src/ there")
    defined = {
        name: part_of[pathlib.Path(o)] for o, found in names(part_of, "--defined-only").items() for name in found
    }
    failures = 0
    for file, used in names(part_of, "--undefined-only").items():
        part = part_of[pathlib.Path(file)]
        if part == "wiring":
            continue
        for name in sorted(used & defined.keys() - WIRED):
            if defined[name] == "wiring" or ORDER.index(defined[name]) > ORDER.index(part):
                print(f"{pathlib.Path(file).name}: uses {name}, which {defined[name]}/ behind {part}/ defines")
                failures += 1
    return failures > 0


sys.exit(main(sys.argv[1]))

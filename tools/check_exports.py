"""The library exports wk_* only: check_exports.py LIBRARY."""

import subprocess
import sys

names = subprocess.run(["nm", "-D", "--defined-only", "-P", sys.argv[1]], capture_output=True, text=True, check=True)
foreign = [line.split()[0] for line in names.stdout.splitlines() if not line.startswith("wk_")]
for name in foreign:
    print(f"{sys.argv[1]}: exports {name}")
sys.exit(bool(foreign))

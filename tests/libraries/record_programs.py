"""Records what programs/ print where PyTorch and the libraries are: writes programs.json.

python tests/libraries/record_programs.py [name ...]
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def main(names):
    path = HERE / "programs.json"
    recorded = json.loads(path.read_text()) if path.exists() else {}
    for program in sorted((HERE / "programs").glob("use_*.py")):
        name = program.stem.removeprefix("use_")
        if names and name not in names:
            continue
        run = subprocess.run([sys.executable, "-W", "ignore", program], capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"{name}: {run.stderr.strip().splitlines()[-1]}")
            continue
        recorded[name] = json.loads(run.stdout.strip().splitlines()[-1])
        print(name)
    lines = [f"{json.dumps(name)}: {json.dumps(recorded[name])}" for name in sorted(recorded)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

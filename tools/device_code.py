"""Code for the CUDA device, from C to PTX: device_code.py SOURCE OUT.

The PTX is kept beside the source, since a machine that builds wick need not have a compiler for it: clang with the target
NVPTX, of version 14, whose text is the same wherever it runs. `device_code.py --check` says whether what is kept is what
the sources give, and nothing where there is no such compiler.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = ROOT / "src" / "cuda" / "on_device"
OPTIONS = [
    "--target=nvptx64-nvidia-cuda", "-Os", "-S", "-std=gnu11", "-ffreestanding", "-ffp-contract=off", "-Wall", "-Wextra",
    "-Wno-unused-parameter", "-Wno-bitwise-conditional-parentheses", "-Xclang", "-target-feature", "-Xclang", "+ptx70",
    "-Xclang", "-target-cpu", "-Xclang", "sm_70", f"-I{SOURCES / 'libc'}", f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}", "-o", "-",
]  # fmt: skip


def compiler():
    for name in ("clang-14", "clang"):
        if (
            shutil.which(name)
            and "nvptx64"
            in subprocess.run([name, "-print-targets"], capture_output=True, text=True, check=False).stdout
            and " 14." in subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout
        ):
            return name
    return None


# Functions that generated kernels take over stand alone: all that they call is in them.
ALONE = ["-O2", "-mllvm", "-inline-threshold=100000"]
BOUNDS = re.compile(r'^LAUNCH_BOUNDS\("(.*)", (\d+), (\d+)\)', re.MULTILINE)
FUNCTION = re.compile(r"\.visible \.func[^;{]*?\) function_\w+\([^)]*\)\n\{.*?\n\}\n", re.DOTALL)


def ptx_of(source):
    """Its text, without comments; functions named kernel_... are entries."""
    options = OPTIONS + ALONE if source.stem == "functions" else OPTIONS
    text = subprocess.run([compiler(), *options, source], check=True, capture_output=True, text=True).stdout
    text = re.sub(r"//.*", "", text)
    if source.stem == "functions":
        tables = [line for line in text.splitlines() if line.startswith(".global")]
        text = "\n".join([*tables, *FUNCTION.findall(text)])
    text = re.sub(r"\.visible \.func (kernel_\w+)", r".visible .entry \1", text)
    for names, threads, blocks in BOUNDS.findall(source.read_text()):
        bounds = f".maxntid {threads}, 1, 1\n.minnctapersm {blocks}\n{{"
        text = re.sub(rf"(\.visible \.entry kernel_{names}\([^)]*\)\n)\{{", rf"\1{bounds}", text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


def kept(source):
    return SOURCES / "ptx" / f"{source.stem}.ptx"


def main(arguments):
    check = arguments == ["--check"]
    if not compiler():
        print("no clang 14 with the target NVPTX: the code of the device is taken as it is kept")
        return 0 if check else 1
    stale = []
    for source in sorted(SOURCES.glob("*.c")):
        text = ptx_of(source)
        if check and kept(source).read_text() != text:
            stale.append(source.name)
        elif not check:
            kept(source).parent.mkdir(exist_ok=True)
            kept(source).write_text(text)
    for name in stale:
        print(f"src/cuda/on_device/{name}: its PTX is not what the source gives; run tools/device_code.py")
    return bool(stale)


sys.exit(main(sys.argv[1:]))

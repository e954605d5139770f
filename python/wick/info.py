"""python -m wick.info: what wick finds on this machine; --json gives the same for programs.

    python -m wick.info
    python -m wick.info --json
    python -m wick.info script.py    names of PyTorch that the program and its imports need and wick lacks (_needs.py)

Versions, the CPU and the level of the kernels that run on it, threads, the C compiler that compiled code is built with,
the cache of compiled code, and libraries that are used when they are there. Nothing fails when something is missing.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import stat
import subprocess
import sys

# What each is for, and the names its shared library goes by, newest first.
LIBRARIES = {
    "libcuda": ("NVIDIA's driver", ["libcuda.so.1", "libcuda.so"]),
    "libnvrtc": ("compiles CUDA kernels", ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]),
    "libcublasLt": ("matrix products on CUDA", [f"libcublasLt.so{suffix}" for suffix in (".13", ".12", ".11", "")]),
    "libnvJitLink": ("compiles CUDA kernels", [f"libnvJitLink.so{suffix}" for suffix in (".13", ".12", "")]),
    "libcudnn": ("convolutions on CUDA", ["libcudnn.so.9", "libcudnn.so.8", "libcudnn.so"]),
    "libnccl": ("collectives between GPUs", ["libnccl.so.2", "libnccl.so"]),
    "libmpi": ("collectives between machines", ["libmpi.so.40", "libmpi.so.12", "libmpi.so"]),
    "libdnnl": ("matrix products on the CPU", ["libdnnl.so.3", "libdnnl.so.2", "libdnnl.so"]),
}  # fmt: skip

# Run in a process of its own: what a library does when it is loaded is not done to this one.
_PROBE = """
import ctypes, json, os, sys
def path_of(name):
    try:
        ctypes.CDLL(name, os.RTLD_LAZY | os.RTLD_LOCAL)
    except OSError:
        return None
    try:
        with open("/proc/self/maps") as maps:
            return next(line.split(None, 5)[5].strip() for line in maps if "/" + name.split(".so")[0] + ".so" in line)
    except (OSError, StopIteration):
        return name
print(json.dumps(next(filter(None, map(path_of, sys.argv[1:])), None)))
"""


def _run(command, seconds=20):
    """Its standard output, or None when it fails or takes longer."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _version_of(package):
    """The version of an installed package, which is not imported; None when there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions():
    """{"wick", "api" (the PyTorch that is matched), "python", "numpy", "torch"}; None for what is not installed."""
    from . import version

    return {
        "wick": version.wick,
        "api": version.__version__,
        "python": platform.python_version(),
        "numpy": _version_of("numpy"),
        "torch": _version_of("torch"),
    }


def _cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _cache_sizes():
    """{"L1d": bytes, ...} as Linux lists those of the first CPU."""
    sizes = {}
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            sizes[f"L{level}{kind[0].lower() if kind != 'Unified' else ''}"] = int(size.rstrip("K")) * 1024
        except (OSError, ValueError):
            continue
    return sizes


def cpu():
    """{"model", "cpus" it may use, "caches" in bytes, "level" in use, "levels", "asked" by WICK_CPU, "threads"}."""
    from . import _C

    has_affinity = hasattr(os, "sched_getaffinity")
    return {
        "model": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count(),
        "caches": _cache_sizes(),
        "level": _C._cpu_level(),
        "levels": list(_C._cpu_levels()),
        "asked": os.environ.get("WICK_CPU") or None,
        "threads": _C.get_num_threads(),
    }


def compiler():
    """{"command", "path", "version"} of the C compiler that compiled code is built with; path is None without one.

    WICK_CC when it is set, else the first of cc, gcc and clang on PATH.
    """
    wanted = os.environ.get("WICK_CC", "").split()
    for words in [wanted] if wanted else [["cc"], ["gcc"], ["clang"]]:
        path = shutil.which(words[0])
        if path:
            lines = (_run([path, *words[1:], "--version"]) or "").splitlines()
            return {"command": " ".join(words), "path": path, "version": lines[0] if lines else None}
    return {"command": " ".join(wanted) or None, "path": None, "version": None}


def cache_folder():
    """Where compiled kernels are kept, or None: WICK_CACHE_DIR (empty: nowhere), XDG_CACHE_HOME/wick, ~/.cache/wick."""
    own, shared, home = (os.environ.get(name) for name in ("WICK_CACHE_DIR", "XDG_CACHE_HOME", "HOME"))
    if own is not None:
        return own or None
    if shared and shared.startswith("/"):
        return os.path.join(shared, "wick")
    return os.path.join(home, ".cache", "wick") if home and home.startswith("/") else None


def _refusal(folder):
    """Why the folder is not used, or None: it has to be this user's alone, as it holds code that is run."""
    try:
        found = os.lstat(folder)
    except OSError:
        return None  # it is made when it is needed
    if not stat.S_ISDIR(found.st_mode):
        return "it is no folder"
    alone = found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return None if alone else "it is not this user's alone (mode 0700)"


def cache():
    """{"folder", "files", "bytes"} of the cache of compiled kernels, and "refused": why it is not used, or None."""
    folder, files, size = cache_folder(), 0, 0
    for place, _, names in os.walk(folder) if folder else ():
        for name in names:
            try:
                size += os.lstat(os.path.join(place, name)).st_size
                files += 1
            except OSError:
                continue  # another process removed it
    return {"folder": folder, "files": files, "bytes": size, "refused": _refusal(folder) if folder else None}


def libraries():
    """{name: path, or None when it cannot be loaded} of the optional libraries."""
    found = {}
    for name, (_, names) in LIBRARIES.items():
        text = _run([sys.executable, "-I", "-S", "-c", _PROBE, *names])
        found[name] = json.loads(text) if text else None
    return found


def collect():
    """All of it as a dict that JSON can hold."""
    return {
        "versions": versions(),
        "system": platform.platform(),
        "cpu": cpu(),
        "compiler": compiler(),
        "cache": cache(),
        "libraries": libraries(),
    }


# ---- as text ----


def _size_text(size):
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size / 1024:.0f} KiB"


def _cpu_lines(found):
    level = f"{found['level']} (of {', '.join(found['levels'])})"
    if found["asked"] and found["asked"] != found["level"]:
        level += f"; WICK_CPU={found['asked']} is not possible here"
    caches = ", ".join(f"{name} {_size_text(size)}" for name, size in found["caches"].items())
    yield "CPU", f"{found['model']}, {found['cpus']} usable" + (f", {caches}" if caches else "")
    yield "CPU level", level
    yield "threads", found["threads"]


def _lines(found):
    """(label, text) of each line."""
    version, compiled, kept = found["versions"], found["compiler"], found["cache"]
    yield "wick", f"{version['wick']}, PyTorch API {version['api']}"
    yield "Python", f"{version['python']} on {found['system']}"
    yield "NumPy", version["numpy"] or "not installed"
    yield "PyTorch", version["torch"] or "not installed"
    yield from _cpu_lines(found["cpu"])
    if compiled["path"]:
        yield "C compiler", f"{compiled['path']}: {compiled['version'] or 'does not tell its version'}"
    elif compiled["command"]:
        yield "C compiler", f"WICK_CC={compiled['command']} is no program: compiled code stays on the interpreter tier"
    else:
        yield "C compiler", "none (cc, gcc, clang) on PATH: compiled code stays on the interpreter tier"
    if kept["refused"]:
        yield "kernel cache", f"{kept['folder']}: not used, {kept['refused']}; kernels are compiled in each process"
    elif kept["folder"]:
        yield "kernel cache", f"{kept['folder']}: {kept['files']} files, {_size_text(kept['bytes'])}"
    else:
        yield "kernel cache", "off"
    for name, path in found["libraries"].items():
        yield name, path or f"not found ({LIBRARIES[name][0]})"


def text_of(found):
    """What collect() found, a line each."""
    return "\n".join(f"{label:14}{text}" for label, text in _lines(found))


def _print_needs(script, as_json):
    """What a program needs of PyTorch that wick lacks; the exit status."""
    from ._needs import needs
    from ._needs import text_of as text_of_needs

    try:
        found = needs(script)
    except OSError as error:
        print(f"wick.info: can't open file {script!r}: {error.strerror}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1) if as_json else text_of_needs(script, found))
    return 0


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m wick.info",
        description="What wick finds on this machine; with a script, the names of PyTorch that it and its imports need "
        "and wick lacks.",
    )
    parser.add_argument("script", nargs="?", help="a Python program, which is read and not run")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    if options.script is not None:
        return _print_needs(options.script, options.json)
    found = collect()
    print(json.dumps(found, indent=1) if options.json else text_of(found))


if __name__ == "__main__":
    from ._command import run

    run(main)

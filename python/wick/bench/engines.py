"""The engines that are compared, and how a process of each is started.

engine = ENGINES["wick.compile"]
subprocess.run(engine.command("train.py", "--compile"), env=engine.environment())
"""

import importlib.util
import os
import pathlib
import sys
from dataclasses import dataclass

PACKAGE = pathlib.Path(__file__).absolute().parent.parent  # the wick that this file belongs to


@dataclass(frozen=True)
class Engine:
    """Who runs a program that says `import torch`, and whether what is timed is compiled."""

    name: str
    title: str
    library: str  # "wick" or "torch"
    compiled: bool

    def command(self, script, *arguments):
        """The command line that runs `script`, a path, under this engine."""
        prefix = ["-m", "wick"] if self.library == "wick" else []
        return [sys.executable, *prefix, str(script), *map(str, arguments)]

    def environment(self, threads=None, cache=None):
        """os.environ for such a process. cache: a folder that compiled code is kept in, instead of the usual one."""
        environment = dict(os.environ)
        # Not where packages are installed: that is on the path already, behind the standard library.
        if self.library == "wick" and PACKAGE.parent.name not in ("site-packages", "dist-packages"):
            paths = [str(PACKAGE.parent), environment.get("PYTHONPATH")]
            environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        if threads:
            environment.update(WICK_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads))
        if cache:
            names = ("WICK_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
            environment.update((name, os.path.join(cache, name.lower())) for name in names)
        return environment

    def is_installed(self):
        """Whether processes of this engine can be started here."""
        return self.library == "wick" or importlib.util.find_spec("torch") is not None


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("wick", "wick", "wick", False),
        Engine("wick.compile", "wick compiled", "wick", True),
        Engine("torch", "PyTorch", "torch", False),
        Engine("torch.compile", "PyTorch compiled", "torch", True),
    )
}


def chosen(names=None):
    """The engines of these names (a list; items may be comma-separated), or all that are installed.

    Raises ValueError for an unknown name, and for PyTorch where it is not installed.
    """
    if not names:
        return [engine for engine in ENGINES.values() if engine.is_installed()]
    wanted = [name for item in names for name in item.split(",") if name]
    for name in wanted:
        if name not in ENGINES:
            raise ValueError(f"no engine is called {name!r}; there are {', '.join(ENGINES)}")
        if not ENGINES[name].is_installed():
            raise ValueError(f"the engine {name!r} needs PyTorch, which is not installed (pip install torch)")
    return [ENGINES[name] for name in dict.fromkeys(wanted)]

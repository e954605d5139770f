"""Installs libraries that depend on PyTorch without PyTorch, into the environment of the Python that runs this.

    .venv-wick/bin/python packaging/install_libraries.py torchvision==0.28.* timm transformers

Each is installed by `pip install --no-deps`, then what it requires, and so on; torch and what comes with it is left out.
So nothing is downloaded that wick replaces, whatever version of PyTorch a library asks for.
"""

import importlib
import importlib.metadata
import subprocess
import sys

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

LEFT_OUT = {"torch", "triton", "functorch"}  # and nvidia-*, which only torch asks for


def is_met(requirement):
    """Whether a version that fits is installed."""
    try:
        version = importlib.metadata.version(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def requirements_of(requirement):
    """What an installed distribution requires in this environment, with the extras that were asked for."""
    for line in importlib.metadata.requires(requirement.name) or ():
        found = Requirement(line)
        environments = [{"extra": extra} for extra in requirement.extras or [""]]
        if found.marker is None or any(found.marker.evaluate(environment) for environment in environments):
            yield found


def install(requirements):
    """Installs the requirements that are not met, then theirs, until there are none."""
    seen = set()
    while requirements:
        wanted = [r for r in requirements if not is_met(r)]
        if wanted:
            texts = [f"{r.name}{r.specifier}" if not r.url else f"{r.name} @ {r.url}" for r in wanted]
            subprocess.run([sys.executable, "-m", "pip", "install", "--no-deps", *texts], check=True)
            importlib.invalidate_caches()
        seen |= {str(r) for r in requirements}
        following = [r for parent in requirements for r in requirements_of(parent)]
        following = {str(r): r for r in following if canonicalize_name(r.name) not in LEFT_OUT}
        requirements = [r for text, r in following.items() if text not in seen]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        install([Requirement(text) for text in sys.argv[1:]])
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)

"""torch.utils.collect_env: a text about the machine, for reports of mistakes."""

import platform
import sys

from .. import version


def get_pretty_env_info():
    """The text."""
    from ..backends.cpu import get_cpu_capability

    lines = {
        "PyTorch version": f"{version.__version__} (wick {version.wick})", "Is debug build": "False",
        "CUDA used to build PyTorch": "None", "OS": platform.platform(),
        "Python version": sys.version.replace("\n", " "), "Is CUDA available": "False",
        "CPU": f"{platform.machine()} ({get_cpu_capability()})",
    }  # fmt: skip
    return "\n".join(f"{name}: {value}" for name, value in lines.items())


def main():
    """Prints it."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    from .._command import run

    run(main)

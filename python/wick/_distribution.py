"""What importlib.metadata says of the distribution `torch` where wick serves it: libraries ask there before they import."""

from importlib.metadata import Distribution

from .version import __version__

NAME = "torch"
_FILES = {
    "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {__version__}\nSummary: served by wick\n",
    "top_level.txt": f"{NAME}\n",
}


class TorchDistribution(Distribution):
    """A distribution that is not on disk: its metadata are text, and it has no files."""

    def read_text(self, filename):
        """The text of a file of metadata, None where there is none."""
        return _FILES.get(filename)

    def locate_file(self, path):
        """Where a file of the distribution would lie: among wick's."""
        from pathlib import Path

        return Path(__file__).parent.parent / path


def find(context):
    """The distributions that a search finds: this one when torch is asked for, or everything that there is."""
    if context.name is None or context.name.lower().replace("_", "-") == NAME:
        yield TorchDistribution()

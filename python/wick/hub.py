"""torch.hub: weights from an address, models from a folder or a repository that has a hubconf.py.

>>> hub.load("/path/to/folder", "model", source="local")
"""

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from urllib.parse import urlparse

from ._names import getter as _getter

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
MODULE_HUBCONF, VAR_DEPENDENCY = "hubconf.py", "dependencies"
ENV_GITHUB_TOKEN, ENV_TORCH_HOME, ENV_XDG_CACHE_HOME = "GITHUB_TOKEN", "TORCH_HOME", "XDG_CACHE_HOME"
DEFAULT_CACHE_DIR = "~/.cache"
READ_DATA_CHUNK = 128 * 1024
_builtin_list = list
_hub_dir = None


class _Plain:
    """Stands for tqdm where that is not installed: counts, and prints once in a while."""

    def __init__(self, total=None, disable=False, **unused):
        self.total, self.disable, self.n, self._shown = total, disable, 0, -1

    def update(self, count):
        self.n += count
        percent = 100 * self.n // self.total if self.total else None
        if not self.disable and percent != self._shown:
            sys.stderr.write(f"\r{self.n} bytes" if percent is None else f"\r{percent}%")
            self._shown = percent

    def close(self):
        if not self.disable:
            sys.stderr.write("\n")

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


try:
    from tqdm import tqdm
except ImportError:
    tqdm = _Plain


# ---- folders ----


def _get_torch_home():
    """The folder of what was downloaded: $TORCH_HOME, else torch in the user's cache."""
    cache = os.getenv(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    return os.path.expanduser(os.getenv(ENV_TORCH_HOME, os.path.join(cache, "torch")))


def get_dir():
    """The folder that models and weights are kept in."""
    return _hub_dir if _hub_dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d):
    """Sets the folder that get_dir() gives."""
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


# ---- downloads ----


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Fetches an address into a file, which is there only when it is whole and its SHA-256 begins as was said."""
    from urllib.request import Request, urlopen

    source = urlopen(Request(url, headers={"User-Agent": "torch.hub"}))
    length = source.headers.get("Content-Length")
    dst = os.path.expanduser(dst)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(dst) or ".", suffix=".partial")
    try:
        sha256 = hashlib.sha256()
        with os.fdopen(handle, "wb") as file, tqdm(total=int(length) if length else None, disable=not progress) as bar:
            while piece := source.read(READ_DATA_CHUNK):
                file.write(piece)
                sha256.update(piece)
                bar.update(len(piece))
        digest = sha256.hexdigest()
        if hash_prefix is not None and digest[: len(hash_prefix)] != hash_prefix:
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest}")')
        shutil.move(temporary, dst)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def load_state_dict_from_url(
    url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=False
):
    """load() of the file at an address, which is fetched once."""
    from .serialization import load as load_file

    model_dir = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(model_dir, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    cached = os.path.join(model_dir, name)
    if not os.path.exists(cached):
        sys.stderr.write(f'Downloading: "{url}" to {cached}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, cached, found.group(1) if found else None, progress=progress)
    return load_file(cached, map_location=map_location, weights_only=weights_only)


# ---- repositories ----


def _parse_repo(github):
    """("owner", "name", "ref") of "owner/name:ref"."""
    repo, _, ref = github.partition(":")
    if repo.count("/") != 1:
        raise ValueError(f"Invalid repository {github!r}: expected owner/name or owner/name:ref")
    return *repo.split("/"), ref or "main"


def _fetch_repo(github, force_reload):
    owner, name, ref = _parse_repo(github)
    folder = os.path.join(get_dir(), "_".join((owner, name, ref.replace("/", "_"))))
    if os.path.exists(folder) and not force_reload:
        return folder
    os.makedirs(get_dir(), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=get_dir()) as temporary:
        archive = os.path.join(temporary, "repo.zip")
        download_url_to_file(f"https://github.com/{owner}/{name}/zipball/{ref}", archive, progress=False)
        with zipfile.ZipFile(archive) as file:
            top = file.namelist()[0].split("/")[0]
            file.extractall(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(os.path.join(temporary, top), folder)
    return folder


def _hubconf(folder):
    """The module of a folder's hubconf.py, with the packages that it depends on checked."""
    path = os.path.join(folder, MODULE_HUBCONF)
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    absent = [name for name in getattr(module, VAR_DEPENDENCY, ()) if name != "torch" and not _is_installed(name)]
    if absent:
        raise RuntimeError(f"Missing dependencies: {', '.join(absent)}")
    return module


def _is_installed(name):
    return importlib.util.find_spec(name) is not None


def _entry(module, name):
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    found = getattr(module, name, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def _folder_of(repo_or_dir, source, force_reload):
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    return _fetch_repo(repo_or_dir, force_reload) if source == "github" else os.fspath(repo_or_dir)


def load(
    repo_or_dir, model, *args, source="github", trust_repo="check", force_reload=False, verbose=True,
    skip_validation=False, **kwargs
):  # fmt: skip
    """What the function `model` of a repository's, or folder's, hubconf.py gives."""
    return _entry(_hubconf(_folder_of(repo_or_dir, source.lower(), force_reload)), model)(*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo="check", verbose=True):
    """The functions that a repository's hubconf.py has."""
    module = _hubconf(_fetch_repo(github, force_reload))
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo="check"):
    """The text that describes a function of a repository's hubconf.py."""
    return _entry(_hubconf(_fetch_repo(github, force_reload)), model).__doc__


__getattr__ = _getter(__name__)

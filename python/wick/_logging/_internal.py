"""TORCH_LOGS and set_logs(): from names to channels of WICK_LOGS, and to levels of Python's loggers.

In: TORCH_LOGS, TORCH_LOGS_FORMAT, TORCH_LOGS_OUT, and calls of set_logs(). Out: switched channels (_C._set_log), loggers
with levels and handlers. What is no name is PyTorch's error: of TORCH_LOGS already when wick is imported.
Tests: tests/python/test_torch_logs.py, tests/parity/test_torch_logs.py.
"""

import contextlib
import functools
import importlib.util
import logging
import os
import pkgutil
import re
import sys
import warnings

from .. import _C
from .._names import is_known
from ._registrations import ARTIFACTS, CHANNELS_OF_LOGS, LOGS

log = logging.getLogger("torch._logging._internal")
DEFAULT_LOGGING = {
    "dynamo": logging.INFO, "aot": logging.INFO, "inductor": logging.INFO, "fsdp": logging.INFO, "ddp_graphs": True,
    "graph_breaks": True, "side_effects": True, "guards": True, "recompiles": True, "dynamic": logging.INFO,
}  # fmt: skip
_OWN_CHANNELS = _C._log_channels()
_FLAG_DEBUG_LEAVES = "d"


class _Registry:
    """Names that can be asked for, and the loggers that were made for them."""

    def __init__(self):
        self.logs = dict(LOGS)
        self.artifacts = dict(ARTIFACTS)
        self.formats = {"custom_format_test_artifact": logging.Formatter("")}
        self.artifact_loggers, self.children = set(), set()

    def loggers(self):
        return {name for names in self.logs.values() for name in names}


class _State:
    """What is asked for: levels by logger, artifacts."""

    def __init__(self):
        self.levels, self.artifacts, self.debugged = {}, set(), set()

    def add_log(self, names, level, alias=None):
        self.levels |= dict.fromkeys(names, level)
        if alias and level <= logging.DEBUG:
            self.debugged.add(alias)

    def channels(self):
        found = {ARTIFACTS[name][0] for name in self.artifacts if name in ARTIFACTS}
        return (found | {c for alias in self.debugged for c in CHANNELS_OF_LOGS.get(alias, ())}) - {""}


_registry, _state, _handlers = _Registry(), _State(), []


# ---- registration ----


def register_log(setting_name, log_name):
    """A logger, or a list of them, gets a short name for TORCH_LOGS and set_logs()."""
    _registry.logs[setting_name] = (log_name,) if isinstance(log_name, str) else tuple(log_name)


def register_artifact(setting_name, description, visible=False, off_by_default=False, log_format=None):
    """A kind of messages gets a name: what getArtifactLogger() of that name logs is shown when the name is asked for."""
    flags = "v" * visible + _FLAG_DEBUG_LEAVES * off_by_default
    _registry.artifacts[setting_name] = ("", flags, description)
    if log_format is not None:
        _registry.formats[setting_name] = logging.Formatter(log_format)


def getArtifactLogger(module_qname, artifact_name):  # noqa: N802  as PyTorch has it
    """The logger for one kind of messages of a module."""
    if artifact_name not in _registry.artifacts:
        raise ValueError(
            f"Artifact name: {artifact_name!r} not registered,"
            f"please call register_artifact({artifact_name!r}) in torch._logging.registrations."
        )
    made = logging.getLogger(f"{module_qname}.__{artifact_name}")
    made.artifact_name = artifact_name
    _registry.artifact_loggers.add(made.name)
    _configure(made)
    return made


def _configure(artifact_logger):
    name = artifact_logger.artifact_name
    if _FLAG_DEBUG_LEAVES in _registry.artifacts[name][1]:
        artifact_logger.propagate = False
    if name in _state.artifacts:
        artifact_logger.setLevel(logging.DEBUG)
        artifact_logger.propagate = True


# ---- TORCH_LOGS ----


def _settings_error(settings):
    names = ", ".join(sorted(["all", *_registry.logs, *_registry.artifacts]))
    return ValueError(
        f"\nInvalid log settings: {settings}, must be a comma separated list of fully\n"
        "qualified module names, registered log names or registered artifact names.\n"
        'For more info on various settings, try TORCH_LOGS="help"\n'
        f"Valid settings:\n{names}\n"
    )


def _help(whole):
    shown = [f"{name:30}\t{said}" for name, (_, flags, said) in _registry.artifacts.items() if whole or "v" in flags]
    heading = "All names" if whole else "Names (TORCH_LOGS='+help' has the others)"
    lines = ["all", *sorted(_registry.logs), *sorted(shown)]
    return (
        "\nTORCH_LOGS is a list of names with commas between them. A name of loggers sets their level: INFO, with + in front\n"
        "DEBUG, with - ERROR. Any module is such a name, a package stands for all of its modules. Other names turn on one\n"
        "kind of messages. TORCH_LOGS_FORMAT is the format of loggers' messages, TORCH_LOGS_OUT a file that gets all of them, too.\n"
        f"\n{heading}\n  " + "\n  ".join(lines) + "\n"
    )


def _is_module(name):
    """PyTorch's modules count as being there where the module or package right below torch is known."""
    if name == "torch" or name.startswith("torch."):
        below = name.split(".")[1:2]
        return not below or is_known(f"torch.{below[0]}") or importlib.util.find_spec(f"wick.{below[0]}") is not None
    return importlib.util.find_spec(name) is not None


def _modules_of(name):
    """The module, and of a package all below it."""
    if name.split(".")[0] == "torch":
        return [name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        return [name]
    package = importlib.import_module(name)
    below = pkgutil.walk_packages(getattr(package, "__path__", ()), prefix=name + ".", onerror=lambda _: None)
    return [name, *(module.name for module in below)]


def _has_registered_parent(name):
    known, logger = _registry.loggers(), logging.getLogger(name)
    while logger.parent:
        if logger.name in known:
            return True
        logger = logger.parent
    return False


def _add_modules(state, name, level):
    for module in _modules_of(name):
        if _has_registered_parent(module):
            _registry.children.add(module)
        else:
            register_log(module, module)
        state.add_log((module,), level)


def _parse_log_settings(settings):
    state = _State()
    if settings == "":
        return state
    if settings in ("help", "+help"):
        raise ValueError(_help(settings == "+help"))
    if not re.fullmatch(r"((\+|-)?[\w\.]+,\s*)*(\+|-)?[\w\.]+?", settings):
        raise _settings_error(settings)
    settings = re.sub(r"\s+", "", settings)
    for asked in settings.split(","):
        level = {"+": logging.DEBUG, "-": logging.ERROR}.get(asked[0], logging.INFO)
        name = asked.replace("+", "").replace("-", "")
        name = "torch" if name == "all" else name
        if name in _registry.logs:
            state.add_log(_registry.logs[name], level, name)
        elif name in _registry.artifacts:
            state.artifacts.add(name)
        elif _is_module(name):
            _add_modules(state, name, level)
        else:
            raise _settings_error(settings)
    return state


# ---- taking effect ----


class _Formatter(logging.Formatter):
    """I0131 12:00:00.123456 4242 package/module.py:10] text; each line of a text has that in front."""

    def format(self, record):
        artifact = getattr(logging.getLogger(record.name), "artifact_name", None)
        if artifact in _registry.formats:
            return _registry.formats[artifact].format(record)
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        if record.stack_info:
            text = f"{text}\n{self.formatStack(record.stack_info)}"
        level = {"DEBUG": "V"}.get(record.levelname, record.levelname[:1])
        when = f"{self.formatTime(record, '%m%d %H:%M:%S')}.{int(record.msecs * 1000):06d}"
        kind = f" [__{artifact}]" if artifact else ""
        head = f"{level}{when} {record.process} {_relative(record.pathname)}:{record.lineno}]{kind}"
        return "\n".join(f"{head} {line}" for line in text.split("\n"))


@functools.lru_cache(maxsize=1024)
def _relative(path):
    """To the folder that the module was imported from."""
    inside = [
        os.path.relpath(path, folder) for folder in map(os.path.abspath, sys.path) if path.startswith(folder + os.sep)
    ]
    return min(inside, key=len, default=path)


def _formatter():
    wanted = os.environ.get("TORCH_LOGS_FORMAT")
    if wanted is None:
        return _Formatter()
    return logging.Formatter(logging.BASIC_FORMAT if wanted in ("short", "basic") else wanted)


def _add_handlers(names):
    out, formatter = os.environ.get("TORCH_LOGS_OUT"), _formatter()
    for name in names:
        for handler in [logging.StreamHandler(), *([logging.FileHandler(out)] if out else [])]:
            handler.setFormatter(formatter)
            handler.setLevel(logging.DEBUG)
            logging.getLogger(name).addHandler(handler)
            _handlers.append((name, handler))


def _take(state):
    """Loggers and channels become what is asked for, whatever they were."""
    global _state
    _state = state
    while _handlers:
        name, handler = _handlers.pop()
        logging.getLogger(name).removeHandler(handler)
    for name in _registry.loggers():
        logging.getLogger(name).setLevel(logging.WARNING if name == "torch" else logging.NOTSET)
        logging.getLogger(name).propagate = False
    for name in _registry.artifact_loggers | _registry.children:
        logging.getLogger(name).setLevel(logging.NOTSET)
        logging.getLogger(name).propagate = True
    for name, level in state.levels.items():
        logging.getLogger(name).setLevel(level)
    _add_handlers(_registry.loggers())
    for name in _registry.artifact_loggers:
        _configure(logging.getLogger(name))
    always = os.environ.get("WICK_LOGS", "").split(",")
    wanted = {*state.channels(), *always}
    for channel in _OWN_CHANNELS:
        _C._set_log(channel, channel in wanted or "all" in always)


def _init_logs():
    """As TORCH_LOGS says; called when wick is imported, where it is set."""
    _take(_parse_log_settings(os.environ.get("TORCH_LOGS", "")))


def set_logs(*, all=None, modules=None, **settings):  # noqa: A002  as PyTorch has it
    """Channels of messages by PyTorch's names or by those of WICK_LOGS, each True or False; loggers by their short names,
    each a level of `logging`; modules: the same by name. What was set before is forgotten. Does nothing where TORCH_LOGS is
    set.

        set_logs(dynamo=logging.DEBUG, recompiles=True)
    """
    if "TORCH_LOGS" in os.environ:
        log.warning("Using TORCH_LOGS environment variable for log settings, ignoring call to set_logs")
        return
    state = _State()
    own = {name: settings.pop(name) for name in _OWN_CHANNELS if name in settings and name not in _registry.artifacts}
    for name in settings:
        if name not in _registry.logs and name not in _registry.artifacts:
            raise TypeError(f"set_logs() got an unexpected keyword argument {name!r}")
    for name, value in [("torch", all), *settings.items(), *(modules or {}).items()]:
        if value is not None:
            _add_setting(state, name, value)
    _take(state)
    for channel, wanted in own.items():
        _C._set_log(channel, bool(wanted))


def _add_setting(state, name, value):
    if name in _registry.artifacts:
        if not isinstance(value, bool):
            raise ValueError(f"Expected bool to enable artifact {name}, received {value}")
        if value:
            state.artifacts.add(name)
    elif name in _registry.logs or name in _registry.children:
        if value not in logging._levelToName:
            raise ValueError(
                f"Unrecognized log level for log {name}: {value}, valid level values "
                f"are: {','.join([str(k) for k in logging._levelToName])}"
            )
        state.add_log(_registry.logs.get(name, (name,)), value, name)
    elif _is_module(name):
        _add_modules(state, name, value)
    else:
        raise ValueError(f"Unrecognized log or artifact name passed to set_logs: {name}")


# ---- for code that logs ----


class LazyString:
    """A text that is made when somebody looks: LazyString(function, *arguments)."""

    def __init__(self, func, *args, **kwargs):
        self.func, self.args, self.kwargs = func, args, kwargs

    def __str__(self):
        return self.func(*self.args, **self.kwargs)


@functools.cache
def warning_once(logger_obj, *args, **kwargs):
    """logger_obj.warning(), the first time that it is called with these arguments."""
    logger_obj.warning(*args, **kwargs)


@contextlib.contextmanager
def hide_warnings(filter_fn=lambda *args, **kwargs: True):
    """Warnings of which filter_fn, called as warnings.showwarning is, gives False are not shown."""
    before = warnings.showwarning

    def show(*args, **kwargs):
        if filter_fn(*args, **kwargs):
            before(*args, **kwargs)

    try:
        warnings.showwarning = show
        yield
    finally:
        warnings.showwarning = before

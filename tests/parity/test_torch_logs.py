"""Names of TORCH_LOGS, their loggers and the error for others, beside PyTorch's."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from torch._logging import _internal as theirs  # noqa: E402

import wick  # noqa: E402
from wick._logging import _internal as ours  # noqa: E402


def test_the_names_and_what_they_stand_for():
    registry = theirs.log_registry
    assert {name: set(loggers) for name, loggers in ours._registry.logs.items()} == {
        name: set(loggers) for name, loggers in registry.log_alias_to_log_qnames.items() if name in ours.LOGS
    }
    assert set(ours._registry.artifacts) == registry.artifact_names
    assert {n for n, (_, flags, _) in ours.ARTIFACTS.items() if "d" in flags} == registry.off_by_default_artifact_names
    assert {n for n, (_, flags, _) in ours.ARTIFACTS.items() if "v" in flags} == registry.visible_artifacts
    assert wick._logging.DEFAULT_LOGGING == torch._logging.DEFAULT_LOGGING


@pytest.mark.parametrize("setting", ["foo", "+dynamo,foo", "a b", "nope.bar"])
def test_errors(setting):
    last = []
    for name in ("torch", "wick"):
        done = subprocess.run(
            [sys.executable, "-c", f"import {name}"],
            env=os.environ | {"TORCH_LOGS": setting},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        last.append(done.stderr[done.stderr.index("Error: ") :])
    assert last[0] == last[1]


@pytest.mark.parametrize("settings", [{"nothing": True}, {"guards": 10}, {"dynamo": 11}, {"modules": {"no_such": 10}}])
def test_errors_of_set_logs(settings):
    said = []
    for module in (torch, wick):
        with pytest.raises(Exception) as error:
            module._logging.set_logs(**settings)
        said.append(
            (type(error.value), str(error.value).replace("set_logs() got", "got").replace("_set_logs", "set_logs"))
        )
    assert said[0] == said[1]

"""TORCH_LOGS and torch._logging: every name of PyTorch 2.13 is known, another one is its error; what they turn on."""

import logging
import os
import subprocess
import sys

import pytest

import wick as torch
from wick._logging import _internal as internal

PROGRAM = """
import wick as torch
compiled = torch.compile(lambda x: (torch._dynamo.graph_break(), x * 2)[1].sum(), dynamic=False)
compiled(torch.ones(2)), compiled(torch.ones(3))
"""


def run(program=PROGRAM, folder=None, **environment):
    settings = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH_LOGS", "WICK_LOGS"))} | environment
    return subprocess.run([sys.executable, "-c", program], env=settings, capture_output=True, text=True, cwd=folder)


def channels_of(**environment):
    done = run(**environment)
    assert done.returncode == 0, done.stderr
    return {line.split("]")[0].removeprefix("[wick:") for line in done.stderr.splitlines() if line.startswith("[wick:")}


@pytest.mark.parametrize(
    "setting, shown",
    [
        ("graph_breaks", {"graph_breaks"}), ("guards", {"guards"}), ("recompiles_verbose", {"recompiles"}),
        ("graph_code", {"graph"}), ("aot_graphs,output_code", {"graph", "kernel"}), ("ir_pre_fusion", {"loop"}),
        ("dynamo,aot,inductor", set()), ("-dynamo", set()), ("+aot", {"graph"}),
        ("+dynamo, bytecode", {"graph_breaks", "guards", "recompiles", "graph"}),
        ("+all", {"graph_breaks", "guards", "recompiles", "graph"}), ("", set()), ("bytecode,fsdp,+json", set()),
    ],
)  # fmt: skip
def test_what_names_turn_on(setting, shown):
    assert channels_of(TORCH_LOGS=setting) == shown


def test_every_name_is_known():
    names = [*internal._registry.logs, *internal._registry.artifacts, "all"]
    done = run("import wick", TORCH_LOGS=",".join(names))
    assert done.returncode == 0 and len(names) >= 69, done.stderr


@pytest.mark.parametrize("setting", ["foo", "graph_breaks,foo", "graph;guards", "+", "graph_breaks,,guards", "kernel"])
def test_what_is_no_name_is_an_error(setting):
    done = run("import wick", TORCH_LOGS=setting)
    assert done.returncode == 1
    assert f"ValueError: \nInvalid log settings: {setting}, must be a comma separated list of fully\n" in done.stderr
    assert "all, annotation, aot, aot_graphs, " in done.stderr and done.stderr.endswith(
        "trace_source, verbose_guards\n\n"
    )


def test_modules(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("")
    (tmp_path / "mine" / "part.py").write_text("import logging\nlogging.getLogger(__name__).debug('so\\nfar')\n")
    program = "import wick\nimport mine.part\n"
    done = run(program, tmp_path, TORCH_LOGS="+mine")
    lines = done.stderr.splitlines()
    assert (
        [line.split("] ")[1] for line in lines] == ["so", "far"]
        and lines[0].startswith("V")
        and "mine/part.py:2]" in lines[0]
    )
    assert run(program, tmp_path, TORCH_LOGS="mine").stderr == ""
    assert (
        run(program, tmp_path, TORCH_LOGS="+mine", TORCH_LOGS_FORMAT="%(name)s: %(message)s").stderr
        == "mine.part: so\nfar\n"
    )
    assert run("import wick", TORCH_LOGS="+torch._dynamo.symbolic_convert").returncode == 0
    done = run("import wick", TORCH_LOGS="no_such_package.part")
    assert done.returncode == 1 and "ModuleNotFoundError: No module named 'no_such_package'" in done.stderr


def test_a_file_gets_everything(tmp_path):
    program = PROGRAM + "import logging\nlogging.getLogger('torch._dynamo').info('mine')\n"
    done = run(program, tmp_path, TORCH_LOGS="dynamo,graph_breaks", TORCH_LOGS_OUT="out.txt")
    text = (tmp_path / "out.txt").read_text()
    assert done.returncode == 0 and "[wick:graph_breaks]" in text and text.count("mine") == 1


def test_help():
    done = run("import wick", TORCH_LOGS="help")
    assert done.returncode == 1 and "graph_breaks" in done.stderr and "verbose_guards" not in done.stderr
    assert "verbose_guards" in run("import wick", TORCH_LOGS="+help").stderr


# ---- set_logs ----


@pytest.fixture
def logs():
    yield torch._logging
    torch._logging.set_logs()


def test_set_logs_forgets_what_was_set(logs, capfd):
    logs.set_logs(recompiles=True, guards=True)
    logs.set_logs(graph_breaks=True)
    compiled = torch.compile(lambda x: (torch._dynamo.graph_break(), x * 2)[1], dynamic=False)
    compiled(torch.ones(2)), compiled(torch.ones(3))
    said = capfd.readouterr().err
    assert "[wick:graph_breaks]" in said and "[wick:guards]" not in said and "[wick:recompiles]" not in said
    logs.set_logs(kernel=True)  # a channel of WICK_LOGS
    torch.compile(lambda x: x * 2)(torch.ones(2))
    assert "[wick:kernel]" in capfd.readouterr().err
    logs.set_logs(**logs.DEFAULT_LOGGING)


def test_every_channel_of_wick_can_be_set(logs):
    """Those of WICK_LOGS are names as well, the newest ones too."""
    assert {"ops", "kernel", "regions", "kernel_times"} <= set(internal._OWN_CHANNELS)
    for channel in internal._OWN_CHANNELS:
        logs.set_logs(**{channel: True})
        assert torch._C._set_log(channel, False)


def test_set_logs_errors(logs):
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        logs.set_logs(nothing=True)
    with pytest.raises(ValueError, match="Expected bool to enable artifact guards, received 10"):
        logs.set_logs(guards=10)
    with pytest.raises(ValueError, match="Unrecognized log level for log dynamo: 11, valid level values are: "):
        logs.set_logs(dynamo=11)
    with pytest.raises(ValueError, match="Unrecognized log or artifact name passed to set_logs: no_such_module"):
        logs.set_logs(modules={"no_such_module": logging.DEBUG})


def test_set_logs_of_loggers(logs, capfd):
    logs.set_logs(dynamo=logging.DEBUG, modules={"json.decoder": logging.INFO})
    assert logging.getLogger("torch._dynamo").level == logging.DEBUG
    assert logging.getLogger("json.decoder").level == logging.INFO
    logs.set_logs(aot=logging.ERROR)
    assert logging.getLogger("torch._dynamo").level == logging.NOTSET
    assert logging.getLogger("torch").level == logging.WARNING


def test_torch_logs_goes_before_set_logs():
    program = "import wick\nwick._logging.set_logs(guards=True)\nwick.compile(lambda x: x + 1)(wick.ones(1))"
    done = run(program, TORCH_LOGS="recompiles")
    assert "ignoring call to set_logs" in done.stderr and "[wick:guards]" not in done.stderr


def test_loggers_of_artifacts(logs, capfd):
    logger = logs.getArtifactLogger("torch.mine", "graph_breaks")
    hidden = logs.getArtifactLogger("torch.mine", "bytecode")
    assert logger.name == "torch.mine.__graph_breaks"
    logs.set_logs(graph_breaks=True)
    logger.debug("seen"), hidden.debug("not seen")
    said = capfd.readouterr().err
    assert "[__graph_breaks] seen" in said and "not seen" not in said
    logs.set_logs(all=logging.DEBUG)
    logger.debug("again"), hidden.debug("not seen")
    said = capfd.readouterr().err
    assert "again" in said and "not seen" not in said  # off by default
    with pytest.raises(
        ValueError, match=r"Artifact name: 'nothing' not registered,please call register_artifact\('nothing'\)"
    ):
        logs.getArtifactLogger("torch.mine", "nothing")
    logs.register_artifact("of_mine", "a test", log_format="<%(message)s>")
    mine = logs.getArtifactLogger("torch.mine", "of_mine")
    logs.set_logs(modules={"of_mine": True})
    mine.debug("x")
    assert capfd.readouterr().err == "<x>\n"
    logs.register_log("mine", "mine.loggers")
    logs.set_logs(mine=logging.INFO)
    assert logging.getLogger("mine.loggers").level == logging.INFO


def test_lazy_texts_and_warnings(caplog):
    import warnings

    made = []
    text = torch._logging.LazyString(lambda x: made.append(x) or "t", 3)
    assert not made and str(text) == "t" and made == [3]
    logger = logging.getLogger("of.a.test")
    for _ in range(2):
        torch._logging.warning_once(logger, "once %d", 1)
    shown, before = [], warnings.showwarning
    warnings.showwarning = lambda message, *rest, **named: shown.append(str(message))
    try:
        with torch._logging.hide_warnings(lambda message, *rest, **named: "keep" in str(message)):
            warnings.showwarning("drop", UserWarning, "file", 1), warnings.showwarning("keep", UserWarning, "file", 1)
        warnings.showwarning("drop", UserWarning, "file", 1)
    finally:
        warnings.showwarning = before
    assert shown == ["keep", "drop"] and [record.message for record in caplog.records] == ["once 1"]

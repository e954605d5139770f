"""The installed C library as a C programmer meets it: headers, pkg-config, an example that trains."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

import wick._C

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(wick._C.__file__).parents[2]
EXAMPLE = ROOT / "examples" / "c" / "train_mlp.c"

pytestmark = [
    pytest.mark.skipif(not (BUILD / "build.ninja").exists(), reason="wick does not run from a build folder"),
    pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="the library is instrumented"),
    *(pytest.mark.skipif(not shutil.which(tool), reason=f"no {tool}") for tool in ("meson", "pkg-config", "cc")),
]


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The example, built against a fresh installation; with the environment to run it in."""
    folder = tmp_path_factory.mktemp("installed")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder)
    (description,) = folder.rglob("wick.pc")
    environment = dict(os.environ, PKG_CONFIG_PATH=str(description.parent), PKG_CONFIG_SYSROOT_DIR=str(folder))
    flags = run("pkg-config", "--cflags", "--libs", "wick", env=environment).split()
    executable = folder / "train_mlp"
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", EXAMPLE, *flags, "-lm", "-o", executable)
    (library,) = folder.rglob("libwick.so")
    return executable, dict(os.environ, LD_LIBRARY_PATH=str(library.parent))


def test_it_learns(program):
    executable, environment = program
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", run(executable, env=environment))]
    assert len(losses) == 11
    assert losses[-1] < 0.2 * losses[0]
    assert losses[-1] < losses[4] < losses[0]


def test_the_same_seed_learns_the_same(program):
    executable, environment = program
    assert run(executable, "20", env=environment) == run(executable, "20", env=environment)


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind")
def test_it_leaves_nothing_behind(program):
    executable, environment = program
    run("valgrind", "--error-exitcode=1", "--leak-check=full", "--errors-for-leak-kinds=definite", executable, "5",
        env=environment)  # fmt: skip

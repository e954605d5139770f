#!/bin/sh
# Runs tests under each CPython that wick supports beside the one it is developed with, where the machine has it: by its
# name on the PATH, or as pyenv keeps it. Each has a virtual environment and a debug build of its own, without C tests.
set -eu
versions="3.12 3.13"

find_python() { # VERSION
  command -v "python$1" 2>/dev/null && return
  for python in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    [ -x "$python" ] && last="$python"
  done
  [ -n "${last:-}" ] && echo "$last"
}

status=0
for version in $versions; do
  python=$(last="" find_python "$version") || true
  if ! "${python:-false}" -c 'import sys, venv, ensurepip' 2>/dev/null; then
    echo "test-capture: no CPython $version here (python$version on the PATH, or pyenv): not tested"
    continue
  fi
  echo "test-capture: CPython $version, $python"
  if ! make --no-print-directory test-files PYTHON="$python" FILES="$*"; then status=1; fi
done
exit $status

#!/bin/sh
# Runs tests under each CPython that wick supports beside the one it is developed with, where the machine has it: by its
# name on the PATH, or as pyenv keeps it. Each has a virtual environment and a build of its own, which is made quickly: without
# optimization and C tests.
set -eu
versions="3.12 3.13"

runs() { # PYTHON VERSION: it may be a shim of pyenv's that stands for none
  "$1" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$2')" 2>/dev/null
}
find_python() { # VERSION
  for python in $(command -v "python$1") "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if runs "$python" "$1"; then
      echo "$python"
      return
    fi
  done
}

status=0
for version in $versions; do
  python=$(find_python "$version")
  if [ -z "$python" ]; then
    echo "test-capture: no CPython $version here (python$version on the PATH, or pyenv): not tested"
    continue
  fi
  echo "test-capture: CPython $version, $python"
  if ! make --no-print-directory test-files QUICK=1 PYTHON="$python" FILES="$*"; then status=1; fi
done
exit $status

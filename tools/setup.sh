#!/bin/sh
# Installs the Debian packages that building and checking wick need, when they are missing and it is permitted.
set -eu

missing=
need() { # COMMAND-OR-TEST PACKAGE
  sh -c "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need 'command -v gcc' gcc
need 'command -v pkg-config' pkg-config
need 'pkg-config --exists cmocka' libcmocka-dev
need 'command -v clang-format' clang-format
need 'command -v cppcheck' cppcheck
need 'command -v git' git
python="${PYTHON:-python3}"
need "$python -c 'import ensurepip'" python3-venv
need "test -f \$($python -c 'import sysconfig; print(sysconfig.get_path(\"include\"))')/Python.h" python3-dev
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=
elif sudo -n true 2>/dev/null; then
  as_root=sudo
else
  echo "wick needs these packages, and installing them needs root: apt-get install$missing" >&2
  exit 1
fi
command -v apt-get >/dev/null || { echo "wick needs these packages (Debian's names):$missing" >&2; exit 1; }
$as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of names
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing

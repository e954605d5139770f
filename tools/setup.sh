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

# What is tested where it is there: the other compiler of native code, a library's products. Nothing fails without.
useful=
command -v clang >/dev/null || useful=clang
[ -n "$(find /usr/lib /usr/local/lib -name 'libdnnl.so*' 2>/dev/null)" ] || useful="$useful libdnnl-dev"
[ -n "$missing$useful" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=
elif sudo -n true 2>/dev/null; then
  as_root=sudo
elif [ -z "$missing" ]; then
  exit 0
else
  echo "wick needs these packages, and installing them needs root: apt-get install$missing" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null; then
  [ -n "$missing" ] || exit 0
  echo "wick needs these packages (Debian's names):$missing" >&2
  exit 1
fi
install() {
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "$@"
}
$as_root apt-get update -qq || [ -z "$missing" ]
# shellcheck disable=SC2086 # lists of names
[ -z "$missing" ] || install $missing
# shellcheck disable=SC2086
[ -z "$useful" ] || install $useful || echo "some tests are skipped without:$useful" >&2

#!/bin/sh
# Every check that needs no person. Runs all of them, then fails if one did.
status=0
check() {
  echo "lint: $1"
  shift
  "$@" || status=1
}
cd "$(dirname "$0")/.." || exit 1
files=$(git ls-files -co --exclude-standard '*.c' '*.h')
export PATH="$PWD/.venv/bin:$PATH"

# shellcheck disable=SC2086 # a list of files
check format clang-format --dry-run --Werror $files
check cppcheck cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr \
  --suppress=missingInclude --suppress=unknownMacro --suppress=legacyUninitvar --suppress=invalidPointerCast \
  --suppress=duplicateAssignExpression '-DPy_RETURN_NONE=return 0' \
  '-DPy_RETURN_TRUE=return 0' '-DPy_RETURN_FALSE=return 0' '-DPy_RETURN_NOTIMPLEMENTED=return 0' -DPY_MAJOR_VERSION=3 -DPY_MINOR_VERSION=11 \
  -DPY_VERSION_HEX=0x030B0000 -DWK_LEVEL=portable -DWK_VECTOR_BYTES=16 '-DWK_VERSION=""' \
  -I include -I src -j 2 src
check ruff ruff check --quiet .
check includes python tools/check_includes.py
check calls python tools/check_calls.py build
check words python tools/check_words.py
check pages python tools/check_pages.py
check devices python tools/check_devices.py
check private python tools/check_private.py
check operators python tools/check_operator_lists.py
check 'names of arguments' python tools/check_argument_names.py
check operators.md python tools/generate_operators.py page=docs/operators.md --check -- src/ops/tables/*.ops
check 'code of the CUDA device' python tools/device_code.py --check
check names python tools/check_core_names.py build/python
check 'what is left out' python tools/missing_names.py --check
check exports python tools/check_exports.py build/python/wick/libwick.so
exit $status

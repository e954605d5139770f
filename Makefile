# make build    .venv and build/: wick importable by .venv/bin/python, C tests off
# make test     C and Python tests against build-debug/ (debug checks on); SANITIZE=address,undefined uses build-san/
# make test-capture   the capture half of the Python tests under the other CPythons that are found (3.12, 3.13)
# make ... PYTHON=python3.13   the same for that CPython, in .venv-313/, build-313/, build-debug-313/
# make demo     the first compiled model; DEVICE=cuda on a GPU
# make parity   against an installed PyTorch, skipped without one
# make lint     style, static checks, part order   make bench    speed, against PyTorch when there is one; draws docs/speed.svg
# make docs     the pages that are written from the source
# make floor    what ../shared/checks gives, where it is there, is not below .ci/floor
# make fuzz     100,000 random programs, eager against compiled and plain against captured, other ones each time;
#               SEED=7 and COUNT=500 as well
# make parity-full   parity, and 500 random calls of every operator with both
# make libraries     models of timm, transformers and torchvision against PyTorch's recorded losses, in an environment of
#                    their own, .venv-libraries; libraries-full: all 164 of them
PYTHON ?= python3
# A PYTHON that is asked for by name has folders of its own, so that several versions are built side by side.
ifeq ($(origin PYTHON),file)
VERSION :=
else
VERSION := $(shell $(PYTHON) -c 'import sys; print("-%d%d" % sys.version_info[:2])')
$(if $(VERSION),,$(error PYTHON=$(PYTHON) does not run))
endif
VENV := .venv$(VERSION)
BUILD := build$(VERSION)
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

ifdef SANITIZE
TEST_BUILD := build-san$(VERSION)
SANITIZE_SETUP := -Db_sanitize=$(SANITIZE) -Db_lundef=false
# Python itself is not instrumented: the sanitizer's runtime has to be there first, and Python's own leaks are not ours.
SANITIZE_ENV := LD_PRELOAD="$(shell gcc -print-file-name=libasan.so) $(shell gcc -print-file-name=libubsan.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
else ifdef QUICK
TEST_BUILD := build-quick$(VERSION)
QUICK_SETUP := -Doptimization=0
else
TEST_BUILD := build-debug$(VERSION)
endif
# A call passes through a dozen files: optimised as one they cost a tenth less. Clang needs a plugin of the linker for that.
# LTO=off leaves it out, which is built in a fifth of the time: CI tests that.
LTO ?= on
RELEASE_SETUP := -Dtests=disabled $(if $(findstring clang,$(CC))$(filter-out on,$(LTO)),,-Db_lto=true -Db_lto_threads=2)
DEBUG_SETUP := -Dtests=enabled -Dbuildtype=debugoptimized -Ddebug_checks=true $(SANITIZE_SETUP) $(QUICK_SETUP)
PYTEST := -m pytest
# A process a CPU, which share the tests; each compiles with threads of its own, so few are enough.
SHARED_OUT := -n auto --maxprocesses 4
existing = $(wildcard $(1))


.PHONY: libraries libraries-full torch pictures build build-tests demo test test-capture test-files build-python fuzz lint floor parity parity-full bench docs format clean

build: $(VENV)/.ready
	@[ -f $(BUILD)/build.ninja ] || meson setup $(BUILD) $(RELEASE_SETUP)
	@meson compile -C $(BUILD)
	@echo "$(CURDIR)/$(BUILD)/python" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/wick.pth"

build-tests: $(VENV)/.ready
	@[ -f $(TEST_BUILD)/build.ninja ] || meson setup $(TEST_BUILD) $(DEBUG_SETUP)
	@meson compile -C $(TEST_BUILD)

# What Python's tests need: not the C tests, which know nothing of Python.
build-python: $(VENV)/.ready
	@[ -f $(TEST_BUILD)/build.ninja ] || meson setup $(TEST_BUILD) $(DEBUG_SETUP)
	@ninja -C $(TEST_BUILD) --quiet package

$(VENV)/.ready: tools/requirements.txt tools/setup.sh
	PYTHON=$(PYTHON) tools/setup.sh
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tools/requirements.txt
	@touch $@

# pytest's exit status 5 says that a folder holds no test yet.
run_pytest = $(if $(1),$(SANITIZE_ENV) PYTHONPATH=$(CURDIR)/$(TEST_BUILD)/python $(BIN)/python $(PYTEST) $(SHARED_OUT) $(1) || [ $$? -eq 5 ],true)

test: build-tests
	meson test -C $(TEST_BUILD) --no-rebuild --print-errorlogs
	$(call run_pytest,$(call existing,tests/python tests/ops tests/ir tests/fault tests/device tests/e2e))
	$(CUDA_ENV) $(call run_pytest,tests/cuda)

# The CUDA device on a driver in software.
CUDA_ENV = WICK_LIBCUDA=$(CURDIR)/$(TEST_BUILD)/tests/cuda/libcuda_emulated.so

# What differs between versions of CPython is capture: its tests run under each, and what they import of the rest.
CAPTURE_TESTS := tests/python/capture tests/python/test_interpreters.py tests/python/test_nn.py tests/python/test_torch_function.py
test-capture:
	tools/test_capture.sh $(CAPTURE_TESTS)

FILES ?= tests/python
test-files: build-python
	$(call run_pytest,$(FILES))

COUNT ?= 100000
fuzz_with = $(SANITIZE_ENV) PYTHONPATH=$(CURDIR)/$(TEST_BUILD)/python $(BIN)/python tests/ops/compile_fuzz.py \
  $(if $(SEED),--seed $(SEED))
fuzz: build-tests
	$(fuzz_with) --count $(COUNT)
	WICK_CACHE_DIR= $(fuzz_with) --count $$(($(COUNT) / 100)) --native --batch 50
	$(SANITIZE_ENV) WICK_FUZZ_COUNT=$$(($(COUNT) / 20)) WICK_FUZZ_SEED=$(or $(SEED),$$(date +%s)) \
	  PYTHONPATH=$(CURDIR)/$(TEST_BUILD)/python $(BIN)/python $(PYTEST) -s tests/python/capture/test_fuzz.py

# PyTorch is the oracle and the peer, needed by parity and bench alone; where it cannot be had they say so and go on.
TORCH_VERSION := 2.13.0
torch: $(VENV)/.ready
	@$(BIN)/python -c 'import torch' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH_VERSION) || \
	  echo "PyTorch $(TORCH_VERSION) cannot be installed here: nothing to compare with"

parity: build torch
	$(BIN)/python $(PYTEST) $(SHARED_OUT) tests/parity

# For the picture of the demo, which goes on without.
pictures: $(VENV)/.ready
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -r examples/requirements.txt || \
	  echo "matplotlib cannot be installed here: no picture will be drawn"

parity-full: parity
	$(BIN)/python tests/parity/random_calls.py --count 500 --jobs 2 --report $(BUILD)/random_calls.txt

# The libraries want torch, which wick is: nothing is installed but what is named.
LIBRARIES := .venv-libraries$(VERSION)
$(LIBRARIES)/.ready: tests/libraries/requirements.txt
	$(PYTHON) -m venv $(LIBRARIES)
	$(LIBRARIES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $< && touch $@ || \
	  echo "the libraries cannot be installed here: nothing to run"

libraries: build $(LIBRARIES)/.ready
	[ ! -f $(LIBRARIES)/.ready ] || PYTHONPATH=$(CURDIR)/$(BUILD)/python $(LIBRARIES)/bin/python $(PYTEST) tests/libraries

libraries-full: export WICK_ALL_MODELS = 1
libraries-full: libraries

floor: build
	$(BIN)/python $(PYTEST) .ci/test_floor.py

demo: build pictures
	$(BIN)/python examples/demo.py --plot $(BUILD)/demo.png --device $(or $(DEVICE),cpu)

# All engines where PyTorch is.
demo_engines = wick wick.compile $(shell $(BIN)/python -c 'import torch' 2>/dev/null && echo torch torch.compile)
bench: build torch pictures
	$(BIN)/python bench/run.py --json $(BUILD)/bench.json
	if $(BIN)/python -c 'import torch' 2>/dev/null; then $(BIN)/python bench/picture.py $(BUILD)/bench.json docs/speed.svg; fi
	$(BIN)/python examples/demo.py --engines $(demo_engines) --plot $(BUILD)/demo.png

lint: build
	tools/lint.sh

docs: $(VENV)/.ready
	$(BIN)/python tools/generate_operators.py page=docs/operators.md -- src/ops/tables/*.ops
	$(BIN)/python tools/missing_names.py --write

format: $(VENV)/.ready
	git ls-files -co --exclude-standard '*.c' '*.h' | xargs -r clang-format -i
	$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

clean:
	rm -rf build build-* # of all versions

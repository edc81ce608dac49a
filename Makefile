# Two commands do all their set-up themselves: `make demo` and `make test`.
#
# PYTHON    the Python (3.10 to 3.14) to make the virtual environment with
# VENV      where it lies
# PIP_FLAGS further arguments to every pip install, such as --index-url (on Linux, where pip's default torch is a large
#           build for CUDA, an index of CPU builds saves some gigabytes)
# SANITIZER for `make sanitize`: address (with UBSan) or thread; PART of its files, such as 2/4
# PUBLIC    for `make public-kernels`: where the checkouts lie
# BASE      for `make quick`: what the working tree is compared with
# WORKERS   how many processes share the tests (auto: one a core, no more than four; 0: the one that reports)

PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
WORKERS ?= auto
BASE ?= main
SANITIZER ?= address
PART ?= 1/1
PUBLIC ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/anymps-public-kernels

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt $(PIP_FLAGS)
# A file's tests stay together: the device and its fixtures are made once a process. A part collects only its folders:
# each process that runs tests imports every file that it collects. tests/long_files.txt says which files come first.
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder \
  --durations 15 --durations-min 5
# A stamp is named after what it was made from: with the same two files nothing is installed again.
KEY := $(shell cat pyproject.toml constraints.txt | cksum | cut -d ' ' -f 1)

# Hundreds of processes import this package: what one has compiled, the others read, also where containers say otherwise.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo quick test test-all unit integration slow fuzz fuzz-files stress public-kernels sanitize check format pages docs wheel clean

help:
	@echo "make demo    run an example on a virtual M3 Pro and show the report"
	@echo "make quick   the tests of what differs from BASE (main)"
	@echo "make test    unit tests, then the tests with the libraries that use PyTorch, without the slow ones"
	@echo "make test-all   make test, then the slow tests"
	@echo "make unit    the unit tests of make test alone (also: integration, slow)"
	@echo "make fuzz-files   damaged files given to the commands (ANYMPS_FUZZ_SEED, ANYMPS_FUZZ_SECONDS)"
	@echo "make fuzz    random programs on the device and the CPU, random Metal kernels (ANYMPS_FUZZ_SEED, ANYMPS_FUZZ_EXAMPLES)"
	@echo "make stress  threads, forks, builds and sizes in numbers (ANYMPS_STRESS), every operator traced, every function called"
	@echo "make public-kernels   Metal kernels and compiled extensions of public repositories, fetched into PUBLIC"
	@echo "make sanitize SANITIZER=address    tests of device and Metal kernels, native code compiled so (or: thread)"
	@echo "make check   ruff, mypy, and the test of the floors"
	@echo "make pages   write docs/rules from the rules' own texts, and the recipes' reports"
	@echo "make docs    build the site into site/"
	@echo "make wheel   a wheel with the native core for the installed torch: whoever installs it needs no compiler"
	@echo "make format  let ruff format and repair what it can"
	@echo "make clean   remove the virtual environment and what the tools keep"

demo: $(VENV)/.examples-$(KEY) core
	@echo "==> anymps run --mac \"M3 Pro 18GB\" examples/issue_classifier.py"
	@$(BIN)/anymps run --mac "M3 Pro 18GB" examples/issue_classifier.py

quick: $(VENV)/.test-$(KEY) core
	@files=$$(cd tests && $(abspath $(BIN))/python -m changed $(BASE)) && if [ -n "$$files" ]; then \
	  $(PYTEST) --quiet -m "not integration and not slow" $(PYTEST_FLAGS) $$files || [ $$? -eq 5 ]; fi

test: unit integration

test-all: test slow

unit: $(VENV)/.test-$(KEY) core
	@echo "==> unit tests"
	@$(PYTEST) -m "not slow" --ignore tests/integration $(PYTEST_FLAGS)

integration: $(VENV)/.integration-$(KEY) core
	@echo "==> tests with transformers, diffusers, lightning, accelerate, peft, bitsandbytes, torchao and trl"
	@$(PYTEST) -m "not slow" tests/integration $(PYTEST_FLAGS)

slow: $(VENV)/.integration-$(KEY) core
	@echo "==> slow tests"
	@$(PYTEST) -m slow $(PYTEST_FLAGS) $$(grep -rl --include='test_*.py' 'mark\.slow' tests)

fuzz-files: $(VENV)/.test-$(KEY) core
	@echo "==> damaged files (ANYMPS_FUZZ_SEED, ANYMPS_FUZZ_SECONDS)"
	@$(BIN)/python -m tests.fuzz --seed $${ANYMPS_FUZZ_SEED:-0} --seconds $${ANYMPS_FUZZ_SECONDS:-60}
	@$(BIN)/python -m tests.fuzz --seed $${ANYMPS_FUZZ_SEED:-0} --seconds $${ANYMPS_FUZZ_SECONDS:-60} --only recording

fuzz: $(VENV)/.test-$(KEY) core
	@echo "==> random programs"
	@$(BIN)/python -m pytest -q tests/device/test_fuzz.py tests/metal/test_metal_same.py tests/metal/test_metal_check_planted.py

public-kernels: $(VENV)/.test-$(KEY) core
	@echo "==> Metal kernels and compiled extensions of public repositories"
	@mkdir -p $(PUBLIC)
	@cd tests && ANYMPS_PUBLIC_KERNELS=$(PUBLIC) $(abspath $(BIN))/python -m public_kernels
	@ANYMPS_PUBLIC_KERNELS=$(PUBLIC) $(BIN)/python -m pytest -q tests/integration/test_public_kernels.py tests/integration/test_public_families.py tests/integration/test_public_ggml.py tests/integration/test_public_mlx.py tests/integration/test_public_attention.py tests/integration/test_public_extensions.py

stress: $(VENV)/.test-$(KEY) core
	@echo "==> stress"
	@$(BIN)/python -m pytest -q tests/device/test_stress.py
	@echo "==> every operator under torch.jit.trace"
	@cd tests && $(abspath $(BIN))/python -W ignore -m traced_operators
	@echo "==> every function of PyTorch's accelerator"
	@cd tests && OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m every_function
	@echo "==> the accuracy of predicted times"
	@$(BIN)/python benchmarks/fit_times.py --check

sanitize: $(VENV)/.test-$(KEY)
	@echo "==> tests of the device and of Metal kernels under the $(SANITIZER) sanitizer"
	@$(BIN)/python -m tests.sanitized $(SANITIZER) --part $(PART)

check: $(VENV)/.test-$(KEY)
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@echo "==> mypy"
	@$(BIN)/mypy
	@echo "==> workflows"
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-actions action.yml
	@echo "==> floors"
	@$(BIN)/python -m pytest -q tests/test_floors.py

format: $(VENV)/.test-$(KEY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

pages: $(VENV)/.test-$(KEY)
	@$(BIN)/python -m tests.pages
	@$(BIN)/python -m tests.recipes

docs: $(VENV)/.docs-$(KEY)
	@rm -rf site
	@$(BIN)/python -m sphinx -q -W --keep-going -E -d build/doctrees docs site
	@echo "==> the site is in site/index.html"

wheel: core
	@rm -rf build/cores
	@$(BIN)/python -c "import pathlib; from anymps.device._build import copy_core; copy_core(pathlib.Path('build/cores'))"
	@ANYMPS_CORES="$(abspath build/cores)" $(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .
	@echo "==> the wheel is in dist"

# The native core; says itself what it does, and says nothing when it is built already.
.PHONY: core
core: $(VENV)/.package-$(KEY)
	@$(BIN)/python -c "from anymps.device._build import build; build()"

$(VENV)/bin/python:
	@echo "==> making a virtual environment in $(VENV) with $(PYTHON)"
	@$(PYTHON) -c "import sys; sys.exit('anymps needs Python 3.10 or newer, %s is %s' % ('$(PYTHON)', sys.version.split()[0]) if sys.version_info < (3, 10) else 0)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.package-$(KEY): | $(VENV)/bin/python
	@echo "==> installing torch (the version in constraints.txt) and anymps; the first time this downloads some hundred megabytes"
	@$(PIP) --editable ".[torch]"
	@rm -f $(VENV)/.package-* && touch $@

$(VENV)/.examples-$(KEY): $(VENV)/.package-$(KEY)
	@echo "==> installing what the examples need"
	@$(PIP) --editable ".[examples]"
	@rm -f $(VENV)/.examples-* && touch $@

$(VENV)/.test-$(KEY): $(VENV)/.examples-$(KEY)
	@echo "==> installing what the tests and checks need"
	@$(PIP) --editable ".[test,lint]"
	@rm -f $(VENV)/.test-* && touch $@

$(VENV)/.integration-$(KEY): $(VENV)/.test-$(KEY)
	@echo "==> installing the libraries of the integration tests; the first time this downloads 0.7 gigabytes"
	@$(PIP) --editable ".[integration,docs]"
	@rm -f $(VENV)/.integration-* && touch $@

$(VENV)/.docs-$(KEY): $(VENV)/.package-$(KEY)
	@echo "==> installing what the site is built with"
	@$(PIP) --editable ".[docs]"
	@rm -f $(VENV)/.docs-* && touch $@

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

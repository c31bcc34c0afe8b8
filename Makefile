# Everything happens in .venv; each command below sets it up itself.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
FUZZ_SECONDS ?= 30
PLAYWRIGHT := 'playwright>=1.49'

.PHONY: fuzz test test-all test-pythons coverage lint wheel tensors kernels gpu-test browser fast site extras clean

fuzz: $(VENV)/ready
	$(BIN)/blockproof fuzz --target impl --seconds $(FUZZ_SECONDS)

# The quick tests; the end of the output says how many were left out.
test: $(VENV)/ready
	$(PYTEST) -m "not slow"

# Every test. With MEASURED=1, as in .ci/run, lines and branches that the quick ones run are counted as in `coverage`.
test-all: $(VENV)/ready
	$(if $(MEASURED),.ci/coverage --every,$(PYTEST))

# The quick tests on every Python from 3.11 to 3.13 that this machine has.
test-pythons:
	.ci/pythons

# Which lines and branches the quick tests run, child processes included. The floor is in docs/evidence/coverage.md.
coverage: $(VENV)/ready
	.ci/coverage

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(VENV)/types $(BIN)/mypy --strict -p blockproof.model -p blockproof.impl -p blockproof.fuzz -p blockproof.proofs
	MYPYPATH=$(VENV)/types $(BIN)/mypy --strict -p tests
	MYPYPATH=$(VENV)/types:benchmarks $(BIN)/mypy --strict benchmarks

# Builds the wheel and tries it in an empty environment, away from the checkout.
wheel: $(VENV)/ready
	.ci/wheel

# The extra that KV-cache tensors need; their tests are skipped without it.
tensors: $(VENV)/ready
	$(PIP) -e '.[tensors]'

# The same with Triton, whose interpreter runs the kernels of the device on a CPU.
kernels: $(VENV)/ready
	$(PIP) -e '.[tensors,kernels]'

# On a machine with a GPU, with the Python there that has torch: installs WHEEL, from a package index or without one,
# beside it, runs the tests of the device and writes its page. RELEASE: packages among which a release of vLLM lies.
# Where there is no GPU it ends at once.
GPU_PYTHON ?= python3
WHEEL ?= $(lastword $(wildcard build/blockproof-*.whl))
GPU_PATH := PYTHONPATH=build/gpu:benchmarks:$$PYTHONPATH
gpu-test:
	$(if $(WHEEL),,$(error no wheel: name one by WHEEL=, or build it with `pip wheel --no-deps -w build .`))
	rm -rf build/gpu
	$(GPU_PYTHON) -m pip install --quiet --no-deps --no-index --no-compile --target build/gpu $(WHEEL)
	$(GPU_PATH) $(GPU_PYTHON) benchmarks/device.py --device cuda --code
	$(GPU_PATH) $(GPU_PYTHON) -m pytest -q -p no:cacheprovider -m "not slow" -k "not interpret" tests/impl/test_device_tables.py \
		tests/impl/test_device_reference.py tests/impl/test_device_pages.py \
		tests/impl/test_paged_attention.py tests/impl/test_block_moves.py tests/impl/test_kv_cache_tensors.py
	$(GPU_PATH) $(GPU_PYTHON) benchmarks/device.py $(if $(RELEASE),--release $(RELEASE)) --write docs/evidence/device.md

# The driver for tests of the page in a Chromium that is installed (apt install chromium); no browser is downloaded.
browser: $(VENV)/ready
	$(PIP) $(PLAYWRIGHT)

# Our core compiled to C, from the same files: the target impl-compiled (docs/guide/fast.md). Needs a C compiler.
fast: $(VENV)/ready
	$(PIP) -e '.[fast]'
	$(BIN)/blockproof fast

# The documents as a site in build/site; a warning or a dead link is an error. Nothing there is loaded from outside.
site: $(VENV)/docs
	rm -rf build/site build/site-doctrees
	$(BIN)/python -m sphinx -q -j auto -W --keep-going -n -c docs -d build/site-doctrees . build/site
	$(BIN)/python docs/check_site.py build/site

$(VENV)/docs: $(VENV)/ready
	$(PIP) -e '.[docs]'
	touch $@

# What .ci/run needs beside, in one go.
extras: $(VENV)/ready
	$(PIP) -e '.[docs,fast,kernels,mutation,tensors]' $(PLAYWRIGHT)
	touch $(VENV)/docs

# The links let mypy see the four folders under their package name; the installed package does not need them.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[test]'
	mkdir -p $(VENV)/types/blockproof
	for folder in model impl fuzz proofs; do ln -sfn '$(CURDIR)'/$$folder $(VENV)/types/blockproof/$$folder; done
	touch $@

clean:
	rm -rf .venv .venv-* build *.egg-info .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Everything happens in .venv; `make fuzz` and `make test` set it up themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
FUZZ_SECONDS ?= 30

.PHONY: fuzz test lint tensors clean

fuzz: $(VENV)/ready
	$(BIN)/blockproof fuzz --target impl --seconds $(FUZZ_SECONDS)

test: $(VENV)/ready
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPYPATH=$(VENV)/types $(BIN)/mypy --strict -p blockproof.model -p blockproof.impl -p blockproof.fuzz -p blockproof.proofs

# The extra that KV-cache tensors need; their tests are skipped without it.
tensors: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tensors]'

# The links let mypy see the four folders under their package name; the installed package does not need them.
$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	mkdir -p $(VENV)/types/blockproof
	for folder in model impl fuzz proofs; do ln -sfn ../../../$$folder $(VENV)/types/blockproof/$$folder; done
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Everything runs in .venv. `make run` installs what its own run needs (requirements-first.lock), shows the result, and
# then installs the other packages of the core (requirements-run.lock: tables and secure noise, the two largest).
# `make install` and all other targets install everything (requirements.lock).
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: install run quick test proofs versions two-worlds mutants chaos check types-of-package types-of-examples docs pictures screenshots bench bench-peers bench-network clean
unexport PYTHONDONTWRITEBYTECODE  # tests start hundreds of processes, and each would compile all that it imports

VENV := $(or $(PGFL_VENV),.venv)
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-run
FIRST_STAMP := $(VENV)/.installed-first
PIP := $(BIN)/python -m pip --disable-pip-version-check

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

define INSTALL
@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "pgfl needs Python 3.11 or newer; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 2; }
@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
$(PIP) install --quiet --no-compile --requirement $<
$(PIP) install --quiet --no-deps --no-build-isolation --editable .
@touch $@
endef

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(INSTALL)
	@touch $(RUN_STAMP) $(FIRST_STAMP)

$(RUN_STAMP): requirements-run.lock pyproject.toml
	$(INSTALL)

$(FIRST_STAMP): requirements-first.lock pyproject.toml
	$(INSTALL)

run: $(FIRST_STAMP)
	@$(BIN)/pgfl run private-huber
	@test -e $(RUN_STAMP) || echo "Installing the rest of the core: tables (Polars) and secure noise (OpenDP) …"
	@$(MAKE) --no-print-directory --silent $(RUN_STAMP)

quick: install
	$(BIN)/python -m pytest -n 2 -m quick tests

test: install
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not proof"

proofs: install  # slow tests: pages in a browser, the documentation site, whole networks, planted bugs, the wheel
	@$(BIN)/python -m tests.browser
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m proof tests

versions: install  # lowest and highest versions, and every Python that is found
	@$(BIN)/python -m tests.versions $(ARGS)

two-worlds: install
	PGFL_TWO_WORLDS=12000 $(BIN)/python -m pytest -s --timeout=0 tests/privacy/test_two_worlds.py tests/privacy/test_two_worlds_of_masks.py tests/privacy/test_two_worlds_of_sites.py

check: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types-of-package types-of-examples

types-of-package: install
	$(BIN)/mypy

types-of-examples: install  # as code that uses the installed package
	$(BIN)/mypy --config-file= --cache-dir=.mypy_cache/examples --strict --untyped-calls-exclude=jax examples

docs: install
	$(BIN)/sphinx-build -W --keep-going -q -j auto -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

pictures: install  # of the README and the documentation, from runs: some minutes
	@$(BIN)/python -m tests.browser
	@$(BIN)/python docs/make_pictures.py $(ARGS)

screenshots: install  # of the studio for the documentation; then of every page, on two widths, by day and by night
	@$(BIN)/python -m tests.browser
	@$(BIN)/python -m tests.studio.screenshots docs/studio
	@$(BIN)/python -m tests.studio.screenshots results/screenshots --all

mutants: install
	@$(BIN)/python -m tests.mutants.run $(ARGS)

chaos: install
	@$(BIN)/python -m tests.network.chaos $(ARGS)

bench: install
	@$(BIN)/python benchmarks/run.py $(ARGS)

bench-peers: install
	@$(BIN)/python benchmarks/peers.py $(ARGS)

bench-network: install
	@$(BIN)/python benchmarks/network.py $(ARGS)

clean:
	rm -rf .venv .venv-peers* results dist docs/_build docs/reference/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

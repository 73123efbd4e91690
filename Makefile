# Needs python3 3.11 or later and the package index. `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
PEERS ?= .venv-peers

.DEFAULT_GOAL := help
.PHONY: help env lint test-fast test test-long test-hosts test-gpu bench bench-peers quickstart demo clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

env: $(STAMP)  ## the environment, from constraints.txt, in .venv

$(STAMP): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1); Python 3.11 or later is needed: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

lint: $(STAMP)  ## style, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-fast: $(STAMP)  ## pure and unit tests, at most 4 minutes
	$(PYTEST) -m "not ray and not slow and not long and not hosts and not gpu"

test: lint  ## lint and the whole suite but test-long and test-hosts, at most 25 minutes
	$(PYTEST) -m "not long and not hosts"

test-long: $(STAMP)  ## tests of over a minute each
	$(PYTEST) -m "long"

test-hosts: $(STAMP)  ## tests that need root or distribution packages
	$(PYTEST) -m "hosts"

test-gpu: $(STAMP)  ## what only a GPU can show
	$(PYTEST) -m "gpu"

bench: bench-peers  ## all benches; fails when one misses its bar
	@failed=""; for b in bench/*.py; do case $$b in */_*) continue;; esac; \
	  echo "== $$b"; $(BIN)/python $$b || failed="$$failed $$b"; done; \
	  test -z "$$failed" || { echo "missed:$$failed" >&2; exit 1; }

bench-peers: $(STAMP)  ## what benches are compared with, and tables that searches run on, in an environment of their own
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --disable-pip-version-check --quiet -r bench/peers.txt
	$(PEERS)/bin/python -m pip install --disable-pip-version-check --quiet --no-deps -r bench/tables.txt

quickstart: $(STAMP)  ## prepare and train a small language model with two workers, within 5 minutes
	$(BIN)/pliant prepare stdlib_lm
	@name=quickstart; if [ -e runs/$$name ]; then name=quickstart-$$(date +%Y%m%d-%H%M%S); \
	  echo "runs/quickstart exists (to go on with it: $(BIN)/pliant resume quickstart); this run is $$name"; fi; \
	  $(BIN)/pliant train stdlib_lm --name $$name

demo: $(STAMP)  ## three nodes on this machine, one drained and one killed: what it costs, and that the numbers stay; 5 minutes
	$(BIN)/python docs/demo.py

clean:  ## removes the environments and caches; keeps datasets/ and runs/
	rm -rf $(VENV) $(PEERS) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis platform/*.egg-info
	find platform pipelines tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

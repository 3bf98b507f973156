# Every target does its own set-up in .venv, from a bare clone, and is quick the second time.
#
#   make demo            one graph and many: every strategy in turn, predicted and measured, verified
#   make test            formatting, lint, types, layers, tests
#   make accept ISSUE=3  what the issue says the project must show; without ISSUE: the stored results
#   make bench-steps     plain PyG against autoplan on one device, 14 models; MODEL=GCN GRAPH=amazon_cs for one

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test accept bench-steps clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(INSTALLED)

# The stamp is written last, so an interrupted installation is repeated; the requirements alone make it stale.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "autoplan needs Python 3.11 or later; say which one: make PYTHON=python3.12")'
	@echo "setting up $(VENV) (minutes the first time)" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/python -m autoplan demo

# pytest is last: its closing line is the last line of a green run.
test: $(INSTALLED)
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

accept: $(INSTALLED)
	@$(BIN)/python -m benchmarks.accept $(if $(ISSUE),--issue $(ISSUE))

bench-steps: $(INSTALLED)
	@$(BIN)/python -m benchmarks.steps $(if $(MODEL),--model $(MODEL)) $(if $(GRAPH),--graph $(GRAPH))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist

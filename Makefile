# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export ROBUST_DIFFUSION_DATA ?= $(wildcard ../shared/data)

.DEFAULT_GOAL := help

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Create .venv and install the pinned dependencies

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## Train three flows on the built-in graph, attack them, print the table
	$(BIN)/python -m robust_diffusion.run -m experiment=demo flow=heat,mean_curvature,beltrami seed=0,1

cora-flows: $(STAMP) ## Table flows of the paper on the real Cora, three seeds (FIDELITY=paper|released)
	$(BIN)/python -m robust_diffusion.run -m dataset=cora flow=heat,grand,beltrami seed=0,1,2 \
		fidelity=$(or $(FIDELITY),paper)

data-list: $(STAMP) ## Which datasets are there
	$(BIN)/python -m robust_diffusion.run data list

data-verify: $(STAMP) ## Every data file's hash, every graph's statistics
	$(BIN)/python -m robust_diffusion.run data verify

table-4: $(STAMP) ## The paper's dataset table beside what is measured
	$(BIN)/python -m robust_diffusion.run data table

test: $(STAMP) ## Run the fast tests
	$(BIN)/python -m pytest -n 2 -m "not slow and not gpu"

test-all: $(STAMP) ## Run every test that this machine can run
	$(BIN)/python -m pytest -n 2

check: $(STAMP) ## Format, lint, types and import order
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove what builds and tests leave behind; results in outputs/ stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -exec rm -rf {} +

.PHONY: help setup demo cora-flows data-list data-verify table-4 test test-all check format clean

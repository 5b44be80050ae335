# Two commands do all the set-up: `make demo` and `make test`. `make help` lists the rest.
# The first Python of a version that the package supports; `make demo PYTHON=...` names another.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3 python; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
	&& echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.core
STAMP := $(VENV)/.installed
# Only what is imported is compiled: at installation, and not when it is first used, since
# PYTHONDONTWRITEBYTECODE may be set there, and every command would take 20 s.
COMPILE := PYTHONDONTWRITEBYTECODE= $(BIN)/python -c \
	'from robust_diffusion import *; from robust_diffusion.attacks import *; \
	from robust_diffusion.flows import *; import robust_diffusion.paper.commands'
PIP := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt
GRB := .venv-grb
export ROBUST_DIFFUSION_DATA ?= $(or $(wildcard ../shared/data),data)

# The published accuracies are those of portable arithmetic.
ifneq (,$(filter zoo-check,$(MAKECMDGOALS)))
PORTABLE := 1
endif

# Rounds alike on x86 processors with AVX2, a little more slowly; `PORTABLE` in system/portable.py.
ifdef PORTABLE
export MKL_CBWR := COMPATIBLE
export ATEN_CPU_CAPABILITY := avx2
export OPENBLAS_CORETYPE := Haswell
export ROBUST_DIFFUSION_ROOTS := exact
endif

.DEFAULT_GOAL := help

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Create .venv and install the pinned dependencies

$(CORE): pyproject.toml constraints.txt
	$(if $(PYTHON),,$(error expected a Python of version 3.11 to 3.13, got none; install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3))
	@echo 'Into $(VENV): PyTorch, then what the package needs without extras; this takes minutes'
	@start=$$(date +%s); $(PYTHON) -m venv $(VENV) && $(PIP) torch && $(PIP) --editable . && $(COMPILE) \
		&& echo "Installed: $$(du -sm $(VENV) | cut -f1) MB in $$(( $$(date +%s) - start )) s"
	@touch $@

$(STAMP): $(CORE)
	@echo 'Into $(VENV): the extras for tests and sweeps; this takes minutes'
	$(PIP) --editable '.[dev,launchers,clusters,slurm]'
	@touch $@

demo: $(CORE) ## Train three flows on the built-in graph, attack them, print the table
	$(BIN)/python -m robust_diffusion.run -m experiment=demo flow=heat,mean_curvature,beltrami seed=0,1

data-list: $(STAMP) ## Which datasets are there
	$(BIN)/python -m robust_diffusion.run data list

data-verify: $(STAMP) ## Every data file's hash, every graph's statistics
	$(BIN)/python -m robust_diffusion.run data verify

table-4: $(STAMP) ## The paper's dataset table beside what is measured
	$(BIN)/python -m robust_diffusion.run table 4

RUN := $(BIN)/python -m robust_diffusion.run
RUN_TABLES := $(addprefix table-,1 2 3 5 6 7 8 9 10 11 12 13 14 15)
SCALE ?= full
OPTIONS = scale=$(SCALE) $(if $(SEEDS),'seed=range($(SEEDS))') $(if $(FIDELITY),fidelity=$(FIDELITY)) \
	$(if $(JOBS),hydra/launcher=cores hydra.launcher.n_jobs=$(JOBS)) $(ARGS)
VIEW = --scale $(SCALE) $(if $(FIDELITY),--fidelity $(FIDELITY))

# Runs side by side would take each other's time.
table-7: override JOBS =

# A run without its data fails, and the table says so; the others go on.
$(RUN_TABLES): $(STAMP)
	$(RUN) experiment=$@ $(OPTIONS)

tables: $(STAMP) ## Run and print every table, or one: make table-3 (SCALE=smoke SEEDS=10 FIDELITY=released JOBS=2)
	@failed=; for table in $(RUN_TABLES); do \
		$(MAKE) --no-print-directory $$table || failed="$$failed $$table"; done; \
	$(MAKE) --no-print-directory table-4; \
	if [ -n "$$failed" ]; then echo "runs failed in$$failed"; exit 1; fi

figure-flows: $(STAMP) ## t-SNE of heat, mean curvature and Beltrami on Cora, with attention
	$(RUN) figure flows scale=$(SCALE) $(if $(FIDELITY),fidelity=$(FIDELITY)) $(ARGS)

figure-lipschitz: $(STAMP) ## t-SNE of Beltrami without and with the Lipschitz constraint
	$(RUN) figure lipschitz scale=$(SCALE) $(if $(FIDELITY),fidelity=$(FIDELITY)) $(ARGS)

claims: $(STAMP) ## What the paper claims in words, judged on the records
	$(RUN) claims $(if $(FIDELITY),--fidelity $(FIDELITY)) $(addprefix --records ,$(SHOWN))

# The published records and, if there are any, one's own.
SHOWN = $(or $(RECORDS),experiments/results/records.jsonl.gz $(wildcard outputs/records))

report: $(STAMP) ## One HTML page of your records, or of RECORDS: tables, charts, claims, failed runs
	$(RUN) report $(VIEW) $(addprefix --records ,$(RECORDS))

publish: $(STAMP) ## Add RECORDS to experiments/results/, and rebuild its tables and the README's figure
	$(BIN)/python experiments/publish.py $(ARGS) $(RECORDS)
	$(BIN)/python experiments/picture.py attack

reproduce: $(STAMP) ## Repeat published runs and compare (ARGS="--runs 3", or their ids)
	$(BIN)/python experiments/reproduce.py $(ARGS)

zoo-check: $(STAMP) ## Evaluate each published model anew, on the clean and on its worst graph
	$(BIN)/python experiments/make_zoo.py --check $(ARGS)

leaderboard: $(STAMP) ## Models by their worst cases over budgets
	$(RUN) leaderboard $(addprefix --records ,$(RECORDS)) $(ARGS)

dashboard: $(STAMP) ## W&B views of each table's runs and of all (TABLE=3, ARGS=--dry-run to look first)
	$(RUN) dashboard $(VIEW) $(if $(TABLE),--experiment table-$(TABLE)) $(ARGS)

# What was made of a record adds to the run that is there, and keeps its curves.
OFFLINE := find outputs -type d -path '*/wandb/offline-run-*'
wandb-sync: $(STAMP) ## Upload the W&B runs that were logged offline
	@$(OFFLINE) ! -path '*/from-records/*' -prune -exec $(BIN)/wandb sync {} +
	@$(OFFLINE) -path '*/from-records/*' -prune -exec env WANDB_RESUME=allow $(BIN)/wandb sync {} +

# GRB's declared dependencies would bring 85 packages and a CUDA torch; these are the ones it imports.
$(GRB)/.installed: pyproject.toml constraints.txt
	@echo 'Into $(GRB): PyTorch, GRB and DGL; this takes minutes'
	$(PYTHON) -m venv $(GRB)
	$(GRB)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(GRB)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[report]' psutil
	$(GRB)/bin/python -m pip install --quiet --no-deps grb==0.1.0 dgl==1.1.3
	@touch $@

grb-parity: $(GRB)/.installed ## Run GRB 0.1.0's models and attacks beside ours, in its own environment (ARGS=--smoke)
	OMP_NUM_THREADS=1 $(GRB)/bin/python experiments/grb_parity/grb_parity.py $(ARGS)

bench: $(STAMP) ## Measure speed and memory into benchmarks/results/ (10 minutes on a quiet machine)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/speed.py $(ARGS)

bench-check: $(STAMP) ## Measure the ratios of an epoch and compare them with those recorded
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/speed.py --only epoch --check $(ARGS)

test: $(STAMP) ## Run every test that is not marked slow
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow' $(ARGS)

wheel-check: ## Install the wheel into an empty environment of PYTHON, and run there what the pages name (ARGS=--lowest)
	$(PYTHON) tests/installed.py $(ARGS)

# Where there are tensors they are checked in every call, for which those packages are compiled anew in each process.
TENSORS := attacks certificates data evaluation flows integrators models operators paper.figures training
comma := ,
SHAPES := --jaxtyping-packages='$(foreach of,$(TENSORS),robust_diffusion.$(of)$(comma))tests.shapes.checked'

# Seconds of processor time, the type checker's included; a slow and busy machine needs several times an idle one's.
LIMIT := --limit-seconds=120

test-all: $(STAMP) ## Run every test that this machine can run, and check every tensor's shape
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=30 --durations-min=5 $(SHAPES) $(LIMIT) $(ARGS)

test-devices: $(STAMP) ## Run what a card runs on a pretended one, in a process of its own
	ROBUST_DIFFUSION_CARD=1 $(BIN)/python -m pytest tests/test_devices.py $(ARGS)

check: $(STAMP) ## Format, lint, types, import order and insecure code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src

# Apart from `check`: it asks a server for the known vulnerabilities, and so needs a network, and can fail
# though nothing here has changed.
audit: $(STAMP) ## Known vulnerabilities of the pinned dependencies
	$(BIN)/pip-audit --requirement constraints.txt --strict --no-deps --disable-pip --progress-spinner off

docs: $(STAMP) ## Build the documentation into build/site, links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP) ## Format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove what builds and tests leave behind; results in outputs/ stay
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -exec rm -rf {} +

.PHONY: help setup demo data-list data-verify table-4 $(RUN_TABLES) tables figure-flows \
	figure-lipschitz claims report publish reproduce zoo-check leaderboard dashboard wandb-sync grb-parity bench bench-check \
	test test-all test-devices wheel-check check audit docs format clean

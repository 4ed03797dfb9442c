# `make demo` and `make test` do everything on a machine that has make, Python >= 3.11 and pip.
# Nothing of Python is installed outside this checkout.
SHELL := bash
PYTHON ?= python3
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
# Tests wait for processes half of their time: two to a core take two thirds of the time of one to a core.
PYTEST := $(BIN)/pytest -n 4 --dist worksteal
PYTEST_ARGS ?=
export UV_PROJECT_ENVIRONMENT := .venv
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo picture reference demo-training demo-serving demo-scale cluster test test-cluster test-all test-user test-pythons fuzz kills check bench screenshots lock clean packages

help:
	@echo "make demo      a real matrix on this machine, and its report"
	@echo "make demo-training  a training job that passes, diverges, hangs and gets slower"
	@echo "make demo-serving   a model server in three precisions, and one with a fault that is caught"
	@echo "make demo-scale     hundreds of workloads on a simulated cluster where one is built, else as processes"
	@echo "make cluster   a real Kubernetes with fake GPU nodes, built from source"
	@echo "make test      the tests that need no cluster: minutes"
	@echo "make test-cluster  those that do, on a real Kubernetes that is built from source the first time"
	@echo "make test-user  the tests without a cluster as an ordinary user, in a copy of this checkout"
	@echo "make test-pythons  the same with the oldest and the newest Python that is here"
	@echo "make test-all  all tests, with every failpoint and 100 random kills"
	@echo "make fuzz      many bad inputs of every kind: 100,000 of each, or COUNT=1000 KINDS=plans SEED=2 FIRST=0"
	@echo "make kills     local runs that are killed at random instants and attached: 100, or SEEDS=0:1000"
	@echo "make check     ruff, mypy --strict, import contracts, vulture, no large files"
	@echo "make reference  the tables of suite fields in docs/, from the models, and of verdicts, from real runs"
	@echo "make screenshots  a picture of each page of the report and the dashboard, into runs/screenshots"
	@echo "make bench     every number beside the peer it is compared with"

setup: .venv/.complete

.tools/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Seatrial needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Set PYTHON=/path/to/python3."; exit 1; }
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --upgrade --target .tools uv

# Tests start Seatrial hundreds of times: compiling its modules anew takes as long as all the rest that it does.
.venv/.complete: export UV_COMPILE_BYTECODE := 1
.venv/.complete: requirements.lock pyproject.toml | $(filter .tools/bin/uv,$(UV))
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv
	@$(UV) pip sync --quiet --python .venv --require-hashes requirements.lock
	@$(UV) pip install --quiet --python .venv --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup
	@DEMO_TOKEN=$${DEMO_TOKEN:-open-sesame} $(BIN)/seatrial run examples/demo/suite.yaml

# The pictures of README.md and docs/reports.md, from a real run: what it prints, and its grid.
picture: setup
	@DEMO_TOKEN=$${DEMO_TOKEN:-open-sesame} FORCE_COLOR=1 COLUMNS=112 $(BIN)/seatrial run examples/demo/suite.yaml | $(BIN)/python docs/picture.py
	@$(BIN)/seatrial report last --svg docs/grid.svg

# tests/docs fails when a table differs from the models, or from what the situations of docs/verdicts.md end with.
reference: setup
	@$(BIN)/python docs/reference.py
	@REWRITE_VERDICTS=1 $(BIN)/pytest -q tests/docs/test_verdicts.py

# The story of a regression, with a real training job; the first time it builds an environment with JAX.
demo-training: setup
	@sh examples/training/demo.sh $(CURDIR)/$(BIN)/seatrial runs/demo-training

# A real model server, llama.cpp; the first time it builds an environment with it.
demo-serving: setup
	@sh examples/serving/demo.sh $(CURDIR)/$(BIN)/seatrial runs/demo-serving

# On a simulated cluster of its own, which is taken down at the end; where none is built, with processes.
demo-scale: setup
	@sh examples/scale/demo.sh $(CURDIR)/$(BIN) runs/demo-scale

# A Kubernetes of your own to play with: a real control plane, from source, and fake nodes with GPUs.
cluster: setup
	@$(BIN)/python -m cluster up play --fake-nodes 100 --gpus 8

# When root on Debian, what the tests need of Debian's packages; anywhere else those tests say that they are skipped.
packages:
	@tests/debian-packages

# What needs a cluster is told apart by the markers that tests/cluster_selection.py gives.
test: setup packages
	@$(PYTEST) -m "not cluster" $(PYTEST_ARGS)

# Kubernetes from source, built the first time and kept; addons only when a chosen test needs them. These tests mostly wait.
test-cluster: setup packages
	@$(PYTEST) -n 6 -m cluster $(PYTEST_ARGS)

test-all: setup packages
	@SEATRIAL_TEST_ALL=1 $(PYTEST) --timeout 3600 $(PYTEST_ARGS)

# What needs root is skipped there, and counted.
test-user: setup packages
	@tests/as-user $(PYTEST_ARGS)

test-pythons: setup
	@tests/other-pythons $(PYTEST_ARGS)

# A few hundred of each are in `make test`. One that fails is printed with the line that makes it again.
COUNT ?= 100000
SEED ?= 1
FIRST ?= 0
fuzz: setup
	@PYTHONPATH=tests $(BIN)/python -m fuzz $(KINDS) --count $(COUNT) --seed $(SEED) --first $(FIRST)

# Real local runs, each killed up to four times. A few are in `make test`. One that fails: make kills SEEDS=17:18
SEEDS ?= 0:100
kills: setup
	@SEATRIAL_SEEDS=$(SEEDS) $(PYTEST) tests/engine/test_kills.py -k storm $(PYTEST_ARGS)

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/python tests/large_files.py

# README's picture among them; of runs of the demos, too, where there are any in runs/.
screenshots: setup packages
	@PYTHONPATH=tests/report:. $(BIN)/python tests/report/screenshots.py
	@PYTHONPATH=tests:. $(BIN)/python tests/web/screenshots.py

bench: setup
	@failed=; for bench in bench/[a-z]*.py; do echo; echo "== $$bench"; $(BIN)/python $$bench || failed="$$failed $$bench"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

# The lock is uv's, in the form that names packages, versions and hashes and no place to get them from, so that it works behind any mirror.
lock: | $(filter .tools/bin/uv,$(UV))
	$(UV) lock --quiet --upgrade
	$(UV) export --quiet --frozen --all-groups --no-emit-project --no-annotate --no-header --output-file requirements.lock
	rm uv.lock

clean:
	rm -rf .venv .venv-* .tools .cache runs

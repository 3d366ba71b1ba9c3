# Two commands on a fresh machine: `make demo` and `make test`. The rest is for those who work on ipulaunch.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS ?= cpu,test

# Tests that start instances use all cores themselves, and bound how long these take: they run one after another.
IN_PARALLEL ?= --numprocesses auto --maxprocesses 8 --dist worksteal

# For machines that others use as well: `make test AGAIN='--reruns 1 -raR'` tries what has failed once more, and lists it.
AGAIN ?=

# Any of the three stacks, in an environment of its own; `find` prints nothing where the interpreter is missing.
TWIN_PYTHON ?= $(shell .ci/find-python 3.8)
NEWEST_PYTHON ?= $(shell .ci/find-python 3.13 3.12)

.PHONY: help demo test test-core faults test-hosts test-slurm test-twin test-newest core-twin core-newest lint learn fuzz clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

demo: $(VENV)/.ready ## rehearse CosmoFlow for a POD16 on this machine
	$(BIN)/ipulaunch cosmoflow --pod 16

test: $(VENV)/.ready ## the whole test suite
	$(BIN)/python -m pytest $(AGAIN) $(IN_PARALLEL) -m "not mpi and not slurm and not hosts"
	$(BIN)/python -m pytest $(AGAIN) -m mpi

test-core: $(VENV)/.ready ## the subset that every stack must pass
	$(BIN)/python -m pytest $(AGAIN) $(IN_PARALLEL) -m "core and not mpi"
	$(BIN)/python -m pytest $(AGAIN) -m "core and mpi"

faults: $(VENV)/.ready ## every row of the fault table three times, as root; FAULT_TABLE=docs/faults.md keeps what it measures
	FAULT_ROUNDS=3 $(BIN)/python -m pytest tests/faults/test_faults.py

test-hosts: $(VENV)/.ready ## rehearsals across hosts made of network namespaces, as root
	.ci/install-sshd
	$(BIN)/python -m pytest $(AGAIN) -m hosts tests/hosts

test-slurm: $(VENV)/.ready ## jobs on a real Slurm of one node, on loopback
	.ci/install-slurm
	$(BIN)/python -m pytest $(AGAIN) -m slurm tests/slurm

test-twin: ## the whole suite as on a POD: Python 3.8, TensorFlow 2.6.3
	$(call on_stack,$(TWIN_PYTHON),.venv-twin,3.8,test)

test-newest: ## the whole suite on Python 3.12 or newer, with the newest TensorFlow and tf-keras
	$(call on_stack,$(NEWEST_PYTHON),.venv-newest,3.12 or newer,test)

core-twin: ## the core subset on the twin stack
	$(call on_stack,$(TWIN_PYTHON),.venv-twin,3.8,test-core)

core-newest: ## the core subset on the newest stack
	$(call on_stack,$(NEWEST_PYTHON),.venv-newest,3.12 or newer,test-core)

# $(call on_stack,interpreter,environment,what is needed,target)
on_stack = @test -n "$(1)" || { echo "no Python $(3) here"; exit 1; }; $(MAKE) --no-print-directory PYTHON=$(1) VENV=$(2) $(4)

# In an environment of its own: strict editable mode shows type checkers the packages as links under one name, but
# only the files that were there when it was installed.
lint: ## ruff and mypy
	test -d .venv-lint || $(PYTHON) -m venv .venv-lint
	.venv-lint/bin/python -m pip install --quiet --editable '.[lint]' --config-settings editable_mode=strict
	.venv-lint/bin/ruff check .
	.venv-lint/bin/ruff format --check .
	.venv-lint/bin/mypy
	.venv-lint/bin/mypy benchmarks

fuzz: $(VENV)/.ready ## more than 100,000 hostile files, new ones each time, in some minutes
	FUZZ_CASES=4500 $(BIN)/python -m pytest -q tests/fuzz

learn: $(VENV)/.ready ## train on small synthetic sets and check that the models learn
	$(BIN)/python benchmarks/learn.py

clean: ## remove what make made
	rm -rf .venv .venv-lint .venv-twin .venv-newest build *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: setup.cfg pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $@

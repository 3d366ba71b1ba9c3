# Two commands on a fresh machine: `make demo` and `make test`. The rest is for those who work on ipulaunch.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXTRAS ?= cpu,serving,test,report
PYTEST = $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal
# Tests with processes of their own wait for these most of the time: two more of them at once fill the cores.
WAITING_PYTEST = $(PYTEST) --numprocesses $$(( $$(nproc) + 2 ))

# Any of the three stacks, in an environment of its own; `find` prints nothing where the interpreter is missing.
TWIN_PYTHON ?= $(shell .ci/find-python 3.8)
NEWEST_PYTHON ?= $(shell .ci/find-python 3.13 3.12)

.PHONY: help demo test test-unit test-tensorflow test-live test-core test-all night faults test-hosts test-slurm
.PHONY: all-hosts all-slurm test-twin test-newest core-twin core-newest lint learn fuzz reference clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 18

demo: $(VENV)/.ready ## rehearse CosmoFlow for a POD16 on this machine
	$(BIN)/ipulaunch cosmoflow --pod 16 --engine openmpi

test: $(VENV)/.ready ## what a change must pass: all three tiers, as far as they need neither root nor daemons
	@$(call each,test-unit test-tensorflow test-live)

test-unit: $(VENV)/.ready ## the tier without TensorFlow and without processes
	$(PYTEST) tests/unit

test-tensorflow: $(VENV)/.ready ## the tier with TensorFlow, in process
	$(PYTEST) tests/tensorflow

test-live: $(VENV)/.ready ## the tier with real processes: Open MPI, signals, faults
	$(WAITING_PYTEST) tests/live

test-core: $(VENV)/.ready ## the subset of all tiers that every stack must pass
	$(WAITING_PYTEST) -m "core and not night and not slurm and not hosts"

test-all: $(VENV)/.ready ## everything there is, for a release or a night: all stacks, Slurm, hosts, fuzz, faults
	@$(call each,lint test night fuzz all-slurm all-hosts test-twin test-newest)

night: $(VENV)/.ready ## the tests that are left out of `make test`, each with the reason in its docstring
	$(PYTEST) -m "night and not slurm and not hosts"

faults: $(VENV)/.ready ## every row of the fault table three times, as root; FAULT_TABLE=docs/faults.md keeps what it measures
	FAULT_ROUNDS=3 $(BIN)/python -m pytest -m "" tests/live/faults/test_faults.py

test-hosts: $(VENV)/.ready ## a rehearsal across two hosts made of network namespaces, as root
	.ci/install-sshd
	$(BIN)/python -m pytest -m "hosts and not night" tests/live/hosts

all-hosts: $(VENV)/.ready ## every rehearsal across hosts, as root
	.ci/install-sshd
	$(BIN)/python -m pytest -m hosts tests/live/hosts

test-slurm: $(VENV)/.ready ## one job on a real Slurm of one node, on loopback
	.ci/install-slurm
	$(BIN)/python -m pytest -m "slurm and not night" tests/live/slurm

all-slurm: $(VENV)/.ready ## every job on a real Slurm
	.ci/install-slurm
	$(BIN)/python -m pytest -m slurm tests/live/slurm

test-twin: ## `make test` as on a POD: Python 3.8, TensorFlow 2.6.3
	$(call on_stack,$(TWIN_PYTHON),.venv-twin,3.8,test)

test-newest: ## `make test` on Python 3.12 or newer, with the newest TensorFlow and tf-keras
	$(call on_stack,$(NEWEST_PYTHON),.venv-newest,3.12 or newer,test)

core-twin: ## the core subset on the twin stack
	$(call on_stack,$(TWIN_PYTHON),.venv-twin,3.8,test-core)

core-newest: ## the core subset on the newest stack
	$(call on_stack,$(NEWEST_PYTHON),.venv-newest,3.12 or newer,test-core)

# $(call on_stack,interpreter,environment,what is needed,target)
on_stack = @test -n "$(1)" || { echo "no Python $(3) here"; exit 1; }; $(MAKE) --no-print-directory PYTHON=$(1) VENV=$(2) $(4)

# $(call each,targets): makes every target, whatever became of those before it, and fails at the end. Ctrl-C ends it.
each = trap 'exit 130' INT; failed=; \
	for target in $(1); do \
		echo "== $$target"; $(MAKE) --no-print-directory $$target || failed="$$failed $$target"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed"; exit 1; fi

# In an environment of its own: strict editable mode shows type checkers the packages as links under one name, but
# only the files that were there when it was installed.
lint: ## ruff and mypy
	test -d .venv-lint || $(PYTHON) -m venv .venv-lint
	.venv-lint/bin/python -m pip install --quiet --editable '.[lint]' --config-settings editable_mode=strict
	.venv-lint/bin/ruff check .
	.venv-lint/bin/ruff format --check .
	.venv-lint/bin/mypy
	.venv-lint/bin/mypy benchmarks docs/make_reference.py

fuzz: $(VENV)/.ready ## more than 100,000 hostile files, new ones each time, in some minutes
	FUZZ_CASES=4500 $(BIN)/python -m pytest -q tests/tensorflow/fuzz

reference: $(VENV)/.ready ## write docs/reference.md from the commands
	$(BIN)/python docs/make_reference.py

learn: $(VENV)/.ready ## train on small synthetic sets and check that the models learn
	$(BIN)/python benchmarks/learn.py

clean: ## remove what make made
	rm -rf .venv .venv-lint .venv-twin .venv-newest build *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: setup.cfg pyproject.toml tests/official-client.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement tests/official-client.txt || \
		echo "without the official client of TensorFlow Serving: its tests are skipped"
	@touch $@

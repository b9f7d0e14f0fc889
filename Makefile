# Two commands do everything on a fresh clone (Python >= 3.11 with venv, g++): `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
EXAMPLE ?= examples/softmax-scale-mask/model.py
# Exact versions; `make install CONSTRAINTS=` resolves freely within the ranges of pyproject.toml.
CONSTRAINTS ?= -c .ci/constraints.txt

.PHONY: demo test lint install install-dev install-trainers bench clean

demo: install ## install into .venv, then optimize a real task by the turns that ship with it
	$(BIN)/agent optimize $(EXAMPLE)

test: install-dev ## the whole test suite; Docker, bubblewrap and GPU tests skip with a reason where they cannot run
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

install-trainers: install-dev ## TRL, verl and verifiers, so that the tests of exports and environments meet the real ones
	$(BIN)/pip install --quiet --no-deps -r .ci/trainers.txt

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python >= 3.11 is needed: make PYTHON=python3.12 …'; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/pip pyproject.toml .ci/constraints.txt
	$(BIN)/pip install --quiet $(CONSTRAINTS) -e '.[local]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet $(CONSTRAINTS) -e '.[local,dev]'
	touch $@

bench: install-dev ## the figures of the README
	$(BIN)/python benchmarks/sandbox_latency.py
	$(BIN)/python benchmarks/turn_overhead.py

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

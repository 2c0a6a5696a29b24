# Everything runs in .venv, made with the standard venv and pip.
# PIP_ARGS reaches pip, for instance to choose a CPU build of torch: make demo PIP_ARGS="--extra-index-url URL"
PYTHON ?= python3
PIP_ARGS ?=
BIN := .venv/bin

.PHONY: demo test test-all soak lint types check bench house browser clean

demo: .venv/installed
	$(BIN)/planner demo

test: .venv/installed
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not gpu and not soak"

test-all: .venv/installed
	$(BIN)/pytest -n 2 --dist loadfile -m "not gpu and not soak"

soak: .venv/installed  # every pair of layouts, in some minutes
	$(BIN)/pytest -m soak

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

check: .venv/installed
	$(BIN)/planner check tests/golden

bench: .venv/installed
	$(BIN)/python -m benchmarks

house: .venv/installed  # the floors as README and CONTRIBUTING draw them
	$(BIN)/python -m tests.house

browser:
	test -n "$$PLANNER_BROWSER" || command -v chromium || command -v google-chrome || \
	  (apt-get update && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core)

.venv/installed: pyproject.toml constraints.txt build_native.py planner/packing/fill.c planner/simulate/clock.c
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(PIP_ARGS) --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable ".[torch,dev]"
	touch $@

clean:
	rm -rf .venv planner-demo

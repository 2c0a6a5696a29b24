# Everything runs in .venv, made with the standard venv and pip.
# PIP_ARGS reaches pip, for instance to choose a CPU build of torch: make demo PIP_ARGS="--extra-index-url URL"
PYTHON ?= python3
PIP_ARGS ?=
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder
unexport PYTHONDONTWRITEBYTECODE  # compiled once, and not by every process that a test starts

.PHONY: demo test test-all soak lint types check bench house formats docs browser parsers clean

demo: .venv/installed
	$(BIN)/planner demo

test: .venv/installed
	$(PYTEST) -m "not slow and not gpu and not soak"

test-all: .venv/installed
	$(PYTEST) -m "not gpu and not soak"

soak: .venv/installed  # what other tests have a part of, and all examples of property tests
	$(PYTEST) --thorough -m "(soak or hypothesis) and not gpu"

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy

check: .venv/installed
	$(BIN)/planner check tests/golden

bench: .venv/installed
	$(BIN)/python -m benchmarks

house: .venv/installed  # the floors as docs/house.md and CONTRIBUTING draw them
	$(BIN)/python -m tests.house

formats: .venv/installed  # the pages of docs/formats and docs/options.md, from the specs and the verbs
	$(BIN)/python -m tests.format_pages
	$(BIN)/python -m tests.option_page

docs: .venv/installed  # the pages as a site that needs no network: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

browser:
	test -n "$$PLANNER_BROWSER" || command -v chromium || command -v google-chrome || \
	  (apt-get update && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core)

parsers: .venv/installed  # other programs' own parsers, in .parsers: what they say of exported files, written anew
	$(BIN)/python -m tests.targets.parsers
	$(BIN)/python -m tests.targets.torchtitan_parsers
	$(BIN)/python -m tests.targets.trainers_parsers

.venv/installed: pyproject.toml constraints.txt build_native.py planner/packing/fill.c planner/simulate/clock.c
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(PIP_ARGS) --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet $(PIP_ARGS) --constraint constraints.txt --editable ".[torch,dev]"
	$(BIN)/pip install --quiet $(PIP_ARGS) --no-deps axe-playwright-python==0.1.8  # for its axe-core alone, no Playwright
	touch $@

clean:
	rm -rf .venv planner-demo site

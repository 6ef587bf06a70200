# Everything a newcomer or CI runs. `make env` makes .venv with all that is needed; the other targets do that by
# themselves where it is missing or older than pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := sharp_engine proto client cli server benchmarks tests

.PHONY: env test test-clients lint format types imports unit generate

env: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

test: lint types imports unit

lint: env
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

format: env
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

types: env
	$(BIN)/mypy

imports: env
	$(BIN)/lint-imports

unit: env
	$(BIN)/pytest

generate: env
	$(BIN)/python proto/generate.py

# Stock clients of other projects against a running server: needs npm, so not part of `make test`.
test-clients: env
	$(BIN)/python tests/stock_clients/run.py

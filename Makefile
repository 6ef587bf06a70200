# Everything a newcomer or CI runs. Each target makes .venv by itself where it is missing or older than pyproject.toml.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := sharp_engine proto client cli server benchmarks reliability devtools demo examples tests
FORGET ?= 3

.DEFAULT_GOAL := help
.PHONY: help env ring-env ring-check demo serve browser pictures test iproute2 test-cluster test-clients test-python image-check audit lock sbom licences atheris fuzz-decoders faults lint format types imports unit generate readme proof

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: .venv/ready ## .venv with everything that is needed

.venv/ready: pyproject.toml
	@echo "making .venv: torch is large, so this takes some minutes the first time"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

ring-env: env ## .venv-ring with the rivals' libraries, for `sharp benchmark ring`
	@$(BIN)/python -m benchmarks.ring.environment

ring-check: ring-env ## every contestant of the ring on a tiny stream; needs the rivals' libraries, so not part of `make test`
	$(BIN)/python -m tests.benchmarks.ring_check

demo: env ## learn digits without forgetting, survive a SIGKILL, forget FORGET=3; KEEP=1 keeps serving its page
	@$(BIN)/python -m demo --forget $(FORGET) $(if $(KEEP),--keep)

serve: env ## a server on localhost:50051 with its data in ./sharp-data, until Ctrl-C
	@$(BIN)/sharp serve --data-folder sharp-data

browser: ## Debian's chromium, for the tests of the page, where root may install it; without one they are skipped
	@if command -v chromium >/dev/null; then :; elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null \
	  || echo "chromium could not be installed: the tests of the page are skipped"; \
	else echo "no chromium, and no right to install it: the tests of the page are skipped"; fi

pictures: env browser ## the pictures of the page in docs/images
	$(BIN)/python -m tests.page.pictures

test: lint types imports unit ## every check and every test

lint: env ## ruff: rules and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

format: env ## ruff: fix what it can
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

types: env ## mypy, strict
	$(BIN)/mypy

imports: env ## import-linter: who may import whom
	$(BIN)/lint-imports

unit: env ## the tests alone
	$(BIN)/pytest

generate: env ## the stubs, from proto/, and the client for threads, from the one for asyncio
	$(BIN)/python proto/generate.py
	$(BIN)/python client/generate.py

proof: atheris ## everything of docs/proof.md that is not shown for the code as it is: takes hours, may be stopped, goes on; QUICK=1 for a short form
	$(BIN)/python -m reliability.proof $(if $(QUICK),--quick)

readme: env ## the measured tables of README.md and docs/benchmarks.md, from benchmarks/results
	$(BIN)/python -m benchmarks.reporting.measured_tables

iproute2: ## Debian's iproute2, for the machines of `make test-cluster`, where root may install it
	@if command -v ip >/dev/null; then :; elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends iproute2 >/dev/null \
	  || echo "iproute2 could not be installed: the cluster is not tried"; \
	else echo "no iproute2, and no right to install it: the cluster is not tried"; fi

test-cluster: env iproute2 ## a cluster on network namespaces of which everything dies once, where root may make them; OUTPUT=FILE keeps the figures
	$(BIN)/python -m reliability.cluster $(if $(OUTPUT),--output $(OUTPUT))

test-clients: env ## stock clients of other projects against a running server; needs npm, so not part of `make test`
	$(BIN)/python -m tests.stock_clients.run

image-check: env ## the container, built on a stand-in base and run; needs root, buildah, debootstrap, podman and runc
	$(BIN)/python -m tests.docker.image_check

test-python: env ## the tests with every Python from 3.11 to 3.13 that is here, each in .venv-VERSION; says which are absent
	$(BIN)/python -m devtools.pythons

lock: env ## the locks in docker/, with hashes, as pip resolves them; UPGRADE=1 takes newer versions
	$(BIN)/python -m devtools.lock $(if $(UPGRADE),--upgrade)

sbom: env ## sbom.json and sbom-cluster.json: what is in the images, in CycloneDX's format, from the locks
	$(BIN)/python -m devtools.sbom

licences: env ## docs/licences.md, from the metadata of what is in the locks
	$(BIN)/python -m devtools.licences

atheris: env
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check 'atheris>=3' \
	  || echo "atheris could not be installed: the readers are not fuzzed by coverage"

fuzz-decoders: atheris ## atheris on the decoders, the snapshot reader and the journal's reader, SECONDS=60 each
	$(BIN)/python -m reliability.fuzz.coverage --seconds $(or $(SECONDS),60)

faults: env ## disk, clock, memory, trainer and certificates failing under a real server: what happened, in a table
	$(BIN)/python -m reliability.faults

audit: env ## known vulnerabilities of what is installed; needs an advisory service, and says so where there is none
	$(BIN)/python tests/abuse/audit.py

# Everything is a target here; `make` alone lists them. Only Python >= 3.11, Java >= 17, Maven, Go and OpenSSL must be there.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory

# The first Python on the machine that is new enough; `make PYTHON=...` overrides it.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; exit; }; done; echo python3)
UV_VERSION := $(shell sed -n 's/^uv==//p' dev/python/uv.in)
CACHE := $(or $(TIDEGATE_CACHE),$(HOME)/.cache/tidegate)
UV := $(or $(shell command -v uv),$(CACHE)/uv-$(UV_VERSION)/bin/uv)
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
# The stack and the tests' own packages are not installed, only found.
RUN := PYTHONPATH=dev:tests
# Images that build containers set it. Here each process, and the tests start thousands, would compile all it imports: an
# operator takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: python ## a live group's offsets are reset on real parts, before your eyes (ARGS=--plain for logs)
	@"$(PYTHON)" dev/stack.py prepare demo
	@$(RUN) $(BIN)/python -m demo $(ARGS)

.PHONY: test
test: kubectl prepared lint ## lint, then all tests, WORKERS=2 at once (ARGS="tests/unit -k name" for some)
	@$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

.PHONY: e2e
e2e: kubectl setup ## in pods, on a Kubernetes node on this machine (root; dev/install-node-prerequisites; ARGS="-k name")
	@"$(PYTHON)" dev/stack.py build --cluster
	@$(BIN)/pytest -m e2e_cluster -p no:xdist tests/stack/test_node.py tests/e2e $(ARGS)

.PHONY: images
images: kubectl setup ## what make e2e runs in pods, and on, built ahead (root)
	@"$(PYTHON)" dev/stack.py build --cluster
	@$(RUN) $(BIN)/python -m support.pod_images

.PHONY: sbom
sbom: setup ## a bill of materials of each image in build/sbom, of all its layers (root; dev/install-node-prerequisites)
	@"$(PYTHON)" dev/stack.py sbom

.PHONY: kubectl
kubectl:
	@command -v kubectl >/dev/null \
	    || { echo "missing: kubectl, which the tests use as a user does; install it: e.g. apt-get install kubernetes-client" >&2; exit 2; }

.PHONY: test-fast
test-fast: setup ## the tests that need neither broker, API server, Spark nor Helm
	@$(BIN)/pytest -m pure $(ARGS)

.PHONY: pictures
pictures: python ## docs/pictures from a real run of the demo: its recording, and screenshots of the page (Chromium)
	@"$(PYTHON)" dev/stack.py prepare demo
	@$(RUN) $(BIN)/python -m demo.pictures

.PHONY: site
site: setup ## the documents as a site in build/site, with its links checked; it asks no other host for anything
	@$(RUN) $(BIN)/python -m support.sample_pages build/samples
	@test -x build/site-python/bin/python || "$(UV)" venv -q --python "$(PYTHON)" build/site-python
	@"$(UV)" pip sync -q --python build/site-python/bin/python --require-hashes dev/python/site.txt
	@command -v npm >/dev/null \
	    || { echo "missing: npm, which fetches what draws the diagrams; install it: e.g. apt-get install npm" >&2; exit 2; }
	@mkdir -p build/site-node && cp dev/site/mermaid/*.json build/site-node
	@cd build/site-node && npm ci --silent --ignore-scripts --no-audit --no-fund
	@build/site-python/bin/mkdocs build --quiet --strict
	@echo "build/site/index.html"

.PHONY: property-seed
property-seed: setup build ## replay one seed of the random sequences on real Kafka: SEED=7
	@test -n "$(SEED)" || { echo "which seed? make property-seed SEED=7" >&2; exit 2; }
	@TIDEGATE_PROPERTY_SEED=$(SEED) $(BIN)/pytest -k random_sequence $(ARGS)

.PHONY: fuzz
fuzz: setup ## hostile input to every decoder: SECONDS=60 SEED=1, KEEP=1 for the corpus; its figures go to build/fuzz
	@TIDEGATE_FUZZ_SECONDS=$(or $(SECONDS),60) TIDEGATE_FUZZ_SEED=$(or $(SEED),1) TIDEGATE_FUZZ_KEEP=$(KEEP) \
	    $(BIN)/pytest -q tests/security/test_decoders.py -k test_fuzz $(ARGS)
	@cat build/fuzz/report.txt

.PHONY: agent-java
agent-java: python ## build, check and test the Java agent (JDK 17, Maven); nothing to do where nothing has changed
	@"$(PYTHON)" dev/stack.py agent-java

.PHONY: nightly
nightly: kubectl setup build ## what takes too long for CI; its outcome goes to docs/benchmarks/nightly.md (PARTS="seeds pods")
	@$(BIN)/python tests/nightly.py $(PARTS)

.PHONY: campaign
campaign: setup build ## random schedules on three brokers, judged; into docs/benchmarks/campaign.md (SEEDS=0-49)
	@test -n "$(SEEDS)" || { echo "which seeds? make campaign SEEDS=0-49" >&2; exit 2; }
	@$(RUN) $(BIN)/python -m support.campaign $(SEEDS) $(ARGS)

.PHONY: mutants
mutants: setup ## places of the core changed one by one: do the tests notice? Into docs/benchmarks/mutants.md (SEED=7 COUNT=400)
	@"$(UV)" pip install -q --python $(BIN)/python --target build/mutants-packages --require-hashes -r dev/python/mutants.txt
	@$(RUN) $(BIN)/python -m support.mutants --seed $(or $(SEED),1) --count $(or $(COUNT),400)

.PHONY: bench
bench: setup build ## all benchmarks, or one: NAME=standstill
	@$(RUN) $(BIN)/python tests/perf/run.py $(NAME) $(ARGS)

.PHONY: lint
lint: setup prose ## ruff, mypy, import contracts, prose, workflows
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/zizmor --offline --no-progress --quiet .github/workflows

.PHONY: prose
prose: setup ## the documents' spelling, and words that have a better one (dev/prose/words.toml)
	@$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md ROADMAP.md docs charts crds agents/*/README.md
	@$(BIN)/pytest -q -m pure -o addopts=--import-mode=importlib tests/unit/docs/test_words.py

.PHONY: format
format: setup ## write the code as ruff formats it
	@$(BIN)/ruff check --fix-only -q .
	@$(BIN)/ruff format .

.PHONY: prepared
prepared: python ## fetch and build what the tests use, the Python environment too, side by side
	@"$(PYTHON)" dev/stack.py prepare test

.PHONY: setup
setup: $(VENV)/.synced ## the locked environment in .venv (nothing to do when it is current)

$(VENV)/.synced: requirements.lock pyproject.toml agents/python/pyproject.toml | python uv
	@echo "setting up $(VENV) from requirements.lock (about 1.2 GB, 1 to 3 min the first time)" >&2
	@test -x $(BIN)/python || "$(UV)" venv -q --python "$(PYTHON)" $(VENV)
	@"$(UV)" pip sync -q --python $(BIN)/python --require-hashes requirements.lock
	@"$(UV)" pip install -q --python $(BIN)/python --no-deps --build-constraints dev/python/build.txt \
	    --editable . --editable agents/python
	@touch $@

.PHONY: python
python:
	@command -v "$(PYTHON)" >/dev/null \
	    || { echo "missing: Python >= 3.11 ($(PYTHON)); install it: e.g. apt-get install python3" >&2; exit 2; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "too old: $$("$(PYTHON)" -V 2>&1), needed is Python >= 3.11; install a newer one" >&2; exit 2; }

.PHONY: uv
uv: | python
	@command -v "$(UV)" >/dev/null || { \
	    echo "fetching uv $(UV_VERSION)" >&2; \
	    "$(PYTHON)" -m venv "$(CACHE)/uv-$(UV_VERSION)" >/dev/null \
	        || { echo "missing: Python's venv module; install it: e.g. apt-get install python3-venv" >&2; exit 2; }; \
	    "$(CACHE)/uv-$(UV_VERSION)/bin/python" -m pip install -q --disable-pip-version-check \
	        --require-hashes -r dev/python/uv.txt; }

.PHONY: build
build: python ## fetch and build Kafka, etcd and kube-apiserver into ~/.cache/tidegate, once
	@"$(PYTHON)" dev/stack.py build

.PHONY: up
up: python ## start a broker and an API server, install the CRDs, print what to export
	@"$(PYTHON)" dev/stack.py up

.PHONY: down
down: python ## stop them and clean up, also after crashes
	@"$(PYTHON)" dev/stack.py down

.PHONY: status
status: python ## what of the stack runs
	@"$(PYTHON)" dev/stack.py status

.PHONY: node-up
node-up: python ## start a whole Kubernetes cluster of one node, with pods (root; dev/install-node-prerequisites)
	@"$(PYTHON)" dev/stack.py node up

.PHONY: node-down
node-down: python ## end it and undo all that it changed on the machine, also after crashes
	@"$(PYTHON)" dev/stack.py node down

.PHONY: crds
crds: setup ## write the CRDs from the models, and what follows from them: the chart's copies, the reference
	@$(BIN)/python crds/generate.py
	@$(BIN)/python charts/generate.py
	@$(BIN)/python docs/generate_reference.py

.PHONY: chart
chart: setup ## write what of the chart follows from other files: its copy of the CRDs, its README
	@$(BIN)/python charts/generate.py

.PHONY: lock
lock: | python uv ## resolve the dependencies anew
	@"$(UV)" pip compile pyproject.toml --extra spark --group dev --universal --generate-hashes -q -o requirements.lock
	@for list in uv build release site; do \
	    "$(UV)" pip compile dev/python/$$list.in --universal --generate-hashes -q -o dev/python/$$list.txt; done

.PHONY: version
version: python ## print the version, or write another one wherever it is: VERSION=0.2.0
	@"$(PYTHON)" dev/stack.py version $(VERSION)

.PHONY: release
release: kubectl setup build ## build VERSION=0.2.0 of this commit into dist/, install it from there, try it (docs/how-to/release.md)
	@test -n "$(VERSION)" || { echo "which version? make release VERSION=$$("$(PYTHON)" dev/stack.py version)" >&2; exit 2; }
	@"$(PYTHON)" dev/stack.py release $(VERSION) $(if $(REPOSITORY),--repository $(REPOSITORY)) \
	    $(if $(REGISTRY),--registry $(REGISTRY)) $(ARGS)

.PHONY: clean
clean: ## remove what was built in the tree (not the cache)
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +

# Every target does its own set-up. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MODEL_DIR := models/use-multilingual-v3
VENV := .venv
BUF := $(VENV)/bin/buf
DIR ?= eval
STRATA_BIN = $(or $(CARGO_TARGET_DIR),target)/debug/strata
SEEDS ?= 64

.PHONY: help
help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: demo
demo: model ## Plays the story through all three layers: builds, starts an embedded server, shows what happens.
	cargo run --quiet --locked --bin strata -- replay examples/story.en.jsonl
	cargo run --quiet --locked --bin strata -- replay examples/story.zh.jsonl

.PHONY: test
test: model redis python ## Runs every test: units, stores on real Redis, four processes, a Python client.
	cargo test --locked --workspace
	$(VENV)/bin/python tests/python/e2e.py --binary "$$(cargo metadata --locked --format-version 1 --no-deps | $(VENV)/bin/python -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')/debug/strata"

.PHONY: crash
crash: ## Kills the server in the middle of writes a thousand times: nothing acknowledged is lost or doubled.
	STRATA_CRASH_ROUNDS=$${STRATA_CRASH_ROUNDS:-1000} cargo test --locked -p strata --test it -- --nocapture --test-threads 1 crash::

.PHONY: test-redis-ha
test-redis-ha: redis ## The session suite on a Redis Cluster of three and behind Sentinels, with failovers.
	STRATA_TEST_REDIS=cluster cargo test --locked -p strata-session
	STRATA_TEST_REDIS=sentinel cargo test --locked -p strata-session

.PHONY: cycles
cycles: ## A million tasks come and go, with the clock moved past their tombstones: memory is where it was.
	STRATA_CYCLES=$${STRATA_CYCLES:-1000000} cargo test --release --locked -p strata-working --test it -- --nocapture --exact cycles::w7_a_million_tasks_that_came_and_went_leave_memory_where_it_was

.PHONY: appenders
appenders: redis ## 64 concurrent appenders of 1,000 turns each, retries among them, compression racing: no turn lost or doubled.
	STRATA_APPENDER_TURNS=$${STRATA_APPENDER_TURNS:-1000} cargo test --locked -p strata-session --test it -- suite::c052

.PHONY: soak
soak: redis ## Ten minutes of load with faults: nothing acknowledged is lost, memory stays flat.
	STRATA_SOAK_SECONDS=$${STRATA_SOAK_SECONDS:-600} cargo test --locked -p strata --test it -- --nocapture --test-threads 1 soak::

.PHONY: telemetry
telemetry: python ## Replays a story against a real OpenTelemetry collector and a real Prometheus: one trace, and what was counted.
	@command -v prometheus >/dev/null || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null)
	cargo build --locked -p strata
	$(VENV)/bin/python tests/telemetry/run.py --binary "$$(cargo metadata --locked --format-version 1 --no-deps | $(VENV)/bin/python -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')/debug/strata"

.PHONY: fuzz
fuzz: ## Fuzzes what strangers can send, 15 minutes each (FUZZ_SECONDS): wire, page tokens, signed headers, configuration, tokens.
	FUZZ_SECONDS=$${FUZZ_SECONDS:-900} cargo test --locked -p strata --bin strata -- --nocapture --test-threads 1 fuzz::

.PHONY: sim
sim: ## Simulates routers, layers and ledger with everything that can break, for SEEDS seeds (64): make sim SEEDS=10000.
	cargo run --quiet --locked -p strata-model --bin strata-sim -- $(SEEDS)

.PHONY: check
check: python ## Format, clippy, docs, proto lint, supply chain.
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items
	cd proto && ../$(BUF) lint && ../$(BUF) format --diff --exit-code
	cd proto && ../$(BUF) breaking --against baseline.binpb
	tests/deny.sh

.PHONY: helm-check
helm-check: model redis strata ## Helm chart: lint, schemas, policies, releases by helm 3 and 4, and its pods as processes.
	STRATA_BIN="$(STRATA_BIN)" tests/helm/run.sh $(MODEL_DIR)

.PHONY: deploy-check
deploy-check: strata ## Alert rules with their tests, dashboards, runbooks, compose file, Dockerfile.
	STRATA_BIN="$(STRATA_BIN)" tests/deploy/run.sh

.PHONY: image-check
image-check: model redis strata ## Builds the image without a Docker engine and runs the chart's pods from it; needs root.
	STRATA_BIN="$(STRATA_BIN)" tests/image/run.sh $(MODEL_DIR)

.PHONY: image
image: model ## Builds the image localhost/strata:dev without a Docker engine; needs buildah and root.
	cargo build --release --locked --bin strata
	deploy/build-image.sh $(or $(CARGO_TARGET_DIR),target)/release/strata $(MODEL_DIR)

.PHONY: strata
strata:
	cargo build --quiet --locked --bin strata

.PHONY: proto-baseline
proto-baseline: python ## Takes the protos as they are for the released ones: what comes later must not break them.
	cd proto && ../$(BUF) build -o baseline.binpb

.PHONY: model
model: ## Fetches the embedding model (33 MB) and verifies its checksums.
	@deploy/fetch-model.sh $(MODEL_DIR)

.PHONY: redis
redis:
	@command -v redis-server >/dev/null || (apt-get update -qq && apt-get install -y -qq redis-server >/dev/null)

.PHONY: python
python: $(VENV)/installed
$(VENV)/installed: tests/python/requirements.txt
	python3 -m venv $(VENV)
	$(VENV)/bin/pip install --quiet -r tests/python/requirements.txt
	touch $@

CLIENTS := clients/.build
PROTOS := $(shell find proto -name '*.proto')
sources = $(shell find clients/$(1) -type f -not -path '*/node_modules/*' -not -path '*/gen/*' -not -path '*/dist/*' -not -name '*.pyc' -not -name reasons.ts)

.PHONY: clients
clients: model redis $(CLIENTS)/python.done $(CLIENTS)/typescript.done $(CLIENTS)/go.done $(CLIENTS)/java.done ## Builds the clients; Python, TypeScript, Go, Java and Rust play one story against four processes on real Redis.
	cargo build --locked --workspace --bin strata --example agent
	$(CLIENTS)/venv/bin/python clients/run.py --binary "$$(cargo metadata --locked --format-version 1 --no-deps | $(CLIENTS)/venv/bin/python -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')/debug/strata"

$(CLIENTS)/installed: clients/install.sh $(CLIENTS)/python.done
	clients/install.sh
	touch $@
$(CLIENTS)/python.done: $(PROTOS) $(call sources,python)
	clients/python/build.sh
	touch $@
$(CLIENTS)/typescript.done: $(CLIENTS)/installed $(PROTOS) $(call sources,typescript)
	clients/typescript/build.sh
	touch $@
$(CLIENTS)/go.done: $(CLIENTS)/installed $(PROTOS) $(call sources,go)
	clients/go/build.sh
	touch $@
$(CLIENTS)/java.done: $(CLIENTS)/installed $(PROTOS) $(call sources,java)
	clients/java/build.sh
	touch $@

.PHONY: bench
bench: model redis ## Measures ourselves against the raw engines, under 5 minutes; writes target/bench/report.json.
	cargo build --release --locked --bin strata --bin strata-bench
	cargo run --release --locked --quiet --bin strata-bench -- bench

.PHONY: sizes
sizes: model redis ## What 10,000 and 100,000 records cost: memory of each role, bytes on the volume and in Redis.
	cargo build --release --locked --bin strata --bin strata-bench
	cargo run --release --locked --quiet --bin strata-bench -- sizes

.PHONY: bench-full
bench-full: model redis ## The long rows too.
	cargo build --release --locked --bin strata --bin strata-bench
	cargo run --release --locked --quiet --bin strata-bench -- bench --full

.PHONY: year
year: model ## A year of 50 users with a moved clock and a run of maintenance every night; writes target/bench/year.svg.
	cargo build --release --locked --bin strata-bench
	cargo run --release --locked --quiet --bin strata-bench -- year

.PHONY: eval
eval: model ## Plays public dialogues through the public RPCs: make eval DIR=path; writes target/bench/eval.json.
	cargo build --release --locked --bin strata --bin strata-bench
	cargo run --release --locked --quiet --bin strata-bench -- eval $(DIR)

.PHONY: clean
clean: ## Removes what was built and fetched.
	cargo clean
	rm -rf $(VENV) models $(CLIENTS) clients/typescript/{node_modules,dist,src/gen,src/reasons.ts}

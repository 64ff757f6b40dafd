# Every target does its own set-up. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MODEL_DIR := models/use-multilingual-v3
VENV := .venv
BUF := $(VENV)/bin/buf
DIR ?= eval

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

.PHONY: soak
soak: redis ## Ten minutes of load with faults: nothing acknowledged is lost, memory stays flat.
	STRATA_SOAK_SECONDS=$${STRATA_SOAK_SECONDS:-600} cargo test --locked -p strata --test it -- --nocapture --test-threads 1 soak::

.PHONY: fuzz
fuzz: ## Fuzzes what strangers can send, 15 minutes each (FUZZ_SECONDS): wire, page tokens, signed headers, configuration, tokens.
	FUZZ_SECONDS=$${FUZZ_SECONDS:-900} cargo test --locked -p strata --bin strata -- --nocapture --test-threads 1 fuzz::

.PHONY: check
check: python ## Format, clippy, docs, proto lint, supply chain.
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items
	cd proto && ../$(BUF) lint && ../$(BUF) format --diff --exit-code
	cd proto && ../$(BUF) breaking --against baseline.binpb
	tests/deny.sh

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

.PHONY: bench
bench: model redis ## Measures ourselves against the raw engines, under 5 minutes; writes target/bench/report.json.
	cargo build --release --locked --bin strata --bin strata-bench
	cargo run --release --locked --quiet --bin strata-bench -- bench

.PHONY: bench-full
bench-full: model redis ## The long rows too.
	cargo build --release --locked --bin strata --bin strata-bench
	cargo run --release --locked --quiet --bin strata-bench -- bench --full

.PHONY: eval
eval: model ## Plays public dialogues through the public RPCs: make eval DIR=path; writes target/bench/eval.json.
	cargo build --release --locked --bin strata --bin strata-bench
	cargo run --release --locked --quiet --bin strata-bench -- eval $(DIR)

.PHONY: clean
clean: ## Removes what was built and fetched.
	cargo clean
	rm -rf $(VENV) models

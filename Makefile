# Everything a contributor runs. `make` alone lists the targets. `run` and `build` need Rust, make and a C compiler, no more.

# Always both: each alone is compiled with other features, so that what one target built another would build again.
BUILD := cargo build --release -p boltq-server -p boltq-cli
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Of the nodes of `make cluster`.
PROFILE ?= release
# As in the tests, with the assertions of openraft and of ours; `release` has none and is quicker.
SOAK_PROFILE ?= dev
export PATH := $(CURDIR)/.tools/bin:$(PATH)

.PHONY: help run build cluster cluster-status cluster-stop cluster-clean test verify docs fuzz soak clients reference generate tools fix bench

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start a server that stores under ./data
	$(BUILD)
	$(TARGET)/release/boltq-server --config configs/default.json

build: ## Build server and command line into bin/
	$(BUILD)
	@mkdir -p bin
	cp $(TARGET)/release/boltq-server $(TARGET)/release/boltq bin/

cluster: ## Start three nodes on this machine; N, DIR, BASE, PROFILE, SECRET: scripts/cluster.sh
	cargo build --profile $(PROFILE) -p boltq-server -p boltq-cli
	PROFILE=$(PROFILE) scripts/cluster.sh start

cluster-status: ## What those nodes are doing
	@PROFILE=$(PROFILE) scripts/cluster.sh status

cluster-stop: ## Stop them; they keep their data
	@scripts/cluster.sh stop

cluster-clean: ## Stop them and remove their data
	@scripts/cluster.sh clean

test: tools verify ## Run all tests
	cargo test --workspace --no-fail-fast
	scripts/clients.sh go
	scripts/clients.sh node
	scripts/reference.sh
	$(MAKE) docs
	scripts/fuzz.sh 2

verify: ## Check format, lints and protos; changes nothing
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings
	scripts/lint-protos.sh

docs: ## Run the console examples of the documentation
	cargo build -p boltq-server -p boltq-cli
	scripts/check-docs.sh $(wildcard README.md docs/*.md)

fuzz: ## Fuzz what reads our formats, each target for SECONDS (5)
	scripts/fuzz.sh $(SECONDS)

soak: ## Simulate clusters with SEEDS (5000) seeds, the first of them FROM (1000), and kill 20 leaders of a real one
	cargo test -p boltq-tests --test cluster -- --ignored
	cargo run --profile $(SOAK_PROFILE) -p boltq-sim -- --seeds $(or $(SEEDS),5000) --from $(or $(FROM),1000)

clients: ## Test the clients for Go, Node and Rust
	scripts/clients.sh

reference: ## Write the references of the clients into target/reference
	scripts/reference.sh

generate: ## Write the code of the clients that comes from the protos
	scripts/generate.sh

tools: ## Install what some tests need into .tools/
	scripts/tools.sh

fix: ## Format, and apply what the linter suggests
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

bench: ## Measure the server and the bare transport; options in ARGS
	$(BUILD)
	cargo run --release -p boltq-tests --bin boltq-bench -- $(ARGS)

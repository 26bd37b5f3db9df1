# Longshore's front door. `make demo` shows it, `make test` proves it, `make fix` is the only target that writes.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-sim setup-test test verify gate fix bench setup-bench soak

export CARGO_TERM_COLOR ?= auto
RUSTDOCFLAGS_STRICT := -D warnings
TARGET := $(or $(CARGO_TARGET_DIR),target)
LONGSHORE := $(TARGET)/release/longshore

# Installs a Debian package when its command is missing, and says so. $(1) is the command, $(2) the package.
define need
	@command -v $(1) >/dev/null || { \
	  echo "== $(1) is missing: installing $(2) with apt"; \
	  as_root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	  $$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update >/dev/null; \
	  $$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends $(2) >/dev/null; }
endef

help:
	@echo "make demo    build, run examples/hello on three nodes of this machine, fetch its page"
	@echo "make demo-sim  build, run examples/demo.yaml through the simulator, draw the result"
	@echo "make test    everything that must hold: format, lints, tests, docs, house rules"
	@echo "make verify  the same; identical to what CI runs"
	@echo "make bench   the bars for speed and memory, and an instruction count"
	@echo "make soak    two hundred replicas on one engine, leaders killed in a row, starved disks, 20,000 made-up clusters"
	@echo "make fix     format and apply lint suggestions (the only target that writes)"

# What every build needs. A Rust toolchain is the one thing not installed for you: it is a choice of yours.
setup:
	@command -v cargo >/dev/null || { \
	  echo "cargo is missing: Longshore needs Rust 1.95 or newer"; \
	  echo; echo "hint: install rustup, then run make again"; exit 1; }
	@for part in fmt clippy; do cargo $$part --version >/dev/null 2>&1 || { \
	  echo "== cargo $$part is missing: adding it with rustup"; \
	  rustup --quiet component add rustfmt clippy; }; done
	$(call need,gcc,gcc libc6-dev)
	$(call need,git,git)

demo: setup
	@echo "== building the release binary"
	@cargo build --quiet --release --package longshore-cli
	@echo "== longshore up -f examples/hello/compose.yaml --nodes 3"
	@examples/hello/demo.sh $(LONGSHORE)

demo-sim: setup
	@echo "== building the release binary"
	@cargo build --quiet --release --package longshore-cli
	@echo "== longshore sim run examples/demo.yaml"
	@$(LONGSHORE) sim run examples/demo.yaml

# One profile (dev) for tests, docs and chores, and the same features for all, so nothing is compiled twice for them;
# clippy checks without generating code, and that is the only second pass. A gate runs once: what would make its next
# build quicker would only fill the disk, twice over.
gate: export CARGO_INCREMENTAL := 0
gate:
	@echo "== format"
	@cargo fmt --all --check
	@echo "== lints"
	@cargo clippy --quiet --workspace --all-targets --features longshore-store/replicated -- -D warnings
	@echo "== tests"
	@cargo test --workspace --no-fail-fast --features longshore-store/replicated
	@echo "== docs"
	@RUSTDOCFLAGS="$(RUSTDOCFLAGS_STRICT)" cargo doc --quiet --workspace --no-deps --features longshore-store/replicated
	@echo "== house rules"
	@cargo build --quiet --workspace --bins --features longshore-store/replicated
	@$(TARGET)/debug/xtask tidy
	@echo "== licences"
	@if command -v cargo-deny >/dev/null; then \
	  cargo deny --log-level warn check licenses bans sources; \
	else \
	  echo "!! NOT CHECKED: licences, bans and sources of dependencies, because cargo-deny is not installed"; \
	  echo "!! hint: cargo install --locked cargo-deny"; \
	fi

# The reference our reading of Compose files is compared with, and an engine with a registry for the agent to work with.
setup-test: setup
	$(call need,docker-compose,docker-compose)
	$(call need,dockerd,docker.io)
	$(call need,docker,docker.io)
	$(call need,docker-registry,docker-registry)
	$(call need,busybox,busybox-static)
	$(call need,iptables,iptables)
	$(call need,ip,iproute2)
	$(call need,nsenter,util-linux)
	$(call need,chromium,chromium)
	$(call need,chromedriver,chromium-driver)

test: setup-test gate

verify: test

fix: setup
	@cargo fmt --all
	@cargo clippy --quiet --fix --allow-dirty --allow-staged --workspace --all-targets
	@cargo fmt --all

# What takes minutes: 200 replicas on one engine, with what that costs; leaders killed twenty times in a row, voters killed
# under load, disks that are full; and 20,000 clusters drawn from seeds, where the tests have 300. FUZZ_SEEDS names others.
FUZZ_SEEDS ?= 0..20000
soak: setup-test
	@cargo test --release --package longshore-agent --test node -- --heavy
	@LONGSHORE_LEADERS_KILLED=20 cargo test --release --package longshore-cli --test trouble -- --nocapture --test-threads 1
	@cargo test --release --package longshore-store --features replicated --test processes -- --heavy
	@cargo build --quiet --release --package longshore-cli
	@$(LONGSHORE) sim fuzz --seeds $(FUZZ_SEEDS)

setup-bench: setup
	$(call need,valgrind,valgrind)

# The bars of the core. Wall-clock figures depend on the machine and its load; the instruction count does not.
bench: setup-bench
	@cargo build --quiet --release --package longshore-cli
	@cargo build --quiet --release --package longshore-store --features replicated --example commit_bench
	@cargo run --quiet --package xtask -- bench $(LONGSHORE) $(TARGET)/release/examples/commit_bench

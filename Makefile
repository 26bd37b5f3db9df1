# Entry point: `make demo` shows Longshore, `make test` is the gate, `make fix` is the only target that writes.

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
	@echo "make test    the gate: format, lints, tests, docs, tidy, licences, with the time of each"
	@echo "make verify  the same; identical to what CI runs"
	@echo "make bench   the limits for speed and memory, and an instruction count"
	@echo "make soak    two hundred replicas on one engine, leaders killed in a row, full disks, 20,000 generated clusters"
	@echo "make fix     format and apply lint suggestions (the only target that writes)"

# What every build needs. Only the Rust toolchain is not installed for you: which one is your choice.
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

# One profile (dev) and the same features for tests, docs and xtask, so that nothing is compiled twice for them; clippy
# checks without generating code, and is the only second pass. Incremental files are off: a gate runs once, and they
# would only fill the disk. The time of each part is printed at the end, also when a part fails.
gate: export CARGO_INCREMENTAL := 0
gate:
	@times=""; \
	part() { \
	  local title=$$1 began=$$SECONDS; shift; echo "== $$title"; "$$@"; \
	  times+=$$(printf '   %-9s %5d s' "$$title" $$((SECONDS - began)))$$'\n'; }; \
	tidy() { \
	  cargo build --quiet --workspace --bins --features longshore-store/replicated; \
	  $(TARGET)/debug/xtask tidy; }; \
	licences() { \
	  if command -v cargo-deny >/dev/null; then \
	    cargo deny --log-level warn check licenses bans sources; \
	  else \
	    echo "!! NOT CHECKED: licences, bans and sources of dependencies, because cargo-deny is not installed"; \
	    echo "!! hint: cargo install --locked cargo-deny"; \
	  fi; }; \
	trap 'printf "== time per part\n%s   %-9s %5d s\n" "$$times" total $$SECONDS' EXIT; \
	part format cargo fmt --all --check; \
	part lints cargo clippy --quiet --workspace --all-targets --features longshore-store/replicated -- -D warnings; \
	part tests cargo test --workspace --no-fail-fast --features longshore-store/replicated; \
	part docs env RUSTDOCFLAGS="$(RUSTDOCFLAGS_STRICT)" \
	  cargo doc --quiet --workspace --no-deps --features longshore-store/replicated; \
	part tidy tidy; \
	part licences licences

# docker-compose is the reference for the Compose parser; the agent's tests need an engine with a registry.
setup-test: setup
	$(call need,docker-compose,docker-compose)
	$(call need,dockerd,docker.io)
	$(call need,docker,docker.io)
	$(call need,docker-registry,docker-registry)
	$(call need,busybox,busybox-static)
	$(call need,socat,socat)
	$(call need,iptables,iptables)
	$(call need,ip,iproute2)
	$(call need,ping,iputils-ping)
	$(call need,tcpdump,tcpdump)
	$(call need,nsenter,util-linux)
	$(call need,chromium,chromium)
	$(call need,chromedriver,chromium-driver)

test: setup-test gate

verify: test

fix: setup
	@cargo fmt --all
	@cargo clippy --quiet --fix --allow-dirty --allow-staged --workspace --all-targets
	@cargo fmt --all

# Tests that take minutes: 200 replicas on one engine, and their cost; leaders killed twenty times in a row, voters killed
# under load, full disks; and 20,000 generated clusters, where the tests have 300. FUZZ_SEEDS sets other seeds.
FUZZ_SEEDS ?= 0..20000
soak: setup-test
	@cargo test --release --package longshore-agent --test node -- --heavy
	@LONGSHORE_LEADERS_KILLED=20 cargo test --release --package longshore-cli --test faults -- --nocapture --test-threads 1
	@cargo test --release --package longshore-store --features replicated --test processes -- --heavy
	@cargo build --quiet --release --package longshore-cli
	@$(LONGSHORE) sim fuzz --seeds $(FUZZ_SEEDS)

setup-bench: setup
	$(call need,valgrind,valgrind)
	$(call need,iperf3,iperf3)
	$(call need,wg,wireguard-tools)
	$(call need,ip,iproute2)
	@test -x $(TARGET)/bench-tools/bin/boringtun-cli || { \
	  echo "== boringtun-cli is missing: installing it to measure the mesh beside it"; \
	  cargo install --quiet --locked --root $(TARGET)/bench-tools boringtun-cli --version 0.7.1; }

# The limits of the core. Wall-clock times depend on the machine and its load; the instruction count does not.
bench: setup-bench
	@cargo build --quiet --release --package longshore-cli
	@cargo build --quiet --release --package longshore-store --features replicated --example commit_bench
	@cargo build --quiet --release --package longshore-network --example mesh_bench
	@cargo run --quiet --package xtask -- bench $(LONGSHORE) $(TARGET)/release/examples/commit_bench
	@echo "the mesh in user space beside stock boringtun, Gbit/s and retransmissions; needs root"
	@$(TARGET)/release/examples/mesh_bench $(TARGET)/bench-tools/bin/boringtun-cli

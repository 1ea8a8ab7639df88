# Every target says what it needs and installs it, as root, on Debian (scripts/setup).
.DEFAULT_GOAL := help
# The engine xdp and the method sk_lookup of `baton flip` are BPF programs, which clang compiles; scripts/setup installs it.
FEATURES = --features baton/bpf
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release
.PHONY: help demo test build bench prove figures audit fuzz deb clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do printf '%-14s %s\n' "$$name" "$$text"; done

demo: ## build Baton, put load through it and change it live; ARGS='--for 60s --json' for more
	@scripts/setup demo
	cargo build --release --locked --package baton $(FEATURES)
	@cargo run --quiet --release --locked --package baton $(FEATURES) -- demo $(ARGS)

test: ## install what the tests need and run all of them; PHASES='rust fuzz' for some
	@scripts/setup test
	@scripts/test $(PHASES)

build: ## build target/release/baton, stripped, with its debug symbols beside it
	@scripts/setup build
	cargo build --release --locked --package baton $(FEATURES)
	@packaging/split-symbols $(RELEASE)/baton

bench: ## CPU and memory next to haproxy and nginx; ARGS='--help' for more, WHAT='tls certificates', BATON=... another program
	@scripts/setup bench
	cargo build --release --locked --package baton --package baton-prove --bins --example certificates $(FEATURES)
	@for what in $(or $(WHAT),$(if $(ARGS),run,run tls certificates)); do bench/$$what $(ARGS) || exit 1; done

prove: ## the experiments of public articles, a tenth of their size; ARGS='hard-restart reload' for others, ARGS=list names all
	@scripts/setup prove
	cargo build --release --locked --package baton $(FEATURES)
	@cargo run --quiet --release --locked --package baton $(FEATURES) -- prove $(or $(ARGS),articles --scale 0.1)

figures: ## measure again what docs/proof.md and docs/prove.md show, with their pictures; half an hour, on a quiet machine
	@scripts/setup prove
	cargo build --release --locked --package baton $(FEATURES)
	@scripts/figures $(RELEASE)/baton

audit: ## check licences, duplicate crates, unsafe code and stray machine paths
	@scripts/audit

fuzz: ## run every fuzz target; SECONDS_EACH=60
	@scripts/setup fuzz
	@for target in $$(scripts/fuzz); do scripts/fuzz "$$target" $(or $(SECONDS_EACH),60) || exit 1; done

deb: ## build Debian packages in target/debian, install them out of sight, use them and remove them
	@scripts/setup deb
	cargo build --release --locked --package baton $(FEATURES)
	@packaging/make-deb $(RELEASE)/baton

clean: ## remove everything that was built
	cargo clean
	cargo clean --manifest-path fuzz/Cargo.toml
	rm -rf fuzz/artifacts

# The commands of this project. `make` alone lists them.

CARGO ?= cargo
PREFIX ?= /usr/local
# A directory of our own: the system's libibverbs stays what programs find by themselves.
LIBRARIES = $(DESTDIR)$(PREFIX)/lib/softrnic

.PHONY: help demo test check build install

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1 \t\2/p' $(MAKEFILE_LIST) | expand -t 18
	@for tool in $(RUNS); do printf '  make %s \t%s\n' $$tool "$$(tools/$$tool --summary)"; done | expand -t 18

demo: ## two processes, each with a NIC of its own, move memory over loopback
	@$(call setup,demo)
	$(CARGO) run --locked --profile demo --no-default-features --features capture -p softrnic-cli -- demo $(ARGS)

test: ## every check and test; STAGES="fmt unit" runs only those, tools/test --list shows all
	@tools/test $(STAGES)

check: ## what to run before each commit, in under three minutes: format, lints, scripts, tests of the protocol
	@tools/test fmt clippy layers licences cancellation unsafe commits scripts links protocol

build: ## the softrnic command and the libraries, optimised
	@$(call setup,base)
	tools/pgo use $(CARGO) build --locked --release -p softrnic-cli -p softrnic-ibverbs -p softrnic-interpose
	tools/link-ibverbs release

install: build ## the command and its libraries, below PREFIX (/usr/local), never over the system's
	install -D -m 755 target/release/softrnic $(DESTDIR)$(PREFIX)/bin/softrnic
	install -D -m 644 target/release/verbs/libibverbs.so.1 $(LIBRARIES)/libibverbs.so.1
	ln -sf libibverbs.so.1 $(LIBRARIES)/libibverbs.so
	install -D -m 644 target/release/verbs/libefa.so.1 $(LIBRARIES)/libefa.so.1
	ln -sf libefa.so.1 $(LIBRARIES)/libefa.so
	install -D -m 644 target/release/libsoftrnic_interpose.so $(LIBRARIES)/libsoftrnic_interpose.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/softrnic src/ibverbs/suppressions/*.supp tools/wireshark/*.lua
	if [ -f target/playground/playground.html ]; then \
		install -D -m 644 target/playground/playground.html $(DESTDIR)$(PREFIX)/share/softrnic/playground.html; fi

# Longer runs are tools of their own: `make fuzz` is tools/fuzz, given ARGS.
RUNS := $(filter aarch64 bench dist dist-check fuzz playground site soak interop,$(notdir $(wildcard tools/*)))
.PHONY: $(RUNS)
$(RUNS):
	tools/$@ $(ARGS)

.PHONY: deb
deb: dist ## a Debian package, in target/dist; nothing of the system's is replaced

# tools/setup says what it could not install; whatever needs that then fails or is skipped by itself.
setup = tools/setup $(1) || true

# bentpipe: `make demo` and `make test` do everything a new machine needs, then the work.

CARGO ?= cargo
BIN = target/release/bentpipe

.PHONY: all build demo test test-gateway-long bench bench-gateway bench-transfers bench-typing bench-queues parity results docs check man install clean setup-demo setup-test

all: build

build:
	$(CARGO) build --release --locked -p bentpipe

# The main job on real input: a clinic behind IperSpace fetches an image with a real curl, first with an 8 KB window.
demo: setup-demo build
	$(BIN) run scenarios/clinic.toml --out runs/clinic

test: setup-test
	tools/test

# Compares the emulator with a bare veth pair, then the simulator with ns-3 (if it is installed: see the bench), counts the instructions
# of queue disciplines (with valgrind), measures a gateway pair in virtual time, and the whole command from scenario to report. Takes
# about ten minutes; the machine should be otherwise idle.
bench:
	$(CARGO) bench --locked -p bentpipe-host --bench emulator
	$(CARGO) bench --locked -p bentpipe-sim --bench simulator
	$(CARGO) bench --locked -p bentpipe-link --bench queues
	$(CARGO) bench --locked -p bentpipe-lab --bench gateway
	$(CARGO) bench --locked -p bentpipe --bench command

# A pair of gateway daemons between real kernels, for docs/reference/performance.md: thousands of connections, a gigabyte,
# 150 deaths. Takes about five minutes.
bench-gateway:
	$(CARGO) test --locked -p bentpipe --test gateway -- scale pushback --full

# The long ones of the same tests: floods by unauthenticated peers, a silent gateway (an idle one is probed after two minutes), rates
# declared again, a dial-up circuit. Takes about seven minutes.
test-gateway-long:
	$(CARGO) test --locked -p bentpipe --test gateway -- strangers silence reload circuit --full

# `bentpipe get` and `put` compared with lftp, aria2 and curl, with real servers behind an emulated T1, for docs/reference/performance.md.
# Takes about 17 minutes.
bench-transfers: build
	tools/setup vsftpd nginx lftp aria2c curl
	BENTPIPE=$(BIN) tools/bench-transfers

# Typing into real telnet, ssh and mosh sessions over two links, for docs/reference/performance.md. Takes about twelve minutes.
bench-typing: build
	tools/setup telnet telnetd ssh sshd mosh
	BENTPIPE=$(BIN) tools/bench-typing

# Waits in FQ-CoDel, CoDel and PIE next to those in ns-3's, which is installed into target/ns3: docs/explanation/queues.md. Takes
# about a minute, and several more the first time.
bench-queues:
	tools/setup g++ venv
	tools/bench-queues

# Live runs compared with simulated ones: docs/explanation/parity.md. Live samples stay in runs/parity; to use them again:
# bentpipe parity --live-from runs/parity
parity: build
	$(BIN) parity --out runs/parity

# The results of the experiments, docs/results.md; a test rejects a stale page.
results: build
	$(BIN) experiments run all --markdown > docs/results.new
	mv docs/results.new docs/results.md

# The documentation as a site in target/site; broken links are errors.
docs:
	tools/setup venv
	tools/docs

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

man: build
	$(BIN) man --out target/man

install: build man
	install -D $(BIN) $(DESTDIR)/usr/local/bin/bentpipe
	install -d $(DESTDIR)/usr/local/share/man/man1
	install -m 644 target/man/*.1 $(DESTDIR)/usr/local/share/man/man1

setup-demo:
	tools/setup curl

setup-test:
	tools/setup curl ping tshark pasta nft ethtool runuser chromium venv vsftpd

clean:
	$(CARGO) clean
	rm -rf runs

# SPDX-License-Identifier: Apache-2.0
# A thin wrapper around Meson; see README.md.
.DEFAULT_GOAL := build
.PHONY: build demo test lint asan tsan fuzz install clean

build:
	@scripts/install-packages build run
	@scripts/configure build
	@ninja -C build --quiet

# STORE=ceph runs it on Ceph's object gateway
demo: build
	@scripts/install-packages test bench
	@scripts/demo $(STORE)

# TESTS=... is handed to pytest (-k, file names)
test:
	@scripts/install-packages build run test
	@scripts/configure build
	@ninja -C build --quiet
	@scripts/run-tests build $(TESTS)

# static: with gcc's shared ones UBSan does not see where reports are to go. rdynamic: what a program
# loads, like a CUDA double, finds them in it.
asan:
	@scripts/install-packages build run test
	@scripts/configure build-asan -Db_sanitize=address,undefined \
		-Dc_link_args='-static-libasan -static-libubsan -rdynamic'
	@ninja -C build-asan --quiet
	@scripts/run-tests build-asan $(TESTS)

tsan:
	@scripts/install-packages build run test
	@scripts/configure build-tsan -Db_sanitize=thread
	@ninja -C build-tsan --quiet
	@scripts/run-tests build-tsan $(TESTS)

# FUZZ_SECONDS for each target, 60 unless told
fuzz:
	@scripts/install-packages build lint test
	@scripts/fuzz build-fuzz $(or $(FUZZ_SECONDS),60)

lint:
	@scripts/install-packages build lint test
	@scripts/configure build
	@scripts/lint build

install: build
	@meson install -C build

clean:
	@rm -rf build build-asan build-tsan build-fuzz

# Tenon in short commands; CMake and Ninja do the work (docs/building.md).
#   make          the release build, in build/release
#   make run      installs what is missing, builds, and names the types of a few files with a compiled network
#   make test     every test; ends with `N passed, M failed`
#   make bench    the benchmark table; BENCH_ARGS are handed on (--json, names)
#   make asan, make tsan    unit and IR tests under sanitizers
#   make static   libtenon.so and tenon with LLVM inside, in build/static
#   make fuzz     FUZZ_SECONDS for each fuzz target
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
BENCH_ARGS ?=
PYTHON = .venv/bin/python

# A program that a sanitizer caught ends with a status of its own, which no test expects; malloc may fail as it does elsewhere.
export ASAN_OPTIONS ?= exitcode=99:allocator_may_return_null=1
export UBSAN_OPTIONS ?= print_stacktrace=1:exitcode=99
export TSAN_OPTIONS ?= exitcode=99:allocator_may_return_null=1:suppressions=$(CURDIR)/tests/tsan.supp

.PHONY: all deps run test bench asan tsan static fuzz clean
.DEFAULT_GOAL := all

all: build-release

deps:
	@scripts/install-deps.sh

build-%: deps
	@mkdir -p build && cmake --preset $* >build/$*.log 2>&1 || { cat build/$*.log; exit 1; }
	@ninja -C build/$* -j$(JOBS)

# The network is the one inside the Python package magika; its folder is the program's first argument.
run: build-release
	@build/release/examples/filetype .venv/lib/python3*/site-packages/magika/models/standard_v3_3 \
	    README.md src/base/arena.c scripts/run-tests.py Makefile CMakePresets.json

test: build-asan build-release
	@$(PYTHON) scripts/run-tests.py --build build/asan --release build/release --jobs $(JOBS)

bench: build-release
	@$(PYTHON) bench/run.py $(BENCH_ARGS)

asan tsan: %: build-%
	@$(PYTHON) scripts/run-tests.py --build build/$* --only unit --only lit --jobs $(JOBS)

static: build-static

# Seeds: small models of the package onnx, and what tests/fuzz/NAME.corpus has. New finds stay in build/fuzz/corpus.
fuzz: build-fuzz
	@mkdir -p build/fuzz/seeds && $(PYTHON) tests/fuzz/seeds.py build/fuzz/seeds
	@set -e; for source in tests/fuzz/*.c; do \
	    name=$$(basename $$source .c); \
	    seeds="build/fuzz/seeds $$(ls -d tests/fuzz/$$name.corpus 2>/dev/null || true)"; \
	    mkdir -p build/fuzz/corpus/$$name; \
	    build/fuzz/fuzz/$$name -max_total_time=$(FUZZ_SECONDS) -max_len=20000 -timeout=20 -rss_limit_mb=4096 \
	        -artifact_prefix=build/fuzz/$$name- build/fuzz/corpus/$$name $$seeds; \
	done

clean:
	@rm -rf build

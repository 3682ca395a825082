# Everything here makes its own environment; nothing has to be installed before.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED := $(wildcard ../shared/data)
ifneq ($(SHARED),)
export FEDTEMPO_DATA ?= $(abspath $(SHARED))
endif
export OMP_NUM_THREADS ?= 1
# Some environments tell Python not to keep compiled modules; the tests start dozens of programs that load them all.
export PYTHONDONTWRITEBYTECODE :=
# An index to take torch from, such as https://download.pytorch.org/whl/cpu, whose wheels are smaller by gigabytes.
TORCH_INDEX ?=
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help demo test coverage test-all test-kinds test-newest test-oldest method-pages numbers numbers-wide numbers-made words words-made move test-flwr-datasets check audit format bench bench-peers bench-scaling docs release system clean

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) -e '.[all,dev,docs]'
	@touch $@

demo: $(VENV)/.demo ## eight ways to train between two aggregations, each at its tuned rate, on digits (under a minute)
	$(BIN)/fedtempo demo

test: $(VENV)/.dev ## run the tests
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

coverage: $(VENV)/.dev ## run the tests and say which lines they miss
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov=src/fedtempo --cov-report=term:skip-covered $(ARGS)

test-all: $(VENV)/.dev ## run the tests, the slow ones too, and many of them on imitated kinds of processor
	$(BIN)/python -m pytest -n 2 --dist worksteal --slow $(ARGS)
	$(BIN)/python -m tests.kinds

test-kinds: $(VENV)/.dev ## numbers, laws, theory and faults on four kinds of processor, imitated by the libraries' switches
	$(BIN)/python -m tests.kinds $(ARGS)

# Environments without constraints. From PyPI, torch on Linux is a CUDA build of several gigabytes, which runs on a CPU too.
APART = -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

$(VENV)-newest/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python $(APART) --upgrade -e '.[all,dev,docs]'
	@touch $@

test-newest: $(VENV)-newest/.made ## run the tests with the newest releases of everything; PYTHON=python3.13 chooses the Python
	$(VENV)-newest/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

$(VENV)-oldest/.made: pyproject.toml tests/oldest.py
	$(PYTHON) -m venv $(VENV)-oldest
	$(PYTHON) -m tests.oldest > $(VENV)-oldest/constraints.txt
	$(VENV)-oldest/bin/python $(APART) -c $(VENV)-oldest/constraints.txt -e . pytest pytest-xdist cloudpickle scipy
	@touch $@

test-oldest: $(VENV)-oldest/.made ## tests that need no extra, with the oldest releases that pyproject.toml allows
	$(VENV)-oldest/bin/python -m pytest -n 2 --dist worksteal tests/numbers tests/unit/theory tests/unit/client tests/unit/algorithms tests/unit/schedules tests/unit/training/storage $(ARGS)

# flwr-datasets wants an older `datasets` than the one that all others get, so its tests have an environment of their own.
$(VENV)-flwr-datasets/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)-flwr-datasets
	$(VENV)-flwr-datasets/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VENV)-flwr-datasets/bin/python -m pip install --quiet --disable-pip-version-check -e '.[data]' 'flwr-datasets>=0.6' pytest
	@touch $@

test-flwr-datasets: $(VENV)-flwr-datasets/.made ## run the tests of the adapter for Flower's partitioners
	$(VENV)-flwr-datasets/bin/python -m pytest tests/unit/data/test_adapters.py $(ARGS)

method-pages: $(VENV)/.dev ## write what pages say of all algorithms anew: the map with its picture, wrappers, what a server sees
	$(BIN)/python -m tests.laws.test_curious_server
	$(BIN)/python -m tests.laws.test_pairs
	$(BIN)/python -m benchmarks.methods_page

numbers: $(VENV)/.dev ## compare the zoo's numbers with numbers.json, in under a minute
	$(BIN)/python -m tests.frozen.numbers $(ARGS)

numbers-wide: $(VENV)/.dev ## the same with other models, processes, resumed, compressed, private, asynchronous runs, devices
	$(BIN)/python -m tests.frozen.numbers --wide $(ARGS)

numbers-made: $(VENV)/.dev ## make numbers.json anew; ARGS="--at COMMIT" makes it by the code of that commit
	$(BIN)/python -m tests.frozen.numbers --make $(ARGS)

words: $(VENV)/.dev ## compare help, errors and templates with words.json
	$(BIN)/python -m tests.frozen.words $(ARGS)

words-made: $(VENV)/.dev ## make words.json anew
	$(BIN)/python -m tests.frozen.words --make

move: $(VENV)/.dev ## move a module and rewrite what names it; ARGS="fedtempo.a.old fedtempo.b.new"
	$(BIN)/python -m tests.frozen.moves $(ARGS)

check: $(VENV)/.dev ## formatting, lint (bandit's rules too), types, the shape in figures, and known holes in what we depend on
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.counts
	$(BIN)/python -m tests.audit

audit: $(VENV)/.dev ## as part of check, but a database of holes that cannot be asked is a failure
	$(BIN)/python -m tests.audit --strict

format: $(VENV)/.dev ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.demo ## time a round of the standard workloads; ARGS="--experiments" for whole experiments
	$(BIN)/python -m benchmarks $(ARGS)

bench-peers: $(VENV)/.demo ## the same with pfl, Flower, FedLab, FedJAX and BlazeFL; ARGS="--only E1,E4" for experiments
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-scaling: $(VENV)/.demo ## time and memory per round against the size of everything
	$(BIN)/python -m benchmarks.scaling $(ARGS)

release: $(VENV)/.dev ## build sdist and wheel into dist/, install the wheel into an empty environment and use it from another folder
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m tests.release dist

docs: $(VENV)/.dev ## build the documentation into site/; it works offline
	$(BIN)/python -m sphinx --fail-on-warning --quiet --builder html --doctree-dir .doctrees docs site

system: ## install chromium, which the tests of the report page drive (quiet where that is not possible)
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    chromium chromium-driver fonts-dejavu-core) >/dev/null 2>&1 || echo "chromium cannot be installed; its tests will be skipped"; \
	fi

clean: ## remove the environment and caches
	rm -rf $(VENV) $(VENV)-newest $(VENV)-oldest $(VENV)-flwr-datasets .venv-peers .pytest_cache .mypy_cache .ruff_cache .coverage .doctrees site build dist

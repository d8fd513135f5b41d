# Each target sets up what it needs: a virtual environment in .venv, and Chromium through apt where that is possible.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CHROMIUM := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

.PHONY: demo test test-all coverage check bench bench-ledger bench-dashboard golden samples clean

demo: $(VENV)/.ready  ## record DDP and FSDP2 on two CPU ranks and compare them
	$(BIN)/fsdp-profile demo

test: $(VENV)/.ready chromium  ## all tests but the long ones
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-all: $(VENV)/.ready chromium  ## every test this machine can run
	$(BIN)/python -m pytest

coverage: $(VENV)/.ready chromium  ## line coverage of the same tests; what runs in the ranks' own processes is not counted
	$(BIN)/python -m pytest -m "not slow and not gpu" -q --cov --cov-report=term

check: $(VENV)/.ready  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

bench: $(VENV)/.ready  ## ratios measured side by side in one run
	for benchmark in $(filter-out benchmarks/ledger.py benchmarks/dashboard.py benchmarks/make_big_run.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$benchmark"; $(BIN)/python $$benchmark || exit 1; done

bench-ledger: $(VENV)/.ready  ## the ledger of every way to shard against closed forms and other tools (hours; --quick in ARGS)
	$(BIN)/python benchmarks/ledger.py $(ARGS)

bench-dashboard: $(VENV)/.ready chromium  ## a sample run beside a made-up one of 10 million events, in Chromium (minutes)
	$(BIN)/python benchmarks/dashboard.py $(ARGS)

golden: $(VENV)/.ready  ## renew the golden files; review the diff
	FSDP_PROFILE_UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests/render tests/commands tests/export -q

samples: $(VENV)/.ready  ## record sample_runs/ again
	$(BIN)/python examples/record_samples.py

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

.PHONY: chromium
chromium:
ifeq ($(CHROMIUM),)
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  apt-get update -qq && apt-get install -y -qq chromium >/dev/null; \
	elif command -v apt-get >/dev/null && sudo -n true 2>/dev/null; then \
	  sudo apt-get update -qq && sudo apt-get install -y -qq chromium >/dev/null; \
	else echo "Chromium is not installed: the browser tests will be skipped"; fi
endif

clean:  ## remove the virtual environment and caches; recorded runs stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist

.PHONY: screenshots
screenshots: $(VENV)/.ready chromium  ## take the pictures of docs/tour.md again (--pages memory in ARGS)
	$(BIN)/python docs/screenshots.py $(ARGS)

# Entry points for development: each target sets up its prerequisites first.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
RUNS := .venv/.runs
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
COMPILED := build/.compiled
HOT := $(shell find src/rota/core src/rota/mechanisms src/rota/placement src/rota/tenancy src/rota/drivers/simulator src/rota/policies/own -name "*.py")
SPREAD := --dist loadscope --no-loadscope-reorder
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Most tests wait for processes, so that twice as many workers as cores keep the cores busy; the fast ones only compute.
WORKERS = -n $(shell echo $$(($(CORES) < 4 ? 2 * $(CORES) : $(CORES) < 8 ? $(CORES) : 8))) $(SPREAD)
DEMO := out/demo
DEMO_TRACE := $(DEMO)/mixed.parquet
POLICIES := fifo fifo:backfill=true easy srtf las tiresias

# Compiled test modules are kept, even where the shell asks for none: rewriting assertions takes half of collection.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: health slurm help setup compile pure demo demo-sim test test-fast test-long test-gpu chaos fuzz soak check docs docs-check format bench deploy reproductions truth truth-gpu release golden clean
.DELETE_ON_ERROR:

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

ifdef PURE
setup: $(INSTALLED) pure
else
setup: $(INSTALLED) $(COMPILED) ## create .venv with rota and its development dependencies; PURE=1 skips compiling
endif

.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "error: there is no $(PYTHON); install Python 3.11 or later, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is $$($(PYTHON) -V 2>&1); Rota needs 3.11 or later, name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments; install its venv module (on Debian: python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv .venv

$(RUNS): pyproject.toml constraints.txt | .venv/bin/python
	@echo "setting up .venv (a minute, once)"
	@$(INSTALL) -e .
	@touch $@

$(INSTALLED): pyproject.toml constraints.txt | .venv/bin/python
	@echo "setting up .venv with the tools of development (a minute, once)"
	@$(INSTALL) -e '.[dev]'
	@touch $(RUNS) $@

compile: $(COMPILED) ## recompile the hot modules

$(COMPILED): $(INSTALLED) tools/compile.py $(HOT)
	@echo "compiling the hot modules (a minute, once)"
	@mkdir -p build
	@$(BIN)/python tools/compile.py >build/compile.log 2>&1 || { $(BIN)/python tools/compile.py --clean; echo "warning: compiling failed, see build/compile.log; Rota runs as plain Python, two to three times slower" >&2; }
	@touch $@

pure: $(INSTALLED) ## remove the compiled modules, so that edits take effect immediately
	@$(BIN)/python tools/compile.py --clean
	@rm -f $(COMPILED)

demo: $(RUNS) ## a manager on emulated devices: a gang, an array, a job that is preempted and resumes
	$(BIN)/rota demo --short --out $(DEMO)
	$(BIN)/rota sim --replay $(DEMO)/journal.jsonl
	$(BIN)/rota sim --trace $(DEMO)/journal.jsonl --policy srtf

demo-sim: setup ## compare six policies on 2,000 generated jobs, and write a report
	@mkdir -p $(DEMO)
	$(BIN)/rota trace generate mixed $(DEMO_TRACE) --jobs 2000 --seed 1 --gpus 64 --load 1.1
	$(BIN)/rota sim --trace $(DEMO_TRACE) --cluster gpu=64/8 $(addprefix --policy ,$(POLICIES)) --restart-cost 30 --out $(DEMO)

test: setup ## run every test; skipped tests state why
	@$(BIN)/python -m pytest $(WORKERS) -rs

test-fast: setup ## run the tests that take less than a tenth of a second each, in half a minute
	@$(BIN)/python -m pytest -n $(CORES) $(SPREAD) -p no:schemathesis -m 'not slow' --ignore=tests/e2e --ignore=tests/web --ignore=tests/attacks --ignore=tests/docs

test-long: setup ## search for rare faults for minutes: every policy through many random histories
	@$(BIN)/python -m pytest -n $(CORES) $(SPREAD) --long -m long

test-gpu: setup ## the tests about GPUs, on the GPU of this machine where there is one; skipped ones state why
	@$(BIN)/python -m pytest tests/gpu tests/drivers/local/test_gpus.py tests/drivers/local/test_suspension.py tests/drivers/local/test_residency.py tests/drivers/local/test_disk_images.py tests/e2e/test_gpu_suspension.py -rs

chaos: setup ## the kill tests in full, also on Kubernetes, with a mix of faults (ROTA_CHAOS_MINUTES=10); a full disk, clock steps, PostgreSQL killed, no descriptors, reused ids
	ROTA_TESTS_EXEC=1 ROTA_CHAOS=full $(BIN)/python -m pytest tests/e2e/test_kill.py tests/e2e/test_sweep_kills.py tests/e2e/test_machine.py tests/e2e/test_database_away.py tests/attacks/test_reused_ids.py tests/attacks/test_damaged_database.py tests/e2e/kubernetes/test_faults.py tests/e2e/kubernetes/test_hardened.py tests/e2e/kubernetes/test_chaos.py -rs

slurm: setup ## every test on a real Slurm of Debian's packages (ROTA_INSTALL_SLURM=1 installs them): the contract suite, the tutorial's exercises, 300 jobs while Rota and Slurm are killed; 12 minutes
	ROTA_CHAOS=full $(BIN)/python -m pytest --long tests/e2e/slurm -rs
	$(BIN)/python -m pytest --long tests/contract/test_contract.py -k slurm -rs

fuzz: setup ## 10,000 random Kubernetes objects of every kind through all that reads them, and 1,000 through a real API server
	$(BIN)/python tools/fuzz.py

deploy: setup ## rewrite the Helm chart and the Kustomize base in deploy/ from the manifests
	$(BIN)/rota k8s manifests --format helm --out deploy/chart
	$(BIN)/rota k8s manifests --format kustomize --out deploy/kustomize

soak: setup ## 30 minutes of random users, kills and cancellations (SOAK_MINUTES=5 for less); writes docs/explain/reliability.md
	$(BIN)/python tools/soak.py

check: setup ## format, lint, types, imports, words, tests with warnings as errors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests tools $(wildcard bench/*.py reproductions/*.py)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/words.py
	$(BIN)/python -m pytest $(WORKERS) -W error

docs: setup ## build the documentation of this version into out/site, beside those of others
	@$(BIN)/python tools/build_site.py out/site

docs-check: setup ## open every page of the site from files, in light and dark, with axe-core; 5 minutes
	@$(BIN)/python -m pytest -n 2 --long tests/docs/test_site.py -rs

format: setup ## format the code and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## measure the speed
	@set -e; for script in $(sort $(filter-out bench/truth.py bench/injected_faults.py bench/work_lost.py bench/slurm_forecasts.py bench/slurm_month.py,$(wildcard bench/*.py))); do echo "$$script"; $(BIN)/python "$$script"; done

reproductions: setup ## measure published results and write docs/reference/reproductions.md; ONLY="elastic stages" for some, RESUME=1 to continue
	@$(BIN)/python tools/reproduce.py $(if $(RESUME),--resume) $(ONLY)

truth: setup ## forecasts and simulations against what happened, on live managers and hollow nodes; writes docs/explain/truth.md; 40 minutes
	@$(BIN)/python bench/truth.py
	@$(BIN)/python bench/truth.py --kubernetes --jobs 60 --past 20 --after 10 --scale 0.5
	@$(BIN)/python bench/truth.py --floor
	@if [ -n "$$ROTA_DATA" ]; then $(BIN)/python bench/truth.py --traces; fi
	@$(BIN)/python bench/truth.py --page

truth-gpu: setup ## the same with real trainings on this machine's GPU; 8 minutes
	@$(BIN)/python bench/truth.py --gpu
	@$(BIN)/python bench/truth.py --page

release: setup ## build wheels (plain and compiled), rota-sdk and the source distribution into dist/, check and try each
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build hatchling twine
	@$(BIN)/python tools/release.py

health: setup ## 200 faults injected into a live manager: verdicts, drained nodes, a gang that loses a node, checkpoint intervals; 5 minutes
	@$(BIN)/python bench/injected_faults.py
	@$(BIN)/python bench/work_lost.py

golden: setup ## regenerate the golden journals; explain each difference in the commit
	$(BIN)/python -m pytest tests/golden --regenerate

clean: ## remove generated files, except .venv
	find src -name '*.so' -delete
	rm -rf out build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

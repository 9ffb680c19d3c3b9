PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
MILVUS := .venv-milvus
DOCS := .venv-docs
RELEASE := .venv-release
DEMO_READY := $(VENV)/.demo-ready
READY := $(VENV)/.test-ready
MUTANTS := $(VENV)/.mutants-ready
PIP := $(RUN)/python -m pip install --disable-pip-version-check
# Without the hundred lines that name what is installed already.
NEWS := awk '!/^Requirement already satisfied/ { print; fflush() }'
SHELL := bash
.SHELLFLAGS := -o pipefail -c

.PHONY: help test demo milvus-server experiments lint types tests torture busy fuzz format clean \
	coverage mutants docs wheels dist docker-steps
KILLS ?= 300
FUZZ_MINUTES ?= 20

help:
	@echo "make demo   set up, then build, train, compare and explain with a real model and memory"
	@echo "make test   set up, then lint, check types and run the tests: what CI runs"
	@echo "make experiments  run the paper's tables on the demo's model (an hour) and put them into docs/"
	@echo "make torture KILLS=300  kill the writers of a store at random moments and check that nothing is lost"
	@echo "make busy   add 20,000 pairs in 2,000 commits while another process translates, and time the commits"
	@echo "make fuzz FUZZ_MINUTES=20  run every property test with fresh random examples, for at least this long"
	@echo "make milvus-server  install a Milvus server for the tests"
	@echo "make coverage  run the tests and fail if too few lines and branches were run; htmlcov/ shows which"
	@echo "make mutants  change the numerical core in thousands of small ways; a test must fail each time (an hour)"
	@echo "make docs   build the documentation site into site/; a gap in the reference or a broken link fails"
	@echo "make dist   build and check the distributions, install them into an empty environment and run the demo there"
	@echo "make docker-steps  run the steps of the Dockerfile without Docker and query the server they start"
	@echo "make format  format the code and fix what the linter can"

# torch comes first and by its exact version, so that nothing else chooses another build of it.
$(DEMO_READY): pyproject.toml constraints.txt packages/nearmt-demo/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -c constraints.txt -e '.[paper,server]' -e packages/nearmt-demo
	@touch $@

# The same environment, with what the tests need beyond the demo.
$(READY): $(DEMO_READY)
	$(PIP) -c constraints.txt -e '.[dev,fsmt,milvus,paper,ray,server]' -e packages/nearmt-demo | $(NEWS)
	@touch $@

# In an environment of its own: what the server needs must not decide what nearmt gets.
$(MILVUS)/.ready:
	$(PYTHON) -m venv $(MILVUS)
	$(MILVUS)/bin/python -m pip install --disable-pip-version-check milvus==2.3.5
	@touch $@

milvus-server: $(MILVUS)/.ready

demo: $(DEMO_READY)
	$(RUN)/nearmt demo --out demo-output

experiments: $(READY)
	$(RUN)/nearmt paper demo-fr-en --out paper-output
	mkdir -p docs/figures
	cp paper-output/figures/*.svg paper-output/figures/*.png docs/figures/
	cp paper-output/report.md docs/experiments.md

test: lint types tests

lint: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

types: $(READY)
	$(RUN)/mypy
	$(RUN)/mypy --config-file tests/mypy.ini

tests: $(READY)
	$(RUN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

coverage: $(READY)
	$(RUN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report=term --cov-report=html

# Goes on where it was stopped. Mutants of functions that were changed since are tested again.
$(MUTANTS): $(READY)
	$(PIP) -c constraints.txt -e '.[mutants]' | $(NEWS)
	@touch $@

mutants: $(MUTANTS)
	OMP_NUM_THREADS=1 $(RUN)/mutmut run --max-children 2
	$(RUN)/python tools/mutation_score.py

torture: $(READY)
	PYTHONPATH=examples $(RUN)/python tests/torture.py --kills $(KILLS)

busy: $(READY)
	PYTHONPATH=examples $(RUN)/python tests/busy_writer.py --commits 2000 --pairs 20000

fuzz: $(READY)
	$(RUN)/python tests/fuzz.py --minutes $(FUZZ_MINUTES)

format: $(READY)
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

# In an environment of its own, without torch: the reference needs neither models nor stores.
$(DOCS)/.ready: pyproject.toml constraints.txt tools/extra.py
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python tools/extra.py docs > $(DOCS)/requirements.txt
	$(DOCS)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -r $(DOCS)/requirements.txt | $(NEWS)
	@touch $@

docs: $(DOCS)/.ready
	PYTHONPATH=src NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

$(RELEASE)/.ready: pyproject.toml constraints.txt tools/extra.py
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python tools/extra.py release > $(RELEASE)/requirements.txt
	$(RELEASE)/bin/python -m pip install --disable-pip-version-check -c constraints.txt -r $(RELEASE)/requirements.txt | $(NEWS)
	@touch $@

# Wheels are built from the source distributions, so these are known to be complete.
wheels: $(RELEASE)/.ready
	rm -rf dist
	$(RELEASE)/bin/python -m build --outdir dist . > dist.log || { cat dist.log; exit 1; }
	$(RELEASE)/bin/python -m build --outdir dist packages/nearmt-demo > dist.log || { cat dist.log; exit 1; }
	rm dist.log
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/python tools/check_dist.py dist

dist: wheels
	PYTHON=$(PYTHON) bash tools/try_dist.sh dist

docker-steps:
	$(PYTHON) tools/try_container.py

clean:
	rm -rf $(VENV) $(MILVUS) $(DOCS) $(RELEASE) demo-output toy-output paper-output bench-output build dist site htmlcov mutants .coverage*

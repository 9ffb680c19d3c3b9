PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
MILVUS := .venv-milvus
DEMO_READY := $(VENV)/.demo-ready
READY := $(VENV)/.test-ready
PIP := $(RUN)/python -m pip install --disable-pip-version-check
# Without the hundred lines that name what is installed already.
NEWS := awk '!/^Requirement already satisfied/ { print; fflush() }'
SHELL := bash
.SHELLFLAGS := -o pipefail -c

.PHONY: help test demo milvus-server experiments lint types tests torture busy fuzz format clean
KILLS ?= 300
FUZZ_MINUTES ?= 20

help:
	@echo "make demo   set up, then build, train, compare and explain on a small real model and memory"
	@echo "make test   set up, then lint, check types and run the tests: what CI runs"
	@echo "make experiments  run the paper's tables on the demo's model (an hour) and put them into docs/"
	@echo "make torture KILLS=300  kill a store's writers at random moments and look whether anything was lost"
	@echo "make busy   add 20,000 pairs in 2,000 commits while another process translates, and time the commits"
	@echo "make fuzz FUZZ_MINUTES=20  try every property test with fresh random examples, for at least so long"
	@echo "make milvus-server  install a Milvus server, which the tests then use"
	@echo "make format put the code into its form"

# torch comes first and by its exact version, so that nothing else chooses another build of it.
$(DEMO_READY): pyproject.toml constraints.txt packages/nearmt-demo/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -c constraints.txt -e '.[server]' -e packages/nearmt-demo
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
	$(RUN)/nearmt paper demo-de-en --out paper-output
	mkdir -p docs/figures
	cp paper-output/figures/*.svg paper-output/figures/*.png docs/figures/
	cp paper-output/report.md docs/experiments.md

test: lint types tests

lint: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

types: $(READY)
	$(RUN)/mypy

tests: $(READY)
	$(RUN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

torture: $(READY)
	PYTHONPATH=examples $(RUN)/python tests/torture.py --kills $(KILLS)

busy: $(READY)
	PYTHONPATH=examples $(RUN)/python tests/busy_writer.py --commits 2000 --pairs 20000

fuzz: $(READY)
	$(RUN)/python tests/fuzz.py --minutes $(FUZZ_MINUTES)

format: $(READY)
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

clean:
	rm -rf $(VENV) $(MILVUS) demo-output toy-output paper-output bench-output build dist

# make demo   sets everything up and runs the main job
# make test   sets everything up and runs every check
# make docs   builds the documentation site into site/
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Tests and the demo use the cores that there are; each process computes on one.
export OMP_NUM_THREADS ?= 1
# What was imported once is kept compiled, whatever the caller's habit is.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint types unit docs bench figures clean
demo: $(STAMP)
	@$(BIN)/python -m experiments.sweep experiment=demo

# Types are checked, and the site is built, by one process each, which leaves the other cores to the tests.
test: lint
	@$(MAKE) --no-print-directory -j2 types docs unit

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist worksteal -q

# Warnings are errors: a link that leads nowhere, a page or a name that is not there.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The figures of README and docs that are simulated or timed; PART=speed, serving, experiments or studies makes one part.
PART ?= speed serving experiments studies
figures: $(STAMP) $(addprefix figures-,$(PART))
figures-speed: $(STAMP) bench
figures-serving: $(STAMP)
	$(BIN)/python -m tests.benchmarks.serving
	for name in task_groups early_upload edge_selection deadline_accuracy; do \
		$(BIN)/python -m experiments.sweep experiment=serving/$$name && $(BIN)/python -m experiments.serving outputs/sweeps/$$name || exit 1; done
figures-experiments: $(STAMP)
	for name in donf_grid dnn_schedulers belief scaling; do $(BIN)/python -m experiments.sweep experiment=$$name || exit 1; done
figures-studies: $(STAMP)
	$(BIN)/python -m experiments.size experiment=serving/sizing
	$(BIN)/python -m experiments.early_exit experiment=serving/early_exit

bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks.engine
	$(BIN)/python -m tests.benchmarks.schedulers
	$(BIN)/python -m tests.benchmarks.partitions
	$(BIN)/python -m tests.benchmarks.training

# One environment, made anew only when what it holds has changed. Most of its 16,000 modules are never
# imported; the others are compiled when they are.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	sys.exit(None if (3, 11) <= v <= (3, 13) else f"Python 3.11 to 3.13 is needed, {sys.executable} is {v[0]}.{v[1]}; name another: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (once; a few minutes) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[models,exact,training,dev]'
	@touch $@

clean:
	rm -rf $(VENV) outputs site .mypy_cache .ruff_cache .pytest_cache .hypothesis

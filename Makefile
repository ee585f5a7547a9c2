# make demo      environment, then recipe -> store -> trained operator -> report.html
# make test      environment, linters, types, import contracts, doctests and tests
# make validate  published numbers
# make bench     speed, as ratios inside one run
# make format    fix what ruff can fix

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test validate bench format lint

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/pdegen run burgers-quick --out runs/demo --overwrite

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright

test: lint
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m "not slow" --durations=10

validate: $(READY)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest tests/validation --durations=10

bench: $(READY)
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m benchmarks.burgers
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m benchmarks.training

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# `make demo` and `make test` each do everything from nothing: they need Python, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check format clean

# The stamp makes every target reinstall when the dependencies change, and only then.
$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/installed
	$(BIN)/chita demo

# One worker for each core, and one thread for each worker: small tests gain nothing from more.
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# `make demo` and `make test` each do everything from nothing: they need Python, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test quick check docs format clean

# The stamp makes every target reinstall when the dependencies change, and only then. timm requires
# torchvision, which would replace the CPU build of torch and which transformers would import: the
# tests of timm find both in a folder of their own, without their dependencies.
$(VENV)/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade \
		--constraint constraints.txt --no-deps --target $(VENV)/timm/site-packages timm torchvision
	touch $@

demo: $(VENV)/installed
	$(BIN)/chita demo

# One worker for each core, and one thread for each worker: small tests gain nothing from more.
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto

# While working: all tests but the slow ones, in less than two minutes.
quick: $(VENV)/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto -m "not slow"

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

# The variable turns off a banner of mkdocs-material, by its own switch.
docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis

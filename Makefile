# make smoke: is this machine all right?   make test: the bundle's own tests   make bench: what the smoke costs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: smoke test lint matrix sabotage bench clean

smoke: $(VENV)/smoke.stamp
	$(BIN)/python scripts/smoke.py

test: lint
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .

matrix: $(VENV)/test.stamp
	MATRIX=required $(BIN)/python -m pytest -q tests/test_version_matrix.py tests/test_smoke_releases.py

sabotage: $(VENV)/test.stamp
	SABOTAGE_WHOLE=1 $(BIN)/python -m pytest -q -n $(WORKERS) tests/test_smoke_catches_sabotage.py

bench: $(VENV)/smoke.stamp
	$(BIN)/python tests/bench_smoke.py

$(VENV)/smoke.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch and pytorch-ignite into $(VENV); minutes, the first time"
	$(BIN)/python -m pip install -q -c constraints.txt torch pytorch-ignite numpy
	touch $@

$(VENV)/test.stamp: $(VENV)/smoke.stamp tests/requirements.txt
	$(BIN)/python -m pip install -q -c constraints.txt -r tests/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) .matrix .pytest_cache .ruff_cache

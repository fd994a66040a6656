# make smoke: is this machine all right?   make test: the bundle's own tests   make bench: what the smoke costs
# make worlds: real launchers, injected faults   make horovod: builds it, and runs on it
# make release: archive, wheel and checksums   make clients: each install line, with the real client
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: smoke test worlds lint matrix sabotage bench horovod release clients clean

smoke: $(VENV)/smoke.stamp
	$(BIN)/python scripts/smoke.py

test: lint
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --ignore tests/worlds --ignore tests/faults

worlds: $(VENV)/test.stamp .worlds/stamp
	WORLDS_PYTHON=$(CURDIR)/.worlds/bin/python $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup tests/worlds tests/faults

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .

matrix: $(VENV)/test.stamp
	MATRIX=required $(BIN)/python -m pytest -q tests/test_version_matrix.py tests/worlds/test_smoke_releases.py

sabotage: $(VENV)/test.stamp
	SABOTAGE_WHOLE=1 $(BIN)/python -m pytest -q -n $(WORKERS) tests/faults/test_smoke_catches_sabotage.py

bench: $(VENV)/smoke.stamp
	$(BIN)/python tests/bench_smoke.py

horovod:
	test -x .horovod/bin/python || $(PYTHON) -m venv .horovod
	.horovod/bin/python -m pip install -q -c constraints.txt torch pytorch-ignite numpy -r tests/requirements.txt
	bash tests/horovod/build.sh .horovod/bin/python .horovod/wheels
	.horovod/bin/python -m pytest -q -p no:cacheprovider tests/horovod

release:
	$(PYTHON) release/build.py --stamp
	$(PYTHON) release/build.py

clients: $(VENV)/test.stamp .clients/stamp
	CLIENTS=required $(BIN)/python -m pytest -q tests/clients

.clients/stamp: tests/clients/package.json
	mkdir -p .clients
	cp tests/clients/package.json .clients/
	npm install --prefix .clients --silent --no-fund --no-audit
	node .clients/node_modules/@anthropic-ai/claude-code/install.cjs
	touch $@

.worlds/stamp: $(VENV)/test.stamp tests/worlds/requirements.txt
	$(BIN)/python -m venv .worlds
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(" + repr(sysconfig.get_path("purelib")) + ")")' \
	  > "$$(.worlds/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beneath.pth"
	.worlds/bin/python -m pip install -q -c constraints.txt -r tests/worlds/requirements.txt
	touch $@

$(VENV)/smoke.stamp: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch and pytorch-ignite into $(VENV); minutes, the first time"
	$(BIN)/python -m pip install -q -c constraints.txt torch pytorch-ignite numpy
	touch $@

$(VENV)/test.stamp: $(VENV)/smoke.stamp tests/requirements.txt
	$(BIN)/python -m pip install -q -c constraints.txt -r tests/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) .horovod .matrix .clients .worlds dist .pytest_cache .ruff_cache

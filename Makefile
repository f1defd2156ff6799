# The commands of the course; `make` alone lists them.

PYTHON ?= python3
L      ?= en
TORCH  := torch==2.13.0

VENV   := .venv
PY     := $(VENV)/bin/python
LESSON  = $(firstword $(wildcard notebooks/$(L)/00_*.ipynb))

SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help lab test lint lessons bench constraints clean

help:
	@echo 'make lab          open lesson 00 in JupyterLab (make lab L=zh: in Chinese)'
	@echo 'make test         run every test, the lessons included'
	@echo 'make lint         ruff, mypy, and whether the notebooks fit their sources'
	@echo 'make lessons      build the notebooks and run those that changed'
	@echo 'make bench        the measurements; minutes'
	@echo 'make constraints  choose the pinned versions anew'
	@echo 'make clean        remove .venv and caches'

# .jupyter keeps JupyterLab from asking the network for news, updates and extensions.
LAB = PATH="$(CURDIR)/$(VENV)/bin:$$PATH" \
  JUPYTER_CONFIG_PATH="$(CURDIR)/.jupyter$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" \
  $(PY) -m jupyterlab

# JupyterLab refuses to run as root, in a container too, unless it is told so.
ifeq ($(shell id -u),0)
LAB += --allow-root
endif

# Without a screen the address is printed; a text browser must not take the terminal.
ifeq ($(shell uname)$(DISPLAY)$(WAYLAND_DISPLAY)$(BROWSER),Linux)
LAB += --no-browser
endif

lab: $(VENV)/.course
	@test -n '$(LESSON)' || { \
	  echo 'L must be en or zh and lesson 00 built, got L=$(L); run `make lessons`, then `make lab`'; \
	  exit 2; }
	$(LAB) --LabApp.default_url='/lab/tree/$(LESSON)' $(LABFLAGS)

test: $(VENV)/.test
	$(PY) -m pytest $(PYTEST)

lint: $(VENV)/.test
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy --strict coursekit
	$(PY) -m coursekit lessons --check

lessons: $(VENV)/.test
	$(PY) -m coursekit lessons

bench: $(VENV)/.test $(VENV)/.bench
	@set -e; for file in $(sort $(wildcard tests/bench/[!_]*.py)); do \
	  echo "== $$file"; $(PY) $$file; done

# torch stays at the version that the lessons' measured numbers were taken with.
constraints: $(VENV)/.test
	$(PY) -m piptools compile --quiet --all-extras --strip-extras --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options \
	  --upgrade-package '$(TORCH)' --output-file - pyproject.toml \
	  | sed -E '/^[[:space:]]*(#|$$)/d; s/\+[A-Za-z0-9.]+//' > $(VENV)/constraints.txt
	{ echo '# Made by `make constraints`; not to be edited.'; cat $(VENV)/constraints.txt; } > constraints.txt

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- the environment: made once, made anew when a list of packages changes

INSTALL = $(PY) -m pip install --disable-pip-version-check --constraint constraints.txt

$(VENV)/.course: pyproject.toml constraints.txt | $(PY)
	@echo 'Installing the course into $(VENV): a few minutes, once.'
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.test $(VENV)/.bench: $(VENV)/.%: pyproject.toml constraints.txt | $(PY)
	@echo 'Installing what `make $*` needs into $(VENV).'
	$(INSTALL) --editable '.[$*]'
	@touch $@

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'Python must be 3.11 or newer, got: '"$$($(PYTHON) --version 2>/dev/null || echo no $(PYTHON))"; \
	  echo 'Install one, then name it: make $(MAKECMDGOALS) PYTHON=python3.12'; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo 'Python must have its venv module, got one without it.'; \
	  echo 'On Debian and Ubuntu: apt-get install python3-venv'; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)

# QuantFlow's commands; `make` lists them. Each of them sets up .venv first where that is needed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help setup run run-int8 test test-slow test-interop test-browser test-planted lint bench FORCE

PYTHON ?= $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
BIN := .venv/bin
# ONNX Runtime of the machine: cpu, or gpu for NVIDIA's.
EXTRA ?= cpu
LOG := .venv/setup.log

# Written last, so it stands for a finished set-up. It says for which checkout (scripts in .venv hold its path)
# and which torch; .venv is made anew for another of either.
STAMP := .venv/.quantflow-setup
TORCH_PINNED := $(shell grep '^torch==' constraints.txt)
TORCH_ASKED := $(strip $(TORCH) $(TORCH_INDEX_URL))
ifneq ($(wildcard $(STAMP)),)
ifneq "$(CURDIR)" "$(shell sed -n 1p $(STAMP))"
RENEW := yes
endif
endif
ifneq ($(TORCH_ASKED),)
ifneq "$(TORCH_ASKED)" "$(shell sed -n 2p $(STAMP) 2>/dev/null)"
RENEW := yes
endif
endif

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile
	printf '%s\n' '' 'Variables, given after make or in the environment:' \
	  '  PYTHON=…           what .venv is made with, 3.11 or newer (default: python3.11, else python3)' \
	  '  TORCH=…            another build of torch as pip names it, such as $(TORCH_PINNED)+cpu' \
	  '  TORCH_INDEX_URL=…  package index to take torch from, such as the one of its CPU builds' \
	  '  EXTRA=…            ONNX Runtime to install: cpu (default) or gpu' \
	  'Given another TORCH or TORCH_INDEX_URL than last time, .venv is made anew; given none, its torch stays.'

setup: $(STAMP)  ## make .venv and install QuantFlow and its tools into it

run: RECIPE = recipes/quickstart.yaml
run: $(STAMP)  ## quantize and judge the quickstart model; succeeds on verdicts pass, fail and inconclusive
	@$(RUN)

run-int8: RECIPE = recipes/quickstart_int8.yaml
run-int8: $(STAMP)  ## the same to INT8 for ONNX Runtime, sparing layers until the gate's margins hold
	@$(RUN)

define RUN
code=0
$(BIN)/quantflow run $(RECIPE) || code=$$?
case $$code in
  0) meaning='pass' ;;
  1) meaning='fail' ;;
  2) meaning='error or incomplete' ;;
  3) meaning='inconclusive' ;;
  4) meaning='recipe or usage invalid' ;;
  *) meaning='stopped from outside' ;;
esac
echo "quantflow exited with $$code ($$meaning)"
[[ $$code =~ ^[013]$$ ]]
endef

test: $(STAMP)  ## run the tests that take seconds each
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

test-slow: $(STAMP)  ## run the tests that need the quickstart model
	@$(BIN)/python -m pytest -m slow -rs -n 2 --dist loadfile

test-interop: $(STAMP)  ## run the tests that load artifacts in other programs, as far as they are installed
	@$(BIN)/python -m pytest -m interop -rs

test-browser: $(STAMP)  ## open reports in Chromium (Debian: apt-get install chromium chromium-driver fonts-noto-cjk)
	@$(BIN)/python -c 'import selenium, html5lib' 2> /dev/null ||
	  $(BIN)/python -m pip install -q --no-input --disable-pip-version-check -c constraints.txt -e '.[browser]'
	code=0
	$(BIN)/python -m pytest -m browser -rs tests/browser || code=$$?
	echo "screenshots: browser-shots/"
	exit $$code

test-planted: $(STAMP)  ## plant defects in a real model and let the gate judge; its last line counts them
	@$(BIN)/python -m tests.planted

lint: $(STAMP)  ## check style, format and types
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)  ## run every benchmark, one after another; takes hours, see benchmarks/README.md
	@failed=0
	for file in benchmarks/*.py; do
	  echo "== $$file"
	  $(BIN)/python "$$file" || failed=1
	done
	exit $$failed

$(STAMP): pyproject.toml constraints.txt Makefile $(if $(RENEW),FORCE)
	@started=$$SECONDS
	refuse() { printf '%s\n' "$$@" >&2; exit 1; }
	install() {
	  $(BIN)/python -m pip install --no-input --disable-pip-version-check --progress-bar off "$$@" \
	    > $(LOG) 2>&1 || { cat $(LOG) >&2; refuse "Setting up failed: pip's own words are above."; }
	}
	usable='import sys, pip; sys.exit(sys.version_info < (3, 11))'
	if [[ -n '$(RENEW)' ]] || ! $(BIN)/python -c "$$usable" 2>/dev/null; then
	  found=$$('$(PYTHON)' -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
	    refuse '$(PYTHON) does not run here.' 'Install Python 3.11 or newer, or name it: make setup PYTHON=/path/to/python3.11'
	  '$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
	    refuse "QuantFlow needs Python 3.11 or newer; $(PYTHON) is $$found." \
	      'Install a newer one, or name it: make setup PYTHON=/path/to/python3.11'
	  '$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null ||
	    refuse "$(PYTHON) cannot make virtual environments." "On Debian and Ubuntu: sudo apt install python$$found-venv"
	  echo "making .venv with Python $$found ($(PYTHON)) …"
	  '$(PYTHON)' -m venv --clear .venv
	fi
	echo 'installing $(or $(TORCH),$(TORCH_PINNED)) (about 200 MB as a CPU build, some GB as a CUDA build) …'
	install $(if $(TORCH_INDEX_URL),--index-url '$(TORCH_INDEX_URL)') '$(or $(TORCH),$(TORCH_PINNED))'
	echo 'installing QuantFlow, what it needs and its tools (about 250 MB) …'
	install -c constraints.txt $(if $(TORCH),'$(TORCH)') -e '.[dev,$(EXTRA)]'
	printf '%s\n' "$$(pwd -P)" '$(TORCH_ASKED)' > $(STAMP)
	echo "ready after $$((SECONDS - started)) s: .venv"

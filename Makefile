# make tune: the main job, OpEvo on MM1, on a GPU if there is one, else on the CPU.   make test: the tests.
# Both install what they need into $(VENV) first; python3 must be 3.10 to 3.13 (PYTHON=... names another).

PYTHON ?= python3
VENV ?= .venv
WORKLOAD ?= mm1
TRIALS ?= 64

# What `make replay` replays: our own recording; or LANDSCAPES=..., any that `tensor-tuners replay` reads.
LANDSCAPES ?= $(wildcard benchmarks/landscapes/*)
SEEDS ?= 20
SEARCHES ?= WalkGP OpEvo GBFS NA2C AutoTVM AutoTVM:batch_size=16 NoSE Genetic Random

.PHONY: tune test bench replay operators gpu clean

tune: $(VENV)/installed
	@$(VENV)/bin/tensor-tuners register
	@$(VENV)/bin/tensor-tuners tune $(WORKLOAD) --trials $(TRIALS)

test: $(VENV)/installed-tests
	$(VENV)/bin/python -m pytest -q --numprocesses 3 --dist worksteal --durations=10 tests

bench: $(VENV)/installed
	$(VENV)/bin/python benchmarks/proposal_time.py

replay: $(VENV)/installed
	$(VENV)/bin/tensor-tuners replay $(LANDSCAPES) --searches $(SEARCHES) --seeds $(SEEDS)

# The kernels beside NumPy, and beside oneDNN through PyTorch where TORCH_PYTHON names an interpreter that has it; 40 minutes.
operators: $(VENV)/installed
	$(VENV)/bin/python benchmarks/operators.py mm1 bmm1 resnet18-c2 resnet18-c6 resnet18-c9 resnet18-c12 --target cpu \
	    --searches OpEvo --metaschedule mm1 --check 0 --finalists 6 --rounds 5 --output runs/operators

# Installs nothing: takes the virtual environment where there is one, else PYTHON as it is.
gpu:
	@PYTHON=$$([ -x $(VENV)/bin/python ] && echo $(VENV)/bin/python || echo $(PYTHON)) benchmarks/on_gpu.sh

$(VENV)/installed: setup.cfg pyproject.toml
	@echo "installing into $(VENV); this takes a minute or two"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/installed-tests: $(VENV)/installed
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

clean:
	rm -rf $(VENV) runs build *.egg-info

# Needs only Python 3.11 or newer, git and make. ARGS goes to the command:
#   make demo ARGS="--seed 1 --out runs/one rl.steps=40"     make test ARGS="-k rewards"
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
SETUP ?=
# what torch brings on a machine with a GPU
CUDA := cuda-bindings cuda-pathfinder cuda-toolkit $(addprefix nvidia-,cublas cuda-cupti \
  cuda-nvrtc cuda-runtime cudnn-cu13 cufft cufile curand cusolver cusparse cusparselt-cu13 nccl-cu13 \
  nvjitlink nvshmem-cu13 nvtx)

.PHONY: help lock lock-gpu setup demo test test-slow test-slurm test-interop test-matrix test-browser \
  tools check docs clean

help:
	@echo "make demo   train a real model against gold, evaluate it, write runs/demo/report.html"
	@echo "make test   run the tests"
	@echo "make check  ruff, import-linter and pyright"
	@echo "make docs   the documentation site, in site/"
	@echo "make setup  make .venv (the others call it first)"
	@echo "make lock   make requirements.lock again, from pyproject.toml (lock-gpu: slurm/gpu*.lock)"
	@echo "make clean  remove .venv"

# The versions and hashes of requirements.lock; SETUP=--unlocked takes the newest in range.
setup:
	@$(PYTHON) -m train.install $(SETUP)

# Make the lock files again (needs uv). What is locked stays; UPGRADE=--upgrade takes the newest.
# Only what is asked for is read, nothing is downloaded.
UPGRADE ?=
COMPILE = uv pip compile pyproject.toml --python-version 3.11 --generate-hashes --no-annotate \
  --no-header --quiet $(UPGRADE)

# A machine's own: torch is pinned in train/install.py, because its build depends on the machine, and
# so do the CUDA packages that come with it.
lock:
	echo torch==$$($(PYTHON) -c "from train.install import TORCH; print(TORCH)") | $(COMPILE) - \
	  --universal --extra train --extra parquet --extra sandbox --extra client --extra build \
	  --extra dj --extra agents --extra test --no-emit-package torch --no-emit-package triton \
	  $(foreach name,$(CUDA),--no-emit-package $(name)) --output-file requirements.lock

# A node of a cluster (docs/clusters.md), torch and CUDA among them: verl's rollouts by SGLang, or by
# vLLM, which needs an older C library (RHEL 8). One environment for all that is done there.
EXTRAS_GPU := train sandbox client cluster deepspeed build dj lora wandb tensorboard
COMPILE_GPU = $(COMPILE) $(addprefix --extra ,$(EXTRAS_GPU)) --override slurm/gpu-overrides.txt
lock-gpu:
	$(COMPILE_GPU) slurm/gpu.in --python-platform x86_64-manylinux_2_34 \
	  --output-file slurm/gpu.lock
	$(COMPILE_GPU) slurm/gpu-vllm.in --python-platform x86_64-manylinux_2_28 \
	  --output-file slurm/gpu-vllm.lock

demo: setup
	$(BIN)/assay demo $(ARGS)

# One thread a worker: the tests run side by side. A worker takes tests in the order of their files
# (worksteal), so few files have their fixtures made twice. Tests start some hundred processes, which
# read bytecode where it may be written.
TEST_ENV := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
test: setup
	$(TEST_ENV) $(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" $(ARGS)

# The long ones: soaks, attack tables of every simulated machine, Ray.
test-slow: setup
	$(TEST_ENV) $(BIN)/python -m pytest -n auto --dist worksteal -m slow $(ARGS)

# A real Slurm on this machine, every script on a tiny model: stopped, requeued, compared bit by bit.
test-slurm: setup
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist loadfile tests/slurm $(ARGS)

# What `assay export` writes against the real harbor, verifiers, inspect, NeMo Gym and TRL, and
# what trackers get against the real Weights & Biases and TensorBoard, each in
# an environment of its own (.matrix/); needs Python 3.12 beside. ARGS names some of them.
test-interop:
	$(PYTHON) tests/support/matrix.py --interop $(ARGS)

# Environments made from nothing with uv (.matrix/): Python × transformers × peers, imported and
# tested; writes the table of docs/interop.md. ARGS names some rows.
test-matrix:
	$(PYTHON) tests/support/matrix.py $(ARGS)

# The report and the viewer in an installed Chromium, with axe-core (from npm) where it can be had.
AXE := .interop/axe/package/axe.min.js
test-browser: setup
	@$(PYTHON) -m train.install --extras browser
	-test -f $(AXE) || (mkdir -p .interop/axe && cd .interop/axe && npm pack --silent axe-core@4.14.1 \
	  && tar xzf axe-core-4.14.1.tgz)
	if [ -f $(AXE) ]; then export ASSAY_AXE="$$PWD/$(AXE)"; fi; \
	  $(BIN)/python -m pytest tests/train/test_browser.py $(ARGS)

# What `check` and `docs` are made with. Fails where it cannot be fetched.
tools: setup
	@$(PYTHON) -m train.install --extras dev
	@$(PYTHON) -m train.install --extras docs
	$(BIN)/pyright --version

check: setup
	@$(PYTHON) -m train.install --extras dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/pyright

# The site in site/. Fails where a link leads nowhere or the generated pages are not up to date.
docs: setup
	@$(PYTHON) -m train.install --extras docs
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv site

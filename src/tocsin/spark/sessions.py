"""A Spark session with what a pipeline needs, and quiet.

What the settings are for:

- RocksDB keeps the shards' state, in Avro (the other encoding cannot change its schema later),
  and writes a change log per batch instead of a whole snapshot;
- few shuffle partitions: a micro-batch pays for each, and shards are few;
- workers run this very Python (Spark would take the first `python3` of the path);
- on one machine the JVM compiles with its quick compiler only: a micro-batch then costs about
  two thirds, and the first one half.

Any setting can be overridden: `session(**{"spark.sql.shuffle.partitions": 8})`. A session of your
own works as well: a pipeline gives it the settings of `STATE` that it lacks (`ensure_state`).
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from tocsin.errors import TocsinError
from tocsin.spark.java import ensure_java

__all__ = ["STATE", "ensure_state", "session"]

STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_NEEDED = {  # and how a value ends that will do as well
    "spark.sql.streaming.stateStore.providerClass": "RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
}
_DEFAULTS = {
    **STATE,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # it re-plans per batch, for nothing at this size
    "spark.sql.codegen.wholeStage": "false",  # the work is in Python: compiling plans only delays it
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def session(
    app: str = "tocsin",
    master: str = "local[2,4]",
    *,
    log: str | Path | None = None,
    **conf: str | int | bool,
) -> SparkSession:
    """The running session, or a new one.

    `local[2,4]` is two cores and up to four tries of a task: a bare `local[2]` dies of its first
    failure. `log` is the file that receives what the JVM and the workers print on stderr; by
    default a temporary one, removed at exit. `sc://host:port` connects to a Spark Connect server.
    """
    if master.startswith("sc://"):
        remote = SparkSession.builder.appName(app).remote(master)
        for key, value in conf.items():
            remote = remote.config(key, value)
        return remote.getOrCreate()
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master)
    for key, value in _settings(master, conf).items():
        builder = builder.config(key, value)
    if SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    path = Path(log) if log is not None else _temporary_log()
    with _stderr_to(path):
        try:
            return builder.getOrCreate()
        except Exception as error:  # whatever stopped the JVM, its own words are in the log
            tail = "\n".join(path.read_text(errors="replace").splitlines()[-20:])
            raise TocsinError(
                f"Spark did not start: {error}\n{tail}", hint="is Java 17 or newer there?"
            ) from error


def ensure_state(spark: SparkSession) -> None:
    """Give a session the settings that a pipeline's state needs; they may be set while it runs."""
    for key, value in STATE.items():
        has = spark.conf.get(key, None)
        if has is not None and (has == value or key not in _NEEDED or has.endswith(_NEEDED[key])):
            continue
        try:
            spark.conf.set(key, value)
        except Exception as error:  # of whichever kind, by JVM or Connect
            raise TocsinError(
                f"a pipeline needs the setting {key}={value}, and the session refuses it: {error}",
                hint="build the session with it, or by tocsin.spark.session()",
            ) from error


def _settings(master: str, conf: dict[str, str | int | bool]) -> dict[str, str]:
    local = master.startswith("local")
    settings = {**_DEFAULTS, **(_LOCAL if local else {})}
    settings |= {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in conf.items()
    }
    quiet = Path(__file__).with_name("log4j2.properties").as_uri()
    options = [
        f"-Dlog4j2.configurationFile={quiet}",
        _QUICK_JVM if local else "",
        settings.get(_JAVA_OPTIONS, ""),
    ]
    settings[_JAVA_OPTIONS] = " ".join(filter(None, options))
    return settings


def _temporary_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="tocsin-spark-", suffix=".log")
    os.close(descriptor)

    def remove() -> None:
        with suppress(FileNotFoundError):
            os.unlink(name)

    atexit.register(remove)
    return Path(name)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """What is started inside (the JVM) has its stderr in the file for life; ours is put back after."""
    sys.stderr.flush()
    ours = os.dup(2)
    theirs = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(theirs, 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(theirs)

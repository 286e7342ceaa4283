"""A Spark session with the settings that a pipeline needs, and little output.

What the settings are for:

- RocksDB keeps the shards' state, in Avro (the other encoding cannot change its schema later),
  and writes a change log per batch instead of a whole snapshot;
- few shuffle partitions: a micro-batch pays for each, and shards are few;
- workers run the Python of this process (Spark would use the first `python3` on the path);
- on one machine the JVM uses only its quick compiler: a micro-batch then costs about two thirds, and the
  first one half. A cluster on loopback (`lab/chaos/cluster.py`) is one machine too;
- on one machine Spark's own files are written by the simpler of its two ways (`_LOCAL`): the other one starts
  some thirty processes (`chmod`, `readlink`) for every micro-batch;
- Spark's classes come from an archive, if `tocsin warmup --spark` made one (`classes.py`).

Any setting can be overridden: `session(**{"spark.sql.shuffle.partitions": 8})`. Your own session works as
well: a pipeline adds the settings of `STATE` that it lacks (`ensure_state`).
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from pyspark.sql import SparkSession

from tocsin.errors import TocsinError
from tocsin.spark.classes import archive_option
from tocsin.spark.home import unzipped
from tocsin.spark.java import ensure_java

__all__ = ["QUICK_JVM", "STATE", "ensure_state", "session", "settings"]

STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_NEEDED = {  # a value that ends so is accepted as well
    "spark.sql.streaming.stateStore.providerClass": "RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.encodingFormat": "avro",
}
_DEFAULTS = {
    **STATE,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # it re-plans each batch, which does not pay at this size
    "spark.sql.codegen.wholeStage": "false",  # the work is in Python: compiling plans only delays it
    "spark.sql.files.openCostInBytes": "262144",  # all cores read parts of files of a few MB
    "spark.sql.session.timeZone": "UTC",
    # set for some operators only, it would give them a Python daemon and workers of their own
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "tocsin.spark.worker_daemon",  # imports before it forks workers
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # a second file beside each, though file systems have checksums
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_THROUGHPUT = {  # long jobs: everything compiled, larger Arrow batches
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.driver.memory": "2g",
}
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit, for the program that it starts
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"


def session(
    app: str = "tocsin",
    master: str | None = None,
    *,
    log: str | Path | None = None,
    throughput: bool = False,
    **conf: str | int | bool,
) -> SparkSession:
    """The running session, or a new one.

    `master` is by default that of `spark-submit`, together with all its settings, or else `local[2,4]`: two
    cores and up to four attempts of a task (a plain `local[2]` fails with the first failed task).
    `spark://host:port` is a standalone cluster, whose workers must see the same files under the same paths;
    `sc://host:port` a Spark Connect server. `log` is the file for the stderr of the JVM and the workers; by
    default a temporary one, removed at exit. `throughput` selects settings for long jobs over much data
    instead of many short ones.
    """
    if master is None and _SUBMITTED in os.environ:
        return _submitted(app, conf)
    master = master or "local[2,4]"
    if master.startswith("sc://"):
        _ensure_connect()
        remote = SparkSession.builder.appName(app).remote(master)
        for key, value in conf.items():
            remote = remote.config(key, value)
        return remote.getOrCreate()
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(master)
    made = settings(master, conf, throughput=throughput)
    for key, value in made.items():
        builder = builder.config(key, value)
    if SparkSession.getActiveSession() is not None:
        return builder.getOrCreate()
    path = Path(log) if log is not None else _temporary_log()
    with _stderr_to(path), unzipped(master) as home:
        try:
            return builder.config(_JAVA_OPTIONS, archive_option(home, made[_JAVA_OPTIONS])).getOrCreate()
        except Exception as error:  # whatever stopped the JVM, the log says why
            tail = "\n".join(path.read_text(errors="replace").splitlines()[-20:])
            raise TocsinError(
                f"Spark did not start: {error}\n{tail}", hint="is Java 17 or newer there?"
            ) from error


def _submitted(app: str, conf: Mapping[str, str | int | bool]) -> SparkSession:
    """The session of a program that `spark-submit` started: its options override all defaults."""
    builder = SparkSession.builder.appName(app)
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def ensure_state(spark: SparkSession) -> None:
    """Set what a pipeline's state needs and the session lacks; Spark allows it while the session runs."""
    for key, value in STATE.items():
        has = spark.conf.get(key, None)
        if has is not None and (has == value or key not in _NEEDED or has.endswith(_NEEDED[key])):
            continue
        try:
            spark.conf.set(key, value)
        except Exception as error:  # the type depends on JVM or Connect
            raise TocsinError(
                f"a pipeline needs the setting {key}={value}, and the session refuses it: {error}",
                hint="build the session with it, or by tocsin.spark.session()",
            ) from error


def settings(
    master: str, conf: Mapping[str, str | int | bool], *, throughput: bool = False
) -> dict[str, str]:
    """All settings of a session on `master`; `conf` overrides defaults."""
    here = master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))
    made = {**_DEFAULTS, **(_LOCAL if here else {}), **(_THROUGHPUT if throughput else {})}
    made |= {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in conf.items()
    }
    quiet = Path(__file__).with_name("log4j2.properties").as_uri()
    quick = QUICK_JVM if here and not throughput else ""
    options = [f"-Dlog4j2.configurationFile={quiet}", quick, made.get(_JAVA_OPTIONS, "")]
    made[_JAVA_OPTIONS] = " ".join(filter(None, options))
    if here and master.startswith("spark:"):
        made[_EXECUTOR_OPTIONS] = " ".join(filter(None, [quick, made.get(_EXECUTOR_OPTIONS, "")]))
    return made


def _ensure_connect() -> None:
    """Name the missing package: Spark's own message is about minimum versions."""
    for package in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        try:
            import_module(package)
        except ImportError:
            raise TocsinError(
                f"Spark Connect needs the package {package}", hint="pip install 'tocsin[connect]'"
            ) from None


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
    """Redirect stderr to the file; a process that is started inside (the JVM) keeps it, ours is restored."""
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

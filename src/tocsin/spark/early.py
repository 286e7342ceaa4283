"""What a pipeline on one machine needs first is started while Spark still plans its query.

    Pipeline.start ─┬─ Spark plans, and loads the classes of a streaming query
                    ├─ shard hosts: import the engine, then fork            (hosting/process.py)
                    └─ a job of two tasks: starts the Python daemon and two workers   (worker_daemon.py)

Each of the two would otherwise start when the first batch needs it, one after the other. Nothing depends on
them: what is not there when it is needed is started then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tocsin.errors import TocsinError
from tocsin.spark.hosting.client import Hosts, host_count
from tocsin.spark.hosting.process import process_id

__all__ = ["local_java", "start_early"]

_begun: set[int] = set()  # JVMs whose workers were started


def start_early(spark: SparkSession, hosts: int | None) -> None:
    """Start shard hosts and Python workers in the background, if driver and executor are one JVM."""
    java = local_java(spark)
    if java is None:
        return
    if not _has_limits(spark):
        Thread(target=_start_hosts, args=(hosts, java), daemon=True).start()
    if java not in _begun:
        _begun.add(java)
        Thread(target=_start_workers, args=(spark,), daemon=True).start()


def local_java(spark: SparkSession) -> int | None:
    """The process id of the JVM if it is driver and executor at once, and this process has started it."""
    context: Any = getattr(spark, "_sc", None)  # none with Spark Connect
    if context is None or not context.master.startswith("local") or "cluster" in context.master:
        return None
    started = getattr(context._gateway, "proc", None)
    return None if started is None else int(started.pid)


def _has_limits(spark: SparkSession) -> bool:
    """Whether workers have a memory limit or variables of their own, which hosts inherit only from them."""
    context: Any = getattr(spark, "_sc", None)
    own = {name for name, _ in context.getConf().getAll()} - {"spark.executorEnv.PYTHONHASHSEED"}
    return any(
        name == "spark.executor.pyspark.memory" or name.startswith("spark.executorEnv.") for name in own
    )


def _start_hosts(wanted: int | None, java: int) -> None:
    count, owner = host_count(wanted), process_id(java)
    if count and owner is not None:
        with suppress(OSError, TocsinError):  # the first worker that needs a host tries again, and raises
            Hosts(count, owner).start()


def _start_workers(spark: SparkSession) -> None:
    with suppress(Exception):  # the session may be stopped meanwhile
        spark.range(0, 2, 1, 2).mapInArrow(_pass, "id bigint").collect()


def _pass(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches

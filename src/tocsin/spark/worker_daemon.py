"""Spark's Python daemon for a pipeline on this machine: it imports what workers need before it forks them.

    JVM ─ python -m tocsin.spark.worker_daemon ─ fork ─► worker, worker, ...

Spark's own daemon imports little, so each worker imports pyarrow, pandas and this package by itself: a second
of processor time each, before the first batch. Spark keeps it so because a process must not fork while other
threads hold locks. Nothing imported here leaves such a thread: those of Arrow's memory pool and of OpenBLAS
handle a fork, and thread pools start when they are first used, in the worker.

The setting is `spark.python.daemon.module`; `sessions.py` sets it.

A worker tells Python at the start of every task that files may have changed, and Python then reads the
directories of all archives again that it has ever looked into. Spark has its own jar on the path of workers,
with thousands of entries: a tenth of a second of processor time for each task. So what Python knows of
archives is dropped when the modules are there (`drop_archives`); it looks again if it needs another one.
"""

from __future__ import annotations

import sys
from importlib import import_module
from zipimport import zipimporter

__all__ = ["PRELOADED", "drop_archives"]

PRELOADED = (
    "pandas",
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "tocsin.compiled.backend",
    "tocsin.spark.hosting.client",
    "tocsin.spark.hosting.engines",
    "tocsin.spark.sinks",
    "tocsin.spark.stages.deliver",
    "tocsin.spark.stages.processors",
    "tocsin.spark.stages.route",
)


def drop_archives() -> None:
    """Drop the cached directories of archives, which each task would read again. Modules stay."""
    known = sys.path_importer_cache
    for path in [path for path, finder in known.items() if isinstance(finder, zipimporter)]:
        del known[path]


if __name__ == "__main__":
    from pyspark.daemon import manager

    for name in PRELOADED:
        import_module(name)
    drop_archives()
    manager()

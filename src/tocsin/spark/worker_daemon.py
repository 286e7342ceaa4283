"""Spark's Python daemon for a pipeline on this machine: it imports what workers need before it forks them.

    JVM ─ python -m tocsin.spark.worker_daemon ─ fork ─► worker, worker, ...

Spark's own daemon imports little, so each worker imports pyarrow, pandas and this package by itself: a second
of processor time each, before the first batch. Spark keeps it so because a process must not fork while other
threads hold locks. Nothing imported here leaves such a thread: those of Arrow's memory pool and of OpenBLAS
handle a fork, and thread pools start when they are first used, in the worker.

The setting is `spark.python.daemon.module`; `sessions.py` sets it.
"""

from __future__ import annotations

from importlib import import_module

__all__ = ["PRELOADED"]

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

if __name__ == "__main__":
    from pyspark.daemon import manager

    for name in PRELOADED:
        import_module(name)
    manager()

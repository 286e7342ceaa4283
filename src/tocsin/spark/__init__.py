"""Tocsin on Spark: the same engine in the shards of a streaming query.

- `match` puts the subscriptions that match onto every event of a DataFrame, batch or streaming;
- `Pipeline` keeps tables as durable state and emits the deltas of every kind of subscription;
- `session` starts a Spark session with the settings these need;
- `versions` is how a set of subscriptions lies on disk. It needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.spark.frames import match
    from tocsin.spark.pipeline import Pipeline
    from tocsin.spark.sessions import session
    from tocsin.spark.sinks.sinks import Memory
    from tocsin.spark.versions.placement import Layout
    from tocsin.spark.versions.versions import Versions

__all__ = ["Layout", "Memory", "Pipeline", "Versions", "match", "session"]

_HOMES = {
    "Layout": "versions.placement",
    "Memory": "sinks.sinks",
    "Pipeline": "pipeline",
    "Versions": "versions.versions",
    "match": "frames",
    "session": "sessions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tocsin"):
            raise
        raise ImportError(
            f"tocsin.spark needs {error.name}; install it: pip install 'tocsin[spark]'"
        ) from error

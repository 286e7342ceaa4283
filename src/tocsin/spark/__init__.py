"""Tocsin on Spark: the same engine in the shards of a streaming query.

- `match` adds the matching subscriptions to every event of a DataFrame, batch or streaming;
- `deltas` turns a stream of changes into the deltas of every kind of subscription, a streaming DataFrame;
- `Pipeline` does the same with sinks of its own, and keeps tables as durable state;
- `MessageReader` keeps contents from a pipeline's messages, `serve_sink` serves them to brokers and clients;
  both read them from a folder or a `Topic`, and none needs Spark;
- `session` starts a Spark session with the settings these need;
- `Versions` are sets of subscriptions on disk, and need no Spark.

A micro-batch of a pipeline passes `stages/` in order: route, table shards, query shards, deliver. Shards run
in processes of their own (`hosting/`), on a version of the subscriptions (`versions/`), and end in `sinks/`.
`sharding.py` decides which shard has what. `frames.py`, `matcher.py` and `sharded_match.py` are behind
`match`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.spark.delta_frame import deltas
    from tocsin.spark.frames import match
    from tocsin.spark.messages import MessageReader
    from tocsin.spark.pipeline import Pipeline
    from tocsin.spark.serving import serve_sink
    from tocsin.spark.sessions import session
    from tocsin.spark.sinks import MemorySink
    from tocsin.spark.topic import Topic
    from tocsin.spark.versions.batch import Layout
    from tocsin.spark.versions.store import Versions

__all__ = [
    "Layout",
    "MemorySink",
    "MessageReader",
    "Pipeline",
    "Topic",
    "Versions",
    "deltas",
    "match",
    "serve_sink",
    "session",
]

_MODULES = {
    "Layout": "versions.batch",
    "MemorySink": "sinks",
    "MessageReader": "messages",
    "Pipeline": "pipeline",
    "Topic": "topic",
    "Versions": "versions.store",
    "deltas": "delta_frame",
    "match": "frames",
    "serve_sink": "serving",
    "session": "sessions",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("tocsin"):
            raise
        raise ImportError(
            f"tocsin.spark needs {error.name}; install it: pip install 'tocsin[spark]'"
        ) from error

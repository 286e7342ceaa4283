"""Rehearsals of filters that come late: a few beside many stay in the mutable segment."""

from __future__ import annotations

import pyarrow as pa

from tocsin.engine import Engine

__all__ = ["rehearse_late_filters"]


def rehearse_late_filters() -> None:
    """Single events and batches while a mutable segment grows, and events as a column of maps."""
    engine = Engine()
    engine.execute("CREATE STREAM hits")
    engine.subscribe_texts(
        [f"SELECT * FROM hits WHERE ms BETWEEN {n} AND {n + 9} AND page = 'p{n % 50}'" for n in range(5000)]
    )
    engine.apply("hits", [{"page": f"p{n % 50}", "ms": n} for n in range(3000)])
    for round in range(2):
        late = engine.subscribe_texts(
            [
                f"SELECT * FROM hits WHERE ms > {n} AND NOT page = 'p{n}' AND load > {round}"
                for n in range(100)
            ]
        )
        engine.apply("hits", [{"page": "p1", "ms": 5}, {"page": "p2", "ms": 7, "load": 0.5}])
        engine.publish("hits", {"page": "p1", "ms": 5, "load": 7})
        engine.unsubscribe(int(late[0]))
        engine.publish("hits", {"page": "p1", "ms": 5, "load": 7})
    maps = pa.array([[("ms", 5.0), ("load", 1.0)]], pa.map_(pa.string(), pa.float64()))
    engine.apply("hits", pa.table({"attributes": maps}))

"""What an engine keeps beside rows of tables and subscriptions, as Arrow tables by name.

    windows/<table>     the events of a window                                    (`store/window_set.py`)
    <room>/...          what a room keeps: kept rows of joins of streams, ...     (`Room.saved`)

An engine on disk has them (`Engine.save`), and so has the state of a shard (`spark/stages/limited_shard.py`).
Whoever has rows, subscriptions and parts has the engine: it goes on as the other one would have.

Small facts are in the metadata of a table's schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tocsin.store.database import Database
from tocsin.subscriptions.roster import Roster

__all__ = ["parts_of", "restoring"]

_WINDOWS = "windows/"


def parts_of(database: Database, roster: Roster) -> dict[str, Any]:
    """The parts, by name."""
    windows = {f"{_WINDOWS}{name}": table for name, table in database.windows.saved().items()}
    return windows | roster.saved()


@contextmanager
def restoring(database: Database, roster: Roster, parts: Mapping[str, Any]) -> Iterator[None]:
    """Around registering the subscriptions that there were: they go on with the parts."""
    database.windows.load(_of(parts, _WINDOWS))
    try:
        with roster.restoring():
            yield
        for name in roster.rooms:
            roster.restore(name, _of(parts, f"{name}/"))
    finally:
        database.windows.forget_saved()


def _of(parts: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name[len(prefix) :]: table for name, table in parts.items() if name.startswith(prefix)}

"""The answer of a query at a client: an engine over the rows that the client holds.

Messages bring the rows that ranges select and that have a partner; the rest of the query, further conditions,
conditions between tables, the SELECT list, is evaluated here. A row that both sides of a self-join hold is
there once.

>>> rows = [(0, 5, b'{"k":1,"a":3}')], [(0, 5, b'{"k":1,"c":4}')]
>>> tables = "; ".join(f"CREATE TABLE {t} (k BIGINT, {x} BIGINT, PRIMARY KEY (k))" for t, x in ("ra", "sc"))
>>> snapshot = Snapshot(1, 10, True, rows, tables, ("r", "s"))
>>> answer = LocalAnswer("SELECT a, c FROM r JOIN s USING (k)", snapshot)
>>> answer.content()
[{'a': 3, 'c': 4}]
>>> answer.change(1, 0, None)
>>> [(delta.sign, delta.row) for delta in answer.flush()]
[(-1, {'a': 3, 'c': 4})]
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import orjson

from tocsin.engine import Engine
from tocsin.model.delta import Deltas
from tocsin.network.follower import Snapshot

__all__ = ["LocalAnswer"]

_Row = tuple[str, int]  # of a table, by number


class LocalAnswer:
    """One query over rows that come and go."""

    def __init__(self, sql: str, snapshot: Snapshot) -> None:
        self._engine = Engine()
        self._engine.execute(snapshot.definitions)
        self._subscription = self._engine.subscribe(sql)
        self._tables = snapshot.tables
        self._keys = {name: self._engine.schema(name).key for name in set(snapshot.tables)}
        self._holders: dict[_Row, set[int]] = {}  # by row: the sides that hold it
        self._known: dict[_Row, bytes] = {}  # rows in the engine: their keys
        self._changed: dict[_Row, bytes | None] = {}
        self.start(snapshot)

    def start(self, snapshot: Snapshot) -> Deltas:
        """Hold what a snapshot says instead; how the answer changes."""
        self._holders.clear()
        self._changed = dict.fromkeys(self._known, None)
        for side, rows in enumerate(snapshot.rows):
            for row, _, body in rows:
                self.change(side, row, body)
        return self.flush()

    def change(self, side: int, row: int, body: Hashable | None) -> None:
        """A side holds a row, or does not hold it any more (None). Seen by `content` after `flush`."""
        at = self._tables[side], row
        holders = self._holders.setdefault(at, set())
        if body is not None:
            assert isinstance(body, bytes)
            holders.add(side)
            self._changed[at] = body
            return
        holders.discard(side)
        if not holders:
            del self._holders[at]
            self._changed[at] = None

    def flush(self) -> Deltas:
        """Apply the changes; how the answer changes."""
        if not self._changed:
            return Deltas.none()
        lines: dict[str, list[bytes]] = {}
        keys = {at: self._key(at[0], body) for at, body in self._changed.items() if body is not None}
        for at in self._changed:
            if at in self._known and self._known[at] != keys.get(at):
                # before others come: the key may be that of another row now
                lines.setdefault(at[0], []).append(self._known.pop(at) + b',"_op":"delete"}')
        for at, body in self._changed.items():
            if body is not None:
                self._known[at] = keys[at]
                lines.setdefault(at[0], []).append(body[:-1] + b',"_op":"upsert"}')
        self._changed = {}
        if not lines:
            return Deltas.none()
        return self._engine.apply_all({table: b"\n".join(all) for table, all in lines.items()}, net=True)

    def _key(self, table: str, body: bytes) -> bytes:
        """The key of a row as the beginning of a JSON object."""
        row = orjson.loads(body)
        return orjson.dumps({name: row[name] for name in self._keys[table]})[:-1]

    def content(self) -> list[dict[str, Any]]:
        """The rows of the answer."""
        return self._engine.content(self._subscription)

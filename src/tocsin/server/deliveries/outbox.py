"""The outbox: deliveries, their states and their messages in one SQLite file, synced at each commit.

facts        position: blocks of the log up to it are planned
deliveries   name, definition, state of the flow, counters
messages     waiting, in order; when each is due, how often it was tried
dead         given up, with the reason
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

import msgspec

from tocsin.delivery.repeats import FlowState
from tocsin.delivery.targets import Outgoing
from tocsin.errors import TocsinError
from tocsin.server.deliveries.definitions import DeliveryRule

__all__ = ["Outbox", "PlannedMessages", "Stored", "WaitingMessage"]

MOST_WAITING = 100_000  # messages of a delivery; more are dead letters at once
MOST_DEAD = 100_000  # of a delivery; older ones are dropped
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (
    name TEXT PRIMARY KEY, definition BLOB NOT NULL, state BLOB NOT NULL, start INTEGER NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0, delivered INTEGER NOT NULL DEFAULT 0, last REAL, error TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT, delivery TEXT NOT NULL, lane TEXT NOT NULL, id TEXT NOT NULL,
    body BLOB NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL, due REAL NOT NULL, tried INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS waiting ON messages (delivery, lane, number);
CREATE TABLE IF NOT EXISTS dead (
    number INTEGER PRIMARY KEY AUTOINCREMENT, delivery TEXT NOT NULL, lane TEXT NOT NULL, id TEXT NOT NULL,
    body BLOB NOT NULL, title TEXT NOT NULL, text TEXT NOT NULL, reason TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS given_up ON dead (delivery, number);
"""


class Stored(NamedTuple):
    """A delivery as it is stored; blocks up to `start` are not for it."""

    definition: DeliveryRule
    state: FlowState
    start: int
    is_paused: bool


class WaitingMessage(NamedTuple):
    """The first message of a lane."""

    number: int
    message: Outgoing
    due: float
    tried: int


class PlannedMessages(NamedTuple):
    """What the planner made of some blocks for one delivery."""

    name: str
    state: FlowState
    messages: list[Outgoing]


class Outbox:
    """Deliveries on disk. Any thread may use it."""

    def __init__(self, path: Path) -> None:
        self._lock = RLock()
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 10000"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            hint = "restore it from a backup, or move it away: deliveries must then be defined again"
            raise TocsinError(f"{path} cannot be read: {error}", hint=hint) from None

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # -- deliveries --------------------------------------------------------------------------------

    def stored(self) -> dict[str, Stored]:
        """All deliveries."""
        rows = self._rows("SELECT name, definition, state, start, paused FROM deliveries ORDER BY name")
        return {
            name: Stored(_DEFINITION.decode(definition), _STATE.decode(state), start, bool(paused))
            for name, definition, state, start, paused in rows
        }

    def add(self, delivery: DeliveryRule, state: FlowState, start: int) -> None:
        """Store a new delivery, or another definition of one: it keeps its messages then."""
        with self._transaction():
            self._db.execute(
                "INSERT INTO deliveries (name, definition, state, start) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, state = excluded.state,"
                " start = excluded.start",
                (delivery.name, _ENCODER.encode(delivery), _ENCODER.encode(state), start),
            )
            self._db.execute("INSERT OR IGNORE INTO facts VALUES ('position', ?)", (str(start),))

    def remove(self, name: str) -> None:
        """Drop a delivery with its messages and dead letters."""
        with self._transaction():
            for table, column in (("deliveries", "name"), ("messages", "delivery"), ("dead", "delivery")):
                self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (name,))

    def pause(self, name: str, paused: bool) -> None:
        """Stop sending what is planned, or go on."""
        with self._transaction():
            self._db.execute("UPDATE deliveries SET paused = ? WHERE name = ?", (paused, name))

    def counters(self, name: str) -> dict[str, Any]:
        """How a delivery is doing."""
        (row,) = self._rows("SELECT delivered, last, error, paused FROM deliveries WHERE name = ?", name)
        waiting, retried = self._rows(
            "SELECT count(*), coalesce(max(tried), 0) FROM messages WHERE delivery = ?", name
        )[0]
        (dead,) = self._rows("SELECT count(*) FROM dead WHERE delivery = ?", name)[0]
        return {
            "state": "paused" if row[3] else "retrying" if retried else "active", "delivered": row[0],
            "waiting": waiting, "dead": dead, "last_delivered": row[1], "last_error": row[2],
        }  # fmt: skip

    # -- planning ----------------------------------------------------------------------------------

    @property
    def position(self) -> int | None:
        """Blocks up to it are planned; None before the first delivery."""
        rows = self._rows("SELECT value FROM facts WHERE name = 'position'")
        return int(rows[0][0]) if rows else None

    def plan(self, position: int, planned: Sequence[PlannedMessages], now: float) -> None:
        """Store states, messages and the position: all or nothing."""
        with self._transaction():
            for name, state, messages in planned:
                done = self._db.execute(
                    "UPDATE deliveries SET state = ? WHERE name = ?", (_ENCODER.encode(state), name)
                )
                if done.rowcount:  # it may have been removed meanwhile
                    self._enter(name, messages, now)
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('position', ?)", (str(position),))

    def _enter(self, name: str, messages: Sequence[Outgoing], now: float) -> None:
        (waiting,) = self._db.execute("SELECT count(*) FROM messages WHERE delivery = ?", (name,)).fetchone()
        free = max(0, MOST_WAITING - waiting)
        self._db.executemany(
            "INSERT INTO messages (delivery, lane, id, body, title, text, due, tried)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
            [(name, m.lane, m.id, m.body, m.title, m.text, now) for m in messages[:free]],
        )
        reason = f"{MOST_WAITING} messages wait before it"
        self._bury(name, [(m, reason) for m in messages[free:]], now)

    # -- sending -----------------------------------------------------------------------------------

    def lanes(self) -> list[tuple[str, str]]:
        """The lanes that have messages: delivery and lane."""
        return self._rows("SELECT DISTINCT delivery, lane FROM messages")

    def first(self, name: str, lane: str) -> WaitingMessage | None:
        """The message that a lane sends next."""
        rows = self._rows(
            "SELECT number, id, lane, body, title, text, due, tried FROM messages"
            " WHERE delivery = ? AND lane = ? ORDER BY number LIMIT 1", name, lane,
        )  # fmt: skip
        return WaitingMessage(rows[0][0], Outgoing(*rows[0][1:6]), *rows[0][6:]) if rows else None

    def delivered(self, name: str, number: int, now: float) -> None:
        """A message was delivered."""
        with self._transaction():
            self._db.execute("DELETE FROM messages WHERE number = ?", (number,))
            self._db.execute(
                "UPDATE deliveries SET delivered = delivered + 1, last = ?, error = NULL WHERE name = ?",
                (now, name),
            )

    def retry(self, name: str, number: int, due: float, reason: str) -> None:
        """A message is tried again later."""
        with self._transaction():
            self._db.execute("UPDATE messages SET due = ?, tried = tried + 1 WHERE number = ?", (due, number))
            self._db.execute("UPDATE deliveries SET error = ? WHERE name = ?", (reason, name))

    def give_up(self, name: str, waiting: WaitingMessage, reason: str, now: float) -> None:
        """A message becomes a dead letter."""
        with self._transaction():
            self._db.execute("DELETE FROM messages WHERE number = ?", (waiting.number,))
            self._bury(name, [(waiting.message, reason)], now)
            self._db.execute("UPDATE deliveries SET error = ? WHERE name = ?", (reason, name))

    def dead_letters(self, name: str, after: int, limit: int) -> list[dict[str, Any]]:
        """Dead letters, oldest first."""
        rows = self._rows(
            "SELECT number, id, lane, reason, at, body FROM dead WHERE delivery = ? AND number > ?"
            " ORDER BY number LIMIT ?", name, after, limit,
        )  # fmt: skip
        return [
            {
                "number": number,
                "id": id,
                "subscriber": lane,
                "reason": reason,
                "at": at,
                "message": msgspec.Raw(body),
            }
            for number, id, lane, reason, at, body in rows
        ]

    def redeliver(self, name: str, numbers: Iterable[int] | None, now: float) -> int:
        """Dead letters (all, if None) become messages again, with their ids; returns how many."""
        with self._transaction():
            wanted = self._rows("SELECT number FROM dead WHERE delivery = ? ORDER BY number", name)
            chosen = (
                [n for (n,) in wanted] if numbers is None else sorted({n for (n,) in wanted} & set(numbers))
            )
            for number in chosen:
                self._db.execute(
                    "INSERT INTO messages (delivery, lane, id, body, title, text, due, tried)"
                    " SELECT delivery, lane, id, body, title, text, ?, 0 FROM dead WHERE number = ?",
                    (now, number),
                )
                self._db.execute("DELETE FROM dead WHERE number = ?", (number,))
        return len(chosen)

    def _bury(self, name: str, letters: Sequence[tuple[Outgoing, str]], now: float) -> None:
        if not letters:
            return
        self._db.executemany(
            "INSERT INTO dead (delivery, lane, id, body, title, text, reason, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(name, m.lane, m.id, m.body, m.title, m.text, reason, now) for m, reason in letters],
        )
        self._db.execute(
            "DELETE FROM dead WHERE delivery = ?1 AND number <= (SELECT number FROM dead WHERE delivery = ?1"
            " ORDER BY number DESC LIMIT 1 OFFSET ?2)",
            (name, MOST_DEAD),
        )

    # -- inside ------------------------------------------------------------------------------------

    def _rows(self, sql: str, *values: Any) -> list[Any]:
        with self._lock, closing(self._db.execute(sql, values)) as cursor:
            return cursor.fetchall()

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db, self._lock)


class _Transaction:
    """A transaction under the lock: committed, and synced, if nothing is raised."""

    def __init__(self, db: sqlite3.Connection, lock: Any) -> None:
        self._db, self._lock = db, lock

    def __enter__(self) -> None:
        self._lock.acquire()
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            self._db.execute("COMMIT" if kind is None else "ROLLBACK")
        finally:
            self._lock.release()


_ENCODER = msgspec.msgpack.Encoder()
_DEFINITION = msgspec.msgpack.Decoder(DeliveryRule)
_STATE = msgspec.msgpack.Decoder(FlowState)

"""The log: commands and deltas on disk, in one SQLite file in WAL mode, synced at each commit.

    commands   position, time, command, checksum          until a snapshot covers them
    blocks     position, deltas, checksum                 as long as followers may resume from them
    keys       Idempotency-Key ─► the answer              for a day
    cursors    how far a reader of the deltas has come    `Cursor`
    facts      epoch, format, ...

A commit is one transaction: all commands of a group, their deltas and keys. The checksum of a command
continues that of the one before, so a lost or changed record is found. The epoch is drawn when a log is
created: a resume token (epoch, position) of another log is recognized.
"""

from __future__ import annotations

import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from time import time
from typing import NamedTuple

from tocsin.errors import TocsinError
from tocsin.server.blocks import Block
from tocsin.server.wal import torn_bytes

__all__ = ["Cursor", "Key", "Log", "LogError", "Record"]

FORMAT = "2"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS commands (
    position INTEGER PRIMARY KEY, at INTEGER NOT NULL, body BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS blocks (
    position INTEGER PRIMARY KEY, body BLOB NOT NULL, bytes INTEGER NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS keys (
    name TEXT PRIMARY KEY, digest BLOB NOT NULL, answer BLOB NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursors (
    name TEXT PRIMARY KEY, position INTEGER NOT NULL, state BLOB NOT NULL) WITHOUT ROWID;
"""
_KEYS_FOR = 86400  # seconds
_DROP_AT_ONCE = 5000  # rows
_CHECKPOINT_PAGES = 4000  # of the write-ahead log, 16 MB


class LogError(TocsinError):
    """A log that cannot be read or written."""


class Record(NamedTuple):
    """A command in the log."""

    position: int
    at: int  # microseconds since 1970
    body: bytes


class Key(NamedTuple):
    """An Idempotency-Key: the digest of its request and the answer that it was given."""

    name: str
    digest: bytes
    answer: bytes


class Log:
    """Durable commands, deltas, keys and cursors of one engine.

    One thread commits; any thread may read. `position` is the last one committed, `oldest` the first
    position of which the deltas are still there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = RLock()  # of the connection that writes
        try:
            self.torn = torn_bytes(Path(f"{path}-wal"))
            self._writer = self._connect()
            self._writer.executescript(_SCHEMA)
            self._reader = self._connect()
            self._reading = RLock()
            self.epoch = self._fact("epoch", secrets.token_hex(4))
            if (found := self._fact("format", FORMAT)) != FORMAT:
                raise LogError(
                    f"{path} has format {found}; this version reads {FORMAT}",
                    hint="open it with the version that wrote it",
                )
            self.base = base = int(self._fact("base", "0"))  # the position before the first record
            last = self._writer.execute("SELECT max(position) FROM commands").fetchone()[0]
            self.position: int = max(base, last or 0)
            self._checksum = self._last_checksum()
            self.oldest = int(self._fact("oldest", "1"))
            sizes = "SELECT total(length(body)) FROM commands", "SELECT total(bytes) FROM blocks"
            self.command_bytes, self.block_bytes = (
                int(self._writer.execute(text).fetchone()[0]) for text in sizes
            )
        except (sqlite3.DatabaseError, ValueError) as error:
            raise self._corrupt(str(error)) from None

    def close(self) -> None:
        with self._lock, self._reading:
            self._reader.close()
            self._writer.close()

    # -- writing -----------------------------------------------------------------------------------

    def commit(self, records: Iterable[Record], blocks: Iterable[Block], keys: Iterable[Key] = ()) -> None:
        """Write a group, all or nothing; it is on disk when this returns."""
        checksum, rows, last = self._checksum, [], self.position
        for record in records:
            checksum = zlib.crc32(record.body, checksum ^ record.position & 0xFFFFFFFF)
            rows.append((*record, checksum))
            last = record.position
        stored = []
        for block in blocks:
            body = block.encode()
            stored.append((block.position, body, len(body), zlib.crc32(body)))
        now = time()
        with self._lock, self._transaction():
            self._writer.executemany("INSERT INTO commands VALUES (?, ?, ?, ?)", rows)
            if stored:
                self._writer.executemany("INSERT INTO blocks VALUES (?, ?, ?, ?)", stored)
            self._writer.executemany(
                "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)", [(*key, now) for key in keys]
            )
        self._checksum, self.position = checksum, last
        self.command_bytes += sum(len(row[2]) for row in rows)
        self.block_bytes += sum(row[2] for row in stored)

    def drop_commands(self, to: int) -> None:
        """Drop commands that a snapshot covers, some at a time so that commits go on meanwhile."""
        while True:
            with self._lock, self._transaction():
                last = self._writer.execute(
                    "SELECT position, checksum FROM commands WHERE position <= ?"
                    " ORDER BY position LIMIT 1 OFFSET ?", (to, _DROP_AT_ONCE),
                ).fetchone() or self._writer.execute(
                    "SELECT position, checksum FROM commands WHERE position = ?", (to,)
                ).fetchone()  # fmt: skip
                if last is None:
                    return
                self._set_fact("base", str(last[0]))
                self._set_fact("checksum", str(last[1]))
                self._writer.execute("DELETE FROM commands WHERE position <= ?", (last[0],))
                self._writer.execute("DELETE FROM keys WHERE at < ?", (time() - _KEYS_FOR,))
            with self._reading:
                left = self._reader.execute("SELECT total(length(body)) FROM commands").fetchone()[0]
            self.base, self.command_bytes = last[0], int(left)

    def trim_blocks(self, most: int) -> int:
        """Drop the oldest deltas beyond so many bytes, but none that a cursor has before it."""
        while self.block_bytes > most:
            with self._lock, self._transaction():
                bound = self._writer.execute("SELECT min(position) FROM cursors").fetchone()[0]
                rows = self._writer.execute(
                    "SELECT position, bytes FROM blocks WHERE position <= ? ORDER BY position LIMIT ?",
                    (self.position - 1 if bound is None else bound, _DROP_AT_ONCE),
                ).fetchall()
                size, last = 0, None
                for position, count in rows:
                    if self.block_bytes - size <= most:
                        break
                    size, last = size + count, position
                if last is None:
                    break
                self._writer.execute("DELETE FROM blocks WHERE position <= ?", (last,))
                self._set_fact("oldest", str(last + 1))
                self.oldest = last + 1  # before the commit: who misses a block sees why
            self.block_bytes -= size
        return self.oldest

    # -- reading -----------------------------------------------------------------------------------

    def records(self, after: int) -> Iterator[Record]:
        """The commands after a position, verified."""
        base, checksum = int(self._fact("base", "0")), int(self._fact("checksum", "0"))
        expected = base + 1
        try:
            found = self._writer.execute(
                "SELECT position, at, body, checksum FROM commands WHERE position > ? ORDER BY position",
                (base,),
            )
            for position, at, body, written in found:
                checksum = zlib.crc32(body, checksum ^ position & 0xFFFFFFFF)
                if position != expected or checksum != written:
                    raise self._corrupt(f"record {expected} is missing or was changed")
                expected += 1
                if position > after:
                    yield Record(position, at, body)
        except sqlite3.DatabaseError as error:
            raise self._corrupt(str(error)) from None

    def blocks(self, after: int, limit: int = 256) -> list[Block]:
        """Blocks after a position, at most so many."""
        try:
            with self._reading:
                rows = self._reader.execute(
                    "SELECT position, body, checksum FROM blocks"
                    " WHERE position > ? ORDER BY position LIMIT ?",
                    (after, limit),
                ).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._corrupt(str(error)) from None
        for position, body, checksum in rows:
            if zlib.crc32(body) != checksum:
                raise self._corrupt(f"the deltas of position {position} were changed")
        return [Block.decode(body) for _, body, _ in rows]

    def sizes(self) -> dict[str, int]:
        """Positions and bytes, for statistics."""
        return {
            "position": self.position, "snapshot": self.base, "oldest_deltas": self.oldest,
            "command_bytes": self.command_bytes, "delta_bytes": self.block_bytes,
        }  # fmt: skip

    def key(self, name: str) -> Key | None:
        """What an Idempotency-Key was answered."""
        with self._reading:
            row = self._reader.execute(
                "SELECT name, digest, answer FROM keys WHERE name = ? AND at > ?", (name, time() - _KEYS_FOR)
            ).fetchone()
        return None if row is None else Key(*row)

    def cursor(self, name: str) -> Cursor:
        """The durable cursor of a reader of the deltas; a new one begins at the end."""
        return Cursor(self, name)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the file, without waiting for readers."""
        with self._reading:
            self._reader.execute("PRAGMA wal_checkpoint(PASSIVE)")

    # -- inside ------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All inside, or nothing; for who has the lock."""
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise

    def _connect(self) -> sqlite3.Connection:
        made = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("PRAGMA synchronous = FULL")
        made.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        made.execute("PRAGMA busy_timeout = 10000")
        return made

    def _fact(self, name: str, otherwise: str) -> str:
        with self._lock:
            self._writer.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (name, otherwise))
            return str(self._writer.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()[0])

    def _set_fact(self, name: str, value: str) -> None:
        self._writer.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def _last_checksum(self) -> int:
        row = self._writer.execute("SELECT checksum FROM commands ORDER BY position DESC LIMIT 1").fetchone()
        return int(self._fact("checksum", "0")) if row is None else int(row[0])

    def _corrupt(self, why: str) -> LogError:
        return LogError(
            f"the log {self.path} is corrupt: {why}",
            hint="restore the folder from a backup; nothing was changed",
        )


class Cursor:
    """How far a reader of the deltas has come, and its state, in the log's own file.

    The seam for deliveries: read `Log.blocks(cursor.position)`, deliver, `advance`. Blocks after the position
    of a cursor are kept, whatever else is dropped. `state` is the reader's own (retries that are under way).
    """

    def __init__(self, log: Log, name: str) -> None:
        self.name, self._log = name, log
        with log._lock:
            log._writer.execute("INSERT OR IGNORE INTO cursors VALUES (?, ?, ?)", (name, log.position, b""))
            row = log._writer.execute(
                "SELECT position, state FROM cursors WHERE name = ?", (name,)
            ).fetchone()
        self.position: int = row[0]
        self.state: bytes = row[1]

    def advance(self, position: int, state: bytes = b"") -> None:
        """All up to the position is done; on disk when this returns."""
        with self._log._lock:
            self._log._writer.execute(
                "UPDATE cursors SET position = ?, state = ? WHERE name = ?", (position, state, self.name)
            )
        self.position, self.state = position, state

    def remove(self) -> None:
        """The reader ends: nothing is kept for it any more."""
        with self._log._lock:
            self._log._writer.execute("DELETE FROM cursors WHERE name = ?", (self.name,))

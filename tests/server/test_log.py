"""The log on disk: what a crash has torn is cut with a message, what is damaged is refused by name."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import struct
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from tocsin.server.commands import ApplyChanges, BulkSubscribe, Define, Subscribe, arrow_bytes
from tocsin.server.core import Core
from tocsin.server.intake import rows_table
from tocsin.server.keeper import Settings
from tocsin.server.log import LogError
from tocsin.server.wal import _checksum

MANY = Settings(snapshot_at_close=10**9)


def filled(folder: Path) -> int:
    """A log with some commands; it is copied as a killed process leaves it, beside its write-ahead log."""
    with Core(folder / "alive", settings=MANY) as core:
        core.call(Define("CREATE STREAM hits"))
        core.call(Subscribe(0, "SELECT n FROM hits WHERE n >= 0"))
        for n in range(20):
            core.call(ApplyChanges("hits", "object", b'{"n": %d}' % n))
        shutil.copytree(folder / "alive", folder / "dead")
        return core.position


def test_a_torn_tail_is_cut_with_a_message(tmp_path, caplog):
    last = filled(tmp_path)
    wal = tmp_path / "dead" / "log.sqlite-wal"
    whole = wal.read_bytes()
    for cut in (1, 100, 4000):
        shutil.rmtree(tmp_path / "torn", ignore_errors=True)
        shutil.copytree(tmp_path / "dead", tmp_path / "torn")
        (tmp_path / "torn" / "log.sqlite-shm").unlink(missing_ok=True)
        (tmp_path / "torn" / "log.sqlite-wal").write_bytes(whole[:-cut])
        with caplog.at_level(logging.WARNING), Core(tmp_path / "torn", settings=MANY) as core:
            assert core.position == last - 1
            assert core.call(ApplyChanges("hits", "object", b'{"n": 77}')).position == last
        assert "incomplete commit" in caplog.text and str(tmp_path / "torn") in caplog.text
        caplog.clear()


def test_a_damaged_write_ahead_log_is_refused_and_not_touched(tmp_path):
    filled(tmp_path)
    (tmp_path / "dead" / "log.sqlite-shm").unlink(missing_ok=True)
    wal, draw = tmp_path / "dead" / "log.sqlite-wal", Random(1)
    whole = wal.read_bytes()
    for _ in range(20):
        at = draw.randrange(32 + 4096, len(whole) // 2)
        damaged = whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]
        wal.write_bytes(damaged)
        with pytest.raises(LogError, match=r"log\.sqlite is corrupt") as found:
            Core(tmp_path / "dead", settings=MANY).close()
        assert "backup" in str(found.value.hint) and wal.read_bytes() == damaged


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE commands SET body = x'00' WHERE position = 7", "record 7"),
        ("DELETE FROM commands WHERE position = 7", "record 7"),
        ("UPDATE blocks SET body = CAST(x'00' || body AS BLOB) WHERE position = 9", "position 9"),
        ("UPDATE facts SET value = '99' WHERE name = 'format'", "format 99"),
    ],
)
def test_a_changed_record_is_refused_by_name(tmp_path, statement, what):
    filled(tmp_path)
    with sqlite3.connect(tmp_path / "dead" / "log.sqlite") as database:
        database.execute(statement)
    database.close()
    with pytest.raises(LogError, match=what):
        Core(tmp_path / "dead", settings=MANY).close()


def test_a_damaged_snapshot_is_refused_by_name(tmp_path):
    with Core(tmp_path / "data", settings=MANY) as core:
        core.call(Define("CREATE STREAM hits"))
        table = rows_table([{"id": id, "n": id} for id in range(1, 101)])
        core.call(BulkSubscribe("template", "SELECT * FROM hits WHERE n > :n", arrow_bytes(table)))
        core.snapshot()
    manifest = tmp_path / "data" / "snapshot" / "manifest"
    data = manifest.read_bytes()
    manifest.write_bytes(data[:50] + b"?" + data[51:])
    with pytest.raises(LogError, match="manifest is corrupt"):
        Core(tmp_path / "data", settings=MANY).close()
    manifest.unlink()
    with pytest.raises(LogError, match="its snapshot is missing"):
        Core(tmp_path / "data", settings=MANY).close()


def test_windows_go_on_without_a_change(tmp_path):
    """The server's timer: what is due by the clock is emitted, whatever else happens."""
    now = [datetime(2024, 5, 1, 10, tzinfo=UTC)]
    with Core(tmp_path / "data", clock=lambda: now[0], settings=MANY) as core:
        core.call(Define("CREATE STREAM hits (n BIGINT)"))
        core.call(Subscribe(1, "SELECT n FROM hits WITH (window = '10 minutes')"))
        core.call(ApplyChanges("hits", "object", b'{"n": 1}'))
        position = core.position
        now[0] += timedelta(minutes=11)
        end = datetime.now(UTC) + timedelta(seconds=20)
        while core.position == position and datetime.now(UTC) < end:
            core.read(lambda engine: len(engine.schemas()))  # reads go on without a pause
        block = core.log.blocks(position)[0]
        assert block.cause == "time" and block.sign.tolist() == [-1]


def test_the_checksum_of_a_write_ahead_log_is_that_of_the_plain_loop():
    data, draw = Random(5).randbytes(4104), Random(6)
    for order in (">", "<"):
        s1, s2 = start = draw.randrange(2**32), draw.randrange(2**32)
        for at in range(0, len(data), 8):
            first, second = struct.unpack(f"{order}2I", data[at : at + 8])
            s1 = (s1 + first + s2) % 2**32
            s2 = (s2 + second + s1) % 2**32
        assert _checksum(data, f"{order}u4", *start) == (s1, s2)


def test_a_snapshot_is_due_when_replaying_would_take_long(tmp_path):
    settings = Settings(snapshot_seconds=0.0, look_every=0.01)
    with Core(tmp_path / "data", settings=settings) as core:
        core.call(Define("CREATE TABLE t (k BIGINT, PRIMARY KEY (k))"))
        applied, end = 0, time.monotonic() + 30
        while not core.log.base:
            core.call(ApplyChanges("t", "object", b'{"k": %d}' % applied))
            applied += 1
            assert time.monotonic() < end
        assert core.applied_seconds > 0
    with Core(tmp_path / "data", settings=MANY) as core:
        assert len(core.read(lambda engine: engine.rows("t"))) == applied

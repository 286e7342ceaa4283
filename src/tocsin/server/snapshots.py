"""Snapshots: the state of an engine at a position, so that a restart replays only what came after.

    snapshot/segment-000001.arrow ...    subscriptions (`segments.py`); a file stays as long as it is used
    snapshot/table-000007-0.arrow ...    rows of tables, windows, what rooms keep, retained events
    snapshot/manifest                    position, definitions, names of files, checksum; replaced at once

`capture` runs between two commands and takes references and arrays; `write` runs beside the next commands.
The manifest is written under another name, synced and renamed, so a crash leaves the old snapshot or the new
one; files that no manifest names are removed. Commands up to its position are dropped from the log then.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.model.schema import Table
from tocsin.server.activity import Activity
from tocsin.server.apply import Applier
from tocsin.server.commands import Subscribe
from tocsin.server.log import LogError
from tocsin.server.segments import SegmentInfo
from tocsin.server.steps import reached
from tocsin.subscriptions.transfer import retained_table

__all__ = ["SnapshotManifest", "capture", "read_snapshot", "restore", "write"]

FORMAT = 1
_NAME = "manifest"


class SnapshotManifest(msgspec.Struct):
    """A manifest."""

    format: int
    epoch: str
    position: int
    at: int  # the engine's time, microseconds since 1970
    last_seq: int
    last_id: int
    definitions: list[str]
    tables: dict[str, str]  # name: file
    parts: dict[str, str]
    retained: dict[str, str]
    segments: list[SegmentInfo]
    records: list[dict[str, Any]]
    paused: list[Subscribe]
    activity: bytes


@dataclass
class Captured:
    """The state of an engine, with what is still to be written."""

    manifest: SnapshotManifest
    tables: Mapping[str, Any]
    parts: Mapping[str, Any]
    retained: Mapping[str, Any]
    new: list[tuple[str, Any]]  # segments that have no file yet


def capture(
    applier: Applier, activity: Activity, folder: Path, epoch: str, position: int, at: int
) -> Captured:
    """The state now, in the writer's thread."""
    engine, segments = applier.engine, applier.segments
    records = segments.seal(engine.records(segments.loose))
    segments.tidy(folder / "snapshot")
    new, infos = [], []
    for segment in segments.segments:
        if segment.file is None:
            segment.file = segments.next_file()
            new.append((segment.file, segment))
        infos.append(SegmentInfo(segment.file, segment.form, segment.of, segment.gone().tobytes()))
    tables = {s.name: engine.rows(s.name) for s in engine.schemas() if isinstance(s, Table)}
    manifest = SnapshotManifest(
        FORMAT, epoch, position, at, engine.last_seq, engine.last_id,
        [str(schema) for schema in engine.schemas()], {}, {}, {}, infos, records,
        list(applier.paused.values()), activity.encode(),
    )  # fmt: skip
    return Captured(manifest, tables, engine.parts(), engine.retained_batches(), new)


def write(captured: Captured, folder: Path) -> None:
    """Write what was captured; it is on disk, and the snapshot, when this returns."""
    target, manifest = folder / "snapshot", captured.manifest
    target.mkdir(exist_ok=True)
    reached("snapshot.begin")
    for file, segment in captured.new:
        _write_table(target / file, segment.table)
        reached("snapshot.file")
    groups: list[tuple[dict[str, str], Mapping[str, Any]]] = [
        (manifest.tables, captured.tables),
        (manifest.parts, captured.parts),
        (manifest.retained, {n: retained_table(b) for n, b in captured.retained.items()}),
    ]
    number = 0
    for names, tables in groups:
        for name, table in tables.items():
            names[name] = f"table-{manifest.position:012}-{number}.arrow"
            _write_table(target / names[name], table)
            reached("snapshot.file")
            number += 1
    body = msgspec.msgpack.encode(manifest)
    _write_bytes(target / "manifest.new", zlib.crc32(body).to_bytes(4, "big") + body)
    reached("snapshot.manifest")
    os.replace(target / "manifest.new", target / _NAME)
    _sync_folder(target)
    reached("snapshot.end")
    for _, segment in captured.new:
        segment.table = None
    used = {
        _NAME,
        *(info.file for info in manifest.segments),
        *(f for names, _ in groups for f in names.values()),
    }
    for old in target.iterdir():
        if old.name not in used:
            old.unlink()


def read_snapshot(folder: Path) -> SnapshotManifest | None:
    """The last snapshot, if there is one."""
    file = folder / "snapshot" / _NAME
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    if zlib.crc32(data[4:]) != int.from_bytes(data[:4], "big"):
        raise _corrupt(file, "its checksum is wrong")
    try:
        found = msgspec.msgpack.decode(data[4:], type=SnapshotManifest)
    except msgspec.DecodeError as error:
        raise _corrupt(file, str(error)) from None
    if found.format != FORMAT:
        raise LogError(f"{file} has format {found.format}; this version reads {FORMAT}")
    return found


def restore(snapshot: SnapshotManifest, folder: Path, applier: Applier) -> None:
    """Bring an empty engine to the state of a snapshot."""
    source, engine = folder / "snapshot", applier.engine
    try:
        for text in snapshot.definitions:
            engine.execute(text)
        for name, file in snapshot.retained.items():
            engine.restore_retained(name, _read_table(source / file))
        for name, file in snapshot.tables.items():
            if (rows := _read_table(source / file)).num_rows:
                engine.apply(name, rows)
        engine.last_seq = snapshot.last_seq
        _restore_subscriptions(snapshot, source, applier, engine)
    except (OSError, pa.ArrowException) as error:
        raise _corrupt(source, str(error)) from None
    engine.last_id = snapshot.last_id
    applier.paused = {one.id: one for one in snapshot.paused}


def _restore_subscriptions(
    snapshot: SnapshotManifest, source: Path, applier: Applier, engine: Engine
) -> None:
    parts = {name: _read_table(source / file) for name, file in snapshot.parts.items()}
    with engine.restoring(parts):
        applier.segments.restore(snapshot.segments, source, engine)
        engine.enter_records(snapshot.records)
    applier.segments.loose.update(dict.fromkeys(record["id"] for record in snapshot.records))


# -- files --------------------------------------------------------------------------------------------


def _write_table(file: Path, table: Any) -> None:
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    _sync(file)


def _read_table(file: Path) -> Any:
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source).read_all()


def _write_bytes(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    _sync(file)


def _sync(file: Path) -> None:
    number = os.open(file, os.O_RDWR)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _corrupt(file: Path, why: str) -> LogError:
    return LogError(
        f"the snapshot {file} is corrupt: {why}", hint="restore the folder from a backup; nothing was changed"
    )

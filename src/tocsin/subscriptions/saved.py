"""An engine on disk: one folder, written whole or not at all.

    manifest.json          format, last seq, last id, definitions, subscriptions
    tables/000.arrow ...   the rows of each table, and the parts of `parts.py` (Arrow IPC)

The folder is written under another name and moved into place, so that a crash leaves the old
one or the new one.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather

from tocsin.errors import TocsinError
from tocsin.store.database import Database
from tocsin.subscriptions.registry import Registry, State

__all__ = ["FORMAT", "read_folder", "saved_engine", "split_records", "write_folder"]

FORMAT = 1


def saved_engine(
    database: Database, registry: Registry, parts: Mapping[str, Any], apart: Container[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest and the tables of an engine; its parts (`parts.py`) hold the rows of `apart`."""
    manifest = {
        "last_seq": database.last_seq,
        "last_id": registry.last_id,
        "definitions": [str(relation) for relation in database.catalog.values()],
        "subscriptions": [
            {"id": entry.id, **_record(entry, database.altered), "state": str(entry.announced)}
            for entry in registry
            if all(table in database.catalog for table in entry.source.tables)
        ],
        "parts": list(parts),
    }
    kept = [name for name in database.tables if name in database.catalog and name not in apart]
    return manifest, {**{name: database.rows(name) for name in kept}, **parts}


def _record(entry: Any, altered: Container[str]) -> dict[str, Any]:
    """The record of a subscription; of a table that got columns since, with its columns instead of `*`."""
    record = dict(entry.source.record(entry.row))
    if any(table in altered for table in entry.source.tables):
        record["sql"] = str(entry.source.query(entry.row))
    return record


def split_records(records: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The subscriptions of a manifest that are active without end, and the others."""
    plain = [s["valid"] == [None, None] and s["state"] == str(State.ACTIVE) for s in records]
    bulk = [record for record, simple in zip(records, plain, strict=True) if simple]
    return bulk, [record for record, simple in zip(records, plain, strict=True) if not simple]


def write_folder(path: str | Path, manifest: dict[str, Any], tables: dict[str, Any]) -> None:
    """Write a manifest and tables; an engine saved there before is replaced."""
    target = Path(path)
    if target.exists() and not (target / "manifest.json").is_file():
        raise TocsinError(f"{target} is there and is not a saved engine", hint="choose another path")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise TocsinError(f"{target} cannot be written: {error}", hint="choose another path") from None
    try:
        (work / "tables").mkdir()
        files = {}
        for number, (name, table) in enumerate(tables.items()):
            files[name] = f"tables/{number:03}.arrow"
            feather.write_feather(table, str(work / files[name]), compression="uncompressed")
        text = json.dumps({"format": FORMAT, **manifest, "tables": files}, indent=1, default=_time)
        (work / "manifest.json").write_text(text, encoding="utf-8")
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            os.rename(target, old / "was")
            os.rename(work, target)
            shutil.rmtree(old)
        else:
            os.rename(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def read_folder(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest and the tables of a saved engine."""
    folder = Path(path)
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise TocsinError(
                f"{folder} was saved in format {manifest['format']}; this version reads {FORMAT}",
                hint="load it with the version that wrote it",
            )
        tables = {name: feather.read_table(str(folder / file)) for name, file in manifest["tables"].items()}
    except (OSError, ValueError, KeyError, pa.ArrowInvalid) as error:
        raise TocsinError(
            f"{folder} is not a saved engine: {error}", hint="save one with Engine.save"
        ) from None
    return manifest, tables


def _time(value: Any) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()

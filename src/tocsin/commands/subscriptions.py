"""The subscriptions of a pipeline, looked at and changed while it runs or not.

Every change is a new version (`tocsin.spark.versions`), which a running pipeline uses from its next
batch on. A change is taken whole or not at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from tocsin.commands.data import JSON, json_rows, reading
from tocsin.commands.output import read_text
from tocsin.commands.subscription_files import number, split_statements
from tocsin.commands.validate import is_definition
from tocsin.errors import SubscriptionError, UsageError
from tocsin.spark.versions.changelog import blocks_in
from tocsin.spark.versions.pins import pinned_versions
from tocsin.spark.versions.store import Version, Versions
from tocsin.spark.versions.subscription_sets import SubscriptionBlock, text_block

__all__ = ["ListedSubscription", "add", "compact", "list_newest", "remove"]

SHOWN = 5  # bad rows in an error


class ListedSubscription(NamedTuple):
    """One subscription, as it is listed."""

    id: int
    shape: str
    subscriber: str | None
    sql: str


def versions_of(state: Path) -> Versions:
    """The versions of a pipeline's folder, or of a folder of versions itself."""
    inside = Versions(state / "subscriptions")
    versions = inside if inside.latest() is not None else Versions(state)
    if versions.latest() is None:
        raise UsageError(
            f"there are no subscriptions in {state}", hint="give the folder that is `state` of a pipeline"
        )
    return versions


def list_newest(state: Path, limit: int | None = None) -> tuple[Version, list[ListedSubscription]]:
    """The newest version, and its subscriptions in order of id."""
    version = versions_of(state).newest()
    ids = np.sort(version.subscriptions.ids)[:limit]
    some = Version(version.number, version.ddl, version.subscriptions.only(ids))
    shapes = {
        number: home.shape
        for home, part in some.subscriptions.by_shard_key().items()
        for number in part.ids.tolist()
    }
    return version, [ListedSubscription(e.id, shapes[e.id], e.subscriber, e.sql) for e in some.rows()]


def add(state: Path, file: Path, *, replace: bool = False) -> tuple[int, int]:
    """Add the subscriptions of a file, or replace those that are there; the version, and how many."""
    versions = versions_of(state)
    lots = _lots(file, state)
    count = sum(map(len, lots))
    if not count:
        raise UsageError(f"there are no subscriptions in {file}", hint="columns are id and sql; see --help")
    made = versions.change(replace=lots) if replace else versions.change(add=lots)
    return made, count


def remove(state: Path, ids: Sequence[int]) -> tuple[int, int]:
    """Remove subscriptions; the version, and how many."""
    gone = sorted(set(ids))
    return versions_of(state).change(remove=gone), len(gone)


def compact(state: Path) -> tuple[int, int]:
    """Write the newest version as few files and remove what no pin needs; the version, and bytes freed."""
    versions = versions_of(state)
    before = _bytes(versions.path)
    made = versions.compact(keep={versions.newest().number, *pinned_versions(versions.path)})
    return made, max(0, before - _bytes(versions.path))


def _bytes(folder: Path) -> int:
    """What the files of a folder take; others may write there meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def _lots(file: Path, state: Path) -> list[SubscriptionBlock]:
    if file.suffix == ".sql":
        statements = split_statements(read_text(file))
        if any(is_definition(statement.text) for statement in statements):
            raise UsageError(
                f"{file} has definitions", hint="definitions are the pipeline's: give SELECTs alone"
            )
        return [text_block(number(statements, set(), state))] if statements else []
    with reading(file):
        rows = _rows(file)
    lots, refused = blocks_in(rows)
    if refused:
        told = [f"{file}: {one.reason}: {json.dumps(one.row, default=str)}" for one in refused[:SHOWN]]
        more = [f"and {len(refused) - SHOWN:,} more"] if len(refused) > SHOWN else []
        raise SubscriptionError("\n".join([*told, *more]), hint="nothing was changed")
    return lots


def _rows(file: Path) -> list[Any]:
    if file.suffix == ".parquet":
        return list(parquet.read_table(file).to_pylist())
    if file.suffix in JSON:
        return list(json_rows(file))
    if file.suffix != ".csv":
        raise UsageError(f"{file} is of no known kind", hint="one of .sql, .jsonl, .csv, .parquet")
    texts = {"sql": pa.string(), "subscriber": pa.string()}
    options = csv.ConvertOptions(column_types=texts, strings_can_be_null=True, null_values=[""])
    parse = csv.ParseOptions(newlines_in_values=True)
    return list(csv.read_csv(file, parse_options=parse, convert_options=options).to_pylist())

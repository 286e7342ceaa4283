"""`tocsin subscriptions`: list and change the subscriptions of a pipeline, also while it runs.

Each change makes a new version (`tocsin.spark.versions`), completely or not at all; a running pipeline uses
it from its next batch on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from tocsin.commands.data import JSON, json_rows, reading
from tocsin.commands.output import read_text
from tocsin.commands.stdin import spooled
from tocsin.commands.subscription_files import number_statements, split_statements
from tocsin.commands.validate import is_definition
from tocsin.errors import SubscriptionError, UsageError
from tocsin.spark.storage.store import open_store
from tocsin.spark.versions.batch import pinned_versions
from tocsin.spark.versions.blocks import SubscriptionBlock, text_block
from tocsin.spark.versions.changelog import blocks_in
from tocsin.spark.versions.store import Version, Versions
from tocsin.spark.versions.subscription_sets import SubscriptionSet, check

__all__ = ["Added", "ListedSubscription", "add", "compact", "list_newest", "remove"]

SHOWN = 5  # bad rows in an error


class ListedSubscription(NamedTuple):
    """One subscription in the list."""

    id: int
    shape: str
    subscriber: str | None
    sql: str


def versions_of(state: Path) -> Versions:
    """The versions of a pipeline's folder, or of a folder of versions itself."""
    place = open_store(state)
    inside = Versions(place / "subscriptions")
    versions = inside if inside.latest() is not None else Versions(place)
    if versions.latest() is None:
        raise UsageError(
            f"there are no subscriptions in {state}", hint="give the `state` folder of a pipeline"
        )
    return versions


def list_newest(state: Path, limit: int | None = None) -> tuple[Version, list[ListedSubscription]]:
    """The newest version, and its subscriptions in order of id."""
    version = versions_of(state).newest()
    ids = np.sort(version.subscriptions.ids)[:limit]
    some = Version(version.number, version.ddl, version.subscriptions.only(ids))
    shapes = {
        number: key.shape
        for key, part in some.subscriptions.by_shard_key().items()
        for number in part.ids.tolist()
    }
    return version, [ListedSubscription(e.id, shapes[e.id], e.subscriber, e.sql) for e in some.rows()]


class Added(NamedTuple):
    """The newest version, how many subscriptions it got, and how many it had already."""

    version: int
    changed: int
    unchanged: int


def add(state: Path, file: Path, *, replace: bool = False) -> Added:
    """Add the subscriptions of a file (`-`: stdin), or replace existing ones.

    Those that are there already, with the same id, text and subscriber, are left alone; if all are, there is
    no new version.
    """
    versions = versions_of(state)
    with spooled(file, sql=True) as path:
        blocks = _blocks(path, state)
    count = sum(map(len, blocks))
    if not count:
        raise UsageError(f"there are no subscriptions in {file}", hint="columns are id and sql; see --help")
    newest = versions.newest()
    blocks = _without_known(blocks, newest)
    fresh = sum(map(len, blocks))
    if not fresh:
        return Added(newest.number, 0, count)
    made = versions.change(replace=blocks) if replace else versions.change(add=blocks)
    return Added(made, fresh, count - fresh)


def _without_known(blocks: list[SubscriptionBlock], version: Version) -> list[SubscriptionBlock]:
    """Without the rows that the version has with the same meaning and subscriber."""
    given = SubscriptionSet.all_of(check(version.ddl, blocks)[1])
    same = given.ids[given.same_as(version.subscriptions)]
    if not len(same):
        return blocks
    before, now = _subscribers(version.subscriptions.only(np.sort(same)).blocks()), _subscribers(blocks)
    known = [id for id in same.tolist() if before[id] == now[id]]
    return [block.take(np.flatnonzero(~np.isin(block.ids, known))) for block in blocks]


def _subscribers(blocks: Iterable[SubscriptionBlock]) -> dict[int, str | None]:
    found: dict[int, str | None] = {}
    for block in blocks:
        found.update(zip(block.ids.tolist(), block.table["subscriber"].to_pylist(), strict=True))
    return found


def remove(state: Path, ids: Sequence[int]) -> tuple[int, int]:
    """Remove subscriptions; return the new version and how many."""
    removed = sorted(set(ids))
    return versions_of(state).change(remove=removed), len(removed)


def compact(state: Path) -> tuple[int, int]:
    """Rewrite the newest version as few files and remove versions that nobody has pinned; return the new
    version and the bytes freed."""
    versions = versions_of(state)
    before = versions.store.size()
    made = versions.compact(keep={versions.newest().number, *pinned_versions(versions.store)})
    return made, max(0, before - versions.store.size())


def _blocks(file: Path, state: Path) -> list[SubscriptionBlock]:
    if file.suffix == ".sql":
        statements = split_statements(read_text(file))
        if any(is_definition(statement.text) for statement in statements):
            raise UsageError(
                f"{file} has definitions",
                hint="only the pipeline's config has definitions; give SELECTs alone",
            )
        return [text_block(number_statements(statements, set(), state))] if statements else []
    with reading(file):
        rows = _rows(file)
    blocks, rejected = blocks_in(rows)
    if rejected:
        shown = [f"{file}: {one.reason}: {json.dumps(one.row, default=str)}" for one in rejected[:SHOWN]]
        more = [f"and {len(rejected) - SHOWN:,} more"] if len(rejected) > SHOWN else []
        raise SubscriptionError("\n".join([*shown, *more]), hint="nothing was changed")
    return blocks


def _rows(file: Path) -> list[Any]:
    if file.suffix == ".parquet":
        return list(parquet.read_table(file).to_pylist())
    if file.suffix in JSON:
        return list(json_rows(file))
    if file.suffix != ".csv":
        raise UsageError(f"{file} has an unknown format", hint="one of .sql, .jsonl, .csv, .parquet")
    texts = {"sql": pa.string(), "subscriber": pa.string()}
    options = csv.ConvertOptions(column_types=texts, strings_can_be_null=True, null_values=[""])
    parse = csv.ParseOptions(newlines_in_values=True)
    return list(csv.read_csv(file, parse_options=parse, convert_options=options).to_pylist())

"""The deltas of standing queries as a streaming DataFrame: changes in, rows out, for any sink of Spark.

    from tocsin.spark import deltas

    found = deltas(changes, [(1, "SELECT symbol FROM stocks WHERE per > 45")], ddl="CREATE TABLE ...")
    found.writeStream.option("checkpointLocation", "checkpoint").toTable("deltas")

`toTable` (Delta, Iceberg, Parquet tables), Kafka, files and `foreachBatch` take it like any other. State is
in the query's checkpoint; what else is kept (versions of the subscriptions, the version of each batch, dead
letters) is in `state_dir`. A sink that writes each batch once, as tables and files do, makes the deltas
exactly-once.

`Pipeline` is made of the same parts, with sinks of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.language.algebra import Query
from tocsin.model.schema import Field, Table, Type
from tocsin.spark.early import start_early
from tocsin.spark.hosting.client import wanted_hosts
from tocsin.spark.sessions import ensure_state
from tocsin.spark.sharding import HASH_VERSION
from tocsin.spark.sources import empty_changes, normalised
from tocsin.spark.stages.deliver import count_changes
from tocsin.spark.stages.events import filter_events
from tocsin.spark.stages.processors import QueryShards, TableShards
from tocsin.spark.stages.route import Clock, route, utc_now
from tocsin.spark.stages.rows import ADDRESSED, RowOpener, address
from tocsin.spark.stages.steps import LABELLED, MESSAGE, Layout, PipelinePaths
from tocsin.spark.storage.store import Store, open_store, spark_address
from tocsin.spark.versions.batch import ShardPlacement, load_placement
from tocsin.spark.versions.blocks import blocks_of, definitions, subscribe
from tocsin.spark.versions.store import Versions
from tocsin.spark.versions.subscription_sets import trial_engine

__all__ = ["deltas", "settled_layout", "shard_messages", "versions_log", "with_wakes", "write_layout"]

_TYPES: Mapping[Type, T.DataType] = {
    Type.BIGINT: T.LongType(),
    Type.DOUBLE: T.DoubleType(),
    Type.STRING: T.StringType(),
    Type.BOOLEAN: T.BooleanType(),
    Type.DATE: T.DateType(),
    Type.TIMESTAMP: T.TimestampType(),
}


def _spark_type(type: Type) -> T.DataType:
    return T.DecimalType(type.precision, type.scale) if type.is_decimal else _TYPES[type]


ROWS = ("auto", "struct", "json")
STAGES = ("events", "tables", "queries")
"""What a set needs: filters over streams no state, over tables the first stage, all else both."""


def deltas(
    changes: DataFrame,
    subscriptions: Any,
    *,
    ddl: str | None = None,
    state_dir: str | Path | None = None,
    layout: Layout | None = None,
    rows: str = "auto",
    hosts: int | str | None = None,
    clock: Clock = utc_now,
) -> DataFrame:
    """The deltas of subscriptions over a stream of changes, as a streaming DataFrame.

    `changes` has the columns `table`, `op`, `row` and `seq` (`sources.py`). `subscriptions` is a set of (id,
    sql), an `Engine`, an Arrow table or blocks, and then `ddl` has the CREATE statements; or it is a
    directory of versions (`Versions` or its path), and each new version is used from the next batch on.

    The result has the columns `seq`, `subscription`, `subscriber`, `sign` (-1: the row left the answer, 1: it
    entered) and `row`. A row is a struct if all subscriptions have the same columns, and else JSON text;
    `rows="struct"` or `rows="json"` demands one of them. Of a directory, rows are JSON: its next version may
    have other columns.

    `state_dir` is by default the parent of the directory of versions; for a set, a folder in the warehouse of
    Spark that belongs to this set. Rejected changes are in `<state_dir>/dead_letters/<query>`.
    """
    if rows not in ROWS:
        raise TocsinError(f"there are no rows {rows!r}", hint=" or ".join(ROWS))
    spark = changes.sparkSession
    wanted = wanted_hosts(hosts)
    start_early(spark, wanted)
    frame = count_changes(normalised(changes)).withColumn("wake", F.lit(False))
    if isinstance(subscriptions, str | Path | Store | Versions):
        given = _from_directory(subscriptions, state_dir, layout, rows)
        frame = with_wakes(frame, [versions_log(spark, given.versions)])
    else:
        given = _from_set(subscriptions, ddl, state_dir, layout, rows, spark)
    state, layout, versions, stages, fields = given
    write_layout(state, layout)
    paths = PipelinePaths(versions.store.address, (state / "pins").address, layout, "", wanted)
    dead_letters = (state / "dead_letters").address
    return _as_rows(shard_messages(frame, paths, clock, stages), paths, dead_letters, fields)


class _Published(NamedTuple):
    """Subscriptions as a version in a store, and what a pipeline needs for them."""

    state: Store
    layout: Layout
    versions: Versions
    stages: str
    fields: tuple[Field, ...] | None  # of all rows, if they are structs


def _from_directory(
    directory: str | Path | Store | Versions, state_dir: str | Path | None, layout: Layout | None, rows: str
) -> _Published:
    """The subscriptions of a directory of versions."""
    if rows == "struct":
        raise TocsinError(
            "the rows of a directory of versions are JSON", hint="give the subscriptions themselves"
        )
    store = directory.store if isinstance(directory, Versions) else open_store(directory)
    state = store.parent if state_dir is None else open_store(state_dir)
    layout = settled_layout(state, layout)
    versions = Versions(store, layout.joins)
    if versions.latest() is None:
        raise TocsinError("there is no version of the subscriptions", hint=f"looked in {store}")
    return _Published(state, layout, versions, "queries", None)


def _from_set(
    subscriptions: Any,
    ddl: str | None,
    state_dir: str | Path | None,
    layout: Layout | None,
    rows: str,
    spark: SparkSession,
) -> _Published:
    """Publish a set as the first version of a folder of its own."""
    if ddl is None and isinstance(subscriptions, Engine):
        ddl = definitions(subscriptions)
    if ddl is None:
        raise TocsinError("the subscriptions have no definitions", hint="give ddl= with CREATE statements")
    blocks = blocks_of(subscriptions)
    state = open_store(_own_folder(spark, ddl, blocks) if state_dir is None else state_dir)
    layout = settled_layout(state, layout)
    versions = Versions(state / "subscriptions", layout.joins)
    number = versions.publish(ddl, blocks)
    stages = settled_stages(state, load_placement(versions.store.address, number, layout))
    fields = None if rows == "json" else _shared_fields(ddl, blocks)
    if rows == "struct" and fields is None:
        raise TocsinError(
            "the subscriptions have different columns, so that rows cannot be structs",
            hint="rows='json', or one call for each group with the same columns",
        )
    return _Published(state, layout, versions, stages, fields)


def _as_rows(
    messages: DataFrame, paths: PipelinePaths, dead_letters: str, fields: tuple[Field, ...] | None
) -> DataFrame:
    targets = int(messages.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    row: T.DataType = T.StringType()
    if fields is not None:
        row = T.StructType([T.StructField(field.name, _spark_type(field.type)) for field in fields])
    schema = T.StructType(
        [
            T.StructField("seq", T.LongType()),
            T.StructField("subscription", T.LongType()),
            T.StructField("subscriber", T.StringType()),
            T.StructField("sign", T.ByteType()),
            T.StructField("row", row),
        ]
    )
    addressed = messages.mapInArrow(partial(address, targets=targets), ADDRESSED)
    return addressed.repartition(targets, "target").mapInArrow(RowOpener(paths, dead_letters, fields), schema)


def shard_messages(
    changes: DataFrame, paths: PipelinePaths, clock: Clock, stages: str = STAGES[-1]
) -> DataFrame:
    """What leaves the shards of a pipeline: `changes` has the columns of `sources.COLUMNS`, and `wake`.

    `stages` is the last of `STAGES` that is needed; what leaves the last of all has the columns of
    `LABELLED`, what leaves another those of `MESSAGE`.
    """
    if stages == "events":
        return changes.mapInArrow(partial(filter_events, paths=paths, clock=clock), MESSAGE)
    ensure_state(changes.sparkSession)
    routed = changes.mapInArrow(partial(route, paths=paths, clock=clock), MESSAGE).groupBy("shard")
    found = routed.transformWithState(TableShards(paths), MESSAGE, "Append", "None")
    if stages == "tables":
        return found
    return found.groupBy("shard").transformWithState(QueryShards(paths), LABELLED, "Append", "None")


def settled_stages(state: Store, placement: ShardPlacement) -> str:
    """The last stage that a fixed set needs, which is recorded: a checkpoint keeps its stages."""
    has_tables = any(isinstance(relation, Table) for relation in placement.relations.values())
    needed = "queries" if placement.groups else "tables" if has_tables else "events"
    state.put_new("stages", needed.encode())
    found = state.get("stages").decode()
    if STAGES.index(found) < STAGES.index(needed):
        raise TocsinError(
            f"the query of {state} was started for filters alone, and has no state for other shapes",
            hint="give the new set another state_dir, and its query another checkpoint",
        )
    return found


def with_wakes(changes: DataFrame, logs: Iterable[DataFrame]) -> DataFrame:
    """The changes, and a row with `wake` for each row of some logs, which so start a batch."""
    wakes = (empty_changes(log).withColumn("wake", F.lit(True)) for log in logs)
    return reduce(DataFrame.union, wakes, changes)


def versions_log(spark: SparkSession, versions: Versions) -> DataFrame:
    """The log of versions as a stream: a new version starts a batch."""
    reader = spark.readStream.schema("version bigint").option("ignoreMissingFiles", "true")  # it is pruned
    return reader.json(spark_address(versions.log.address))


def settled_layout(state: Store, wanted: Layout | None) -> Layout:
    """The layout of a state, which is fixed for its life; raises if another one is wanted."""
    text = state.find("layout.json")
    if text is None:
        return wanted or Layout()
    found = json.loads(text)
    if found.pop("spread", None) != HASH_VERSION:
        raise TocsinError(
            f"the state in {state} was written by another version of Tocsin, with another hash",
            hint="start with an empty state_dir, and let the source be read from its beginning",
        )
    stored = Layout(**found)
    if wanted not in (None, stored):
        raise TocsinError(
            f"the state in {state} has {stored}, not {wanted}",
            hint="leave layout out, or start with an empty state_dir",
        )
    return stored


def write_layout(state: Store, layout: Layout) -> None:
    """Record the layout of a state."""
    text = json.dumps({**layout.as_dict(), "spread": HASH_VERSION}).encode()
    if state.find("layout.json") != text:
        state.put("layout.json", text)


def _own_folder(spark: SparkSession, ddl: str, blocks: Sequence[Any]) -> Path:
    """The folder of a set in Spark's warehouse: the same for the same set, so that a query finds it again."""
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir") or "spark-warehouse").removeprefix("file:")
    if "://" in warehouse:
        raise TocsinError(f"the warehouse of Spark, {warehouse}, is no folder", hint="give state_dir=")
    digest = blake2b(ddl.encode(), digest_size=12)
    for block in blocks:
        digest.update(block.digests.tobytes())
        digest.update(block.ids.tobytes())
    return Path(warehouse).absolute() / "_tocsin" / digest.hexdigest()


def _shared_fields(ddl: str, blocks: Sequence[Any]) -> tuple[Field, ...] | None:
    """The columns of every answer, if all subscriptions share them."""
    engine = trial_engine(ddl)
    for block in blocks:
        subscribe(engine, block)
    found = {_fields_of(query) for _, query, _ in engine.queries()}
    return found.pop() if len(found) == 1 else None


def _fields_of(query: Query) -> tuple[Field, ...] | None:
    """The columns of an answer; None if they are known only per event."""
    items = [(item.name, item.expression.type) for item in query.items]
    fields = tuple(Field(name, kind) for name, kind in items if kind is not None)
    return fields if fields and len(fields) == len(items) else None

"""Changes as other systems write them: Debezium's envelope, the change data feed of Delta.

Each function takes a DataFrame of a source and returns one with the columns of `sources.py`: `table`, `op`,
`row`, `seq`.

    Debezium     {"before": {...}, "after": {...}, "op": "c", "source": {"table": "stocks", ...}}
                 c, r, u ─► upsert of `after`         d ─► delete of `before`         seq: the record's offset
    change feed  columns, _change_type, _commit_version
                 insert, update_postimage ─► upsert   delete ─► delete    seq: twice the version, one more
                                                                          for an upsert

A snapshot is read again after a connector was restarted, so an insert counts as an upsert. Seqs are compared
per key: all records of a key must be in one partition, as Debezium writes them, and one commit changes a key
once (or deletes and inserts it).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tocsin.errors import TocsinError
from tocsin.spark.sources import CORRUPT

__all__ = ["change_feed", "debezium"]

_BODY = "before string, after string, op string, source struct<table: string>"
_ENVELOPE = (
    f"{_BODY}, payload struct<before: string, after: string, op: string, source: struct<table: string>>"
)
_FEED = ("_change_type", "_commit_version", "_commit_timestamp")


def debezium(
    records: DataFrame, *, value: str = "value", table: str | None = None, seq: str = "offset"
) -> DataFrame:
    """Changes from Debezium's envelopes, with or without their schema.

    `value` is the column with the JSON, `seq` one that ascends for each key. The table is named by the
    envelope's source, or by `table`. Tombstones (NULL values) are left out; anything else that is no change
    (a truncation, a malformed text) becomes a dead letter. Dates and decimals must be ISO texts and numbers:
    `time.precision.mode=isostring`, `decimal.handling.mode=double`.
    """
    for name in (value, seq):
        if name not in records.columns:
            raise TocsinError(
                f"the records have no column {name}", hint=f"one of {', '.join(records.columns)}"
            )
    text = F.col(value).cast("string")
    found = records.where(F.col(value).isNotNull()).select(
        F.from_json(text, _ENVELOPE).alias("envelope"), text.alias("text"), F.col(seq).alias("seq")
    )

    def of(name: str) -> Column:
        return F.coalesce(F.col(f"envelope.payload.{name}"), F.col(f"envelope.{name}"))

    op = of("op")
    named = of("source.table") if table is None else F.lit(table)
    return found.select(
        named.alias("table"),
        F.when(op.isin("c", "r", "u"), F.lit("upsert"))
        .when(op == "d", F.lit("delete"))
        .otherwise(op)
        .alias("op"),
        F.when(op == "d", of("before"))
        .when(op.isin("c", "r", "u"), of("after"))
        .otherwise(F.col("text"))
        .alias("row"),
        F.col("seq"),
        F.when(op.isNull(), F.col("text")).alias(CORRUPT),
    )


def change_feed(feed: DataFrame, table: str, *, moving_keys: bool = False) -> DataFrame:
    """Changes of one table from a change data feed (Delta: `readChangeFeed`).

    With `moving_keys` an update may change the primary key: the row before is deleted first, under a seq of
    its own.
    """
    missing = [name for name in _FEED[:2] if name not in feed.columns]
    if missing:
        raise TocsinError(
            f"the feed has no column {missing[0]}", hint='read it with .option("readChangeFeed", "true")'
        )
    kind = F.col("_change_type")
    gone = kind.isin("delete", "update_preimage") if moving_keys else kind == "delete"
    rows = feed if moving_keys else feed.where(kind != "update_preimage")
    columns = [F.col(f"`{name}`") for name in feed.columns if name not in _FEED]
    return rows.select(
        F.lit(table).alias("table"),
        F.when(gone, F.lit("delete")).otherwise(F.lit("upsert")).alias("op"),
        F.struct(*columns).alias("row"),
        (F.col("_commit_version") * 2 + F.when(gone, 0).otherwise(1)).alias("seq"),
    )

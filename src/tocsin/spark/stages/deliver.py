"""The end of a batch: messages are kept, counted, opened for the sinks, and the last seq is recorded.

    shards ─ label ─ observe ─► foreachBatch ─┬─ few deltas: one task opens, settles and orders them all
                                              └─ many: every task those it has; what may cancel with
                                                       another shard's meets it in one task first

What `observe` counts is in `lastProgress["observedMetrics"]` of the query, and reaches listeners. Deltas
are counted there as the shards tell them: two that cancel between shards are still counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tocsin.spark.sinks.sinks import Sink
from tocsin.spark.stages.packed import (
    LABELLED,
    Opener,
    label,
    letters,
    opened_all,
    opened_plain,
    opened_split,
    settled_rows,
)
from tocsin.spark.stages.processors import Place
from tocsin.spark.versions.versions import Pins
from tocsin.spark.watching import IN, OUT

__all__ = ["DEAD_COLUMNS", "DELTA_COLUMNS", "IN", "OUT", "Told", "count_changes", "deliver", "labelled"]

DELTA_COLUMNS = ["query", "batch", "seq", "subscription", "subscriber", "sign", "row"]
DEAD_COLUMNS = ["query", "batch", "seq", "table", "op", "row", "reason"]

FEW = 250_000  # deltas that one task takes in its stride

_DELTAS = "seq bigint, subscription bigint, subscriber string, sign tinyint, row string"
_LETTERS = "table string, op string, row string, seq bigint, reason string"


def count_changes(changes: DataFrame) -> DataFrame:
    """The changes, observed: how many there are, and their highest seq."""
    return changes.observe(IN, F.count(F.lit(1)).alias("changes"), F.max("seq").alias("highest_seq"))


def labelled(messages: DataFrame) -> DataFrame:
    """The messages of the last stage with what is in them, observed."""
    return messages.mapInArrow(label, LABELLED).observe(
        OUT,
        _sum("deltas", "rows").alias("deltas"),
        _sum("dead", "rows").alias("dead_letters"),
        F.max(F.when(F.col("kind") == "mark", F.col("seq"))).alias("last_seq"),
        F.max("version").alias("version"),
    )


def _sum(kind: str, column: str) -> Column:
    return F.coalesce(F.sum(F.when(F.col("kind") == kind, F.col(column))), F.lit(0))


@dataclass(frozen=True)
class Told:
    """The deltas of one batch, still packed."""

    frame: DataFrame  # labelled messages
    place: Place
    batch: int
    rows: int
    split: int  # of them
    query: str = ""  # its name, as long as its checkpoint lives

    def parts(self) -> list[tuple[DataFrame, Opener]]:
        """Frames, and what makes deltas of each in a task; all of them together are the batch.

        Few deltas are one part with one task, in order. Of many, each task has its own in order.
        """
        deltas = self.frame.where("kind = 'deltas'")
        if self.rows <= FEW:
            return [(deltas.coalesce(1), partial(opened_all, place=self.place))]
        plain = (deltas.where("rows > split"), partial(opened_plain, place=self.place))
        if not self.split:
            return [plain]
        split = deltas.where("split > 0").mapInArrow(partial(opened_split, place=self.place), _DELTAS)
        met = (split.repartition("seq", "subscription"), settled_rows)  # those that may cancel are together
        return [plain, met] if self.split < self.rows else [met]

    def table(self) -> DataFrame:
        """The deltas as rows, with the columns of `DELTA_COLUMNS`."""
        parts = [frame.mapInArrow(opened, _DELTAS) for frame, opened in self.parts()]
        return _keyed(reduce(DataFrame.union, parts), self.query, self.batch, DELTA_COLUMNS)


def deliver(
    frame: DataFrame,
    batch: int,
    *,
    place: Place,
    sinks: Sequence[Sink],
    dead: Sequence[Sink],
    query: str = "",
) -> None:
    """For `foreachBatch`: run the batch, hand it to the sinks one after the other, record the last seq."""
    frame.sparkSession.conf.set(place.batch_setting, str(batch))
    frame = frame.persist()
    try:
        sums = frame.groupBy("kind").agg(
            F.sum("rows").alias("rows"), F.sum("split").alias("split"), F.max("seq").alias("seq")
        )
        found = {row.kind: row for row in sums.collect()}
        rows, split = (found["deltas"].rows, found["deltas"].split) if "deltas" in found else (0, 0)
        told = Told(frame, place, batch, rows, split, query)
        for sink in sinks:
            packed = getattr(sink, "write_packed", None)
            if packed is not None:
                packed(told)
            else:
                sink(told.table(), batch)
        if "dead" in found:  # rare: spare a healthy batch the job
            opened = frame.where("kind = 'dead'").coalesce(1).mapInArrow(letters, _LETTERS)
            for sink in dead:
                sink(_keyed(opened, query, batch, DEAD_COLUMNS), batch)
        if "mark" in found:
            Pins(place.pins, place.query).set_applied(batch, found["mark"].seq)
    finally:
        frame.unpersist()


def _keyed(frame: DataFrame, query: str, batch: int, columns: list[str]) -> DataFrame:
    """With what tells a batch from all others, of any query."""
    return frame.withColumns({"query": F.lit(query), "batch": F.lit(batch).cast("bigint")}).select(columns)

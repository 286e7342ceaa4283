"""The end of a batch: deltas are consolidated, handed to the sinks, and the last seq is recorded.

The deltas of one change may come from several shards: an update that moves a row from one join shard to
another is -x in one and +y in the other, and cancels if the query does not show what changed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tocsin.spark.shards import Place
from tocsin.spark.sinks import Sink
from tocsin.spark.versions import Pins

__all__ = ["DEAD_COLUMNS", "DELTA_COLUMNS", "consolidated", "deliver"]

DELTA_COLUMNS = ["batch", "seq", "subscription", "subscriber", "sign", "row"]
DEAD_COLUMNS = ["batch", "seq", "table", "op", "row", "reason"]


def deliver(frame: DataFrame, batch: int, *, place: Place, sink: Sink, dead: Sink) -> None:
    """For `foreachBatch`: run the batch, consolidate, hand to the sinks, record the last seq."""
    frame.sparkSession.conf.set(place.batch_setting, str(batch))
    frame = frame.persist()
    try:
        last = {row.kind: row.seq for row in frame.groupBy("kind").agg(F.max("seq").alias("seq")).collect()}
        deltas = consolidated(frame).withColumn("batch", F.lit(batch).cast("bigint")).select(DELTA_COLUMNS)
        sink(deltas, batch)
        if "dead" in last:  # rare: spare a healthy batch the job
            letters = frame.where("kind = 'dead'").withColumn("batch", F.lit(batch).cast("bigint"))
            dead(letters.select(DEAD_COLUMNS).coalesce(1).sortWithinPartitions("seq"), batch)
        if "mark" in last:
            Pins(place.pins, place.query).set_applied(batch, last["mark"])
    finally:
        frame.unpersist()


def consolidated(frame: DataFrame) -> DataFrame:
    """Equal rows of one (seq, subscription) cancel or add up; in order, -1 before +1."""
    total = (
        frame.where("kind = 'deltas'")
        .groupBy("seq", "subscription", "subscriber", "row")
        .agg(F.sum("sign").alias("total"))
        .where("total != 0")
    )
    signed = total.withColumn(
        "sign", F.explode(F.expr("array_repeat(cast(sign(total) as tinyint), int(abs(total)))"))
    )
    return signed.coalesce(1).sortWithinPartitions("seq", "subscription", "sign", "row").drop("total")

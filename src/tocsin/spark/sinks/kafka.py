"""Kafka as a sink and as a source. The connector is not part of PySpark; Spark loads it by its coordinates.

    session(**{"spark.jars.packages": tocsin.spark.sinks.kafka.COORDINATES})

**Out.** One record per delta. Its key is the subscription, so that a subscription's deltas stay in one
partition of the topic, in order. Its value is JSON, and a header identifies it:

    key      7
    value    {"batch":3,"seq":41,"subscription":7,"subscriber":"ann","sign":1,"row":{"symbol":"A"}}
    header   tocsin-id = <query>/<batch>/<seq>/<subscription>/<n>     n counts the subscription's in the batch

A replayed batch sends its records again: the same records in the same order with the same ids. A consumer
deduplicates them if it remembers the last (batch, n) of each subscription and skips what is not above it.

With `output="messages"` the parts of a batch are records too, bytes instead of JSON, with the query as key
(`tocsin.spark.messages`); `MessageReader` and `serve_sink` read them from a `tocsin.spark.Topic`.

**In.** A record's value is JSON with table, op, row and seq. With `seq="offset"`, seq is the offset of the
record; that needs a topic of one partition, and records of another partition become dead letters without a
seq.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from tocsin.errors import TocsinError
from tocsin.spark.sinks import QueryStart
from tocsin.spark.sources import CORRUPT
from tocsin.spark.topic import ID

__all__ = ["COORDINATES", "Kafka", "changes_from", "parsed"]

COORDINATES = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
CHANGE = f"table string, op string, row string, seq string, {CORRUPT} string"


@dataclass(frozen=True)
class Kafka:
    """A sink that writes to a topic. `options` are Spark's and, with the prefix `kafka.`, the producer's."""

    topic: str
    servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    query: str = ""

    @classmethod
    def parse(cls, text: str) -> Kafka:
        """
        >>> Kafka.parse("alerts@one:9092,two:9092").servers
        'one:9092,two:9092'
        """
        topic, at, servers = text.partition("@")
        if not (topic and at and servers):
            raise TocsinError(
                f"sink 'kafka:{text}' has no topic or no servers",
                hint="write it as kafka:<topic>@<host>:<port>",
            )
        return cls(topic, servers)

    def begin(self, start: QueryStart) -> Kafka:
        """The sink for a query that starts; raises if Spark has no connector."""
        with_connector(
            lambda: start.spark.read.format("kafka").options(**self._address(subscribe=self.topic)).load()
        )
        return replace(self, query=start.query)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        found = dead_letters(frame) if "reason" in frame.columns else records(frame, self.query)
        writer = found.write.format("kafka").options(**self._address(topic=self.topic))
        with_connector(writer.options(**self.options).save)

    def _address(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **more}


def records(frame: DataFrame, query: str) -> DataFrame:
    """Deltas as records of Kafka, grouped by subscription and in order."""
    own = Window.partitionBy("subscription").orderBy("seq", "sign", "row")
    name = F.concat_ws("/", F.lit(query), "batch", "seq", "subscription", F.row_number().over(own))
    key: Column = F.col("subscription").cast("string")
    head = F.to_json(F.struct("batch", "seq", "subscription", "subscriber", "sign"))
    value = F.concat(F.regexp_replace(head, r"\}$", ""), F.lit(',"row":'), "row", F.lit("}"))
    header = F.struct(F.lit(ID).alias("key"), F.encode(name, "utf-8").alias("value"))
    if "data" in frame.columns:  # messages beside deltas: all of a query in one partition, in order
        is_delta = F.col("data").isNull()
        key, value = F.when(is_delta, key).otherwise(query), F.coalesce("data", F.encode(value, "utf-8"))
    return frame.select(key.alias("key"), value.alias("value"), F.array(header).alias("headers"))


def dead_letters(frame: DataFrame) -> DataFrame:
    """Dead letters as records."""
    return frame.select(F.to_json(F.struct(*frame.columns)).alias("value"))


def changes_from(
    spark: SparkSession, servers: str, topic: str, *, seq: str = "value", **options: str
) -> DataFrame:
    """Changes from a topic, as `Pipeline.start` takes them."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options)
    return parsed(with_connector(reader.load), seq)


def parsed(records: DataFrame, seq: str = "value") -> DataFrame:
    """Table, op, row and seq from the values; a value that is not JSON is kept for its dead letter."""
    if seq not in ("value", "offset"):
        raise TocsinError(f"seq cannot come from {seq!r}", hint="it comes from the value, or is the offset")
    text = F.col("value").cast("string")
    found = records.withColumn(
        "change", F.from_json(text, CHANGE, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})
    )
    number = F.col("change.seq") if seq == "value" else F.when(F.col("partition") == 0, F.col("offset"))
    return found.select(
        F.col("change.table").alias("table"),
        F.col("change.op").alias("op"),
        F.col("change.row").alias("row"),
        number.alias("seq"),
        F.col(f"change.{CORRUPT}").alias(CORRUPT),
    )


def with_connector(act: Any) -> Any:
    """Do something that needs the connector; if it is missing, the error says how to add it."""
    try:
        return act()
    except AnalysisException as error:
        if "Failed to find" not in str(error) and "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise TocsinError(
            "Spark has no connector for Kafka",
            hint=f"start the session with spark.jars.packages = {COORDINATES}",
        ) from error

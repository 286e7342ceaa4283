"""A pipeline from topic to topic: `python topics.py <folder> <broker> <jars>`; ends with its input."""

import sys
from pathlib import Path

from tests.spark.workload import DDL, subscriptions
from tocsin.spark import Layout, Pipeline, session
from tocsin.spark.sinks.kafka import changes_from


def main(folder: Path, broker: str, jars: str) -> None:
    spark = session("topics", log=folder / "spark.log", **{"spark.jars": jars})
    pipeline = Pipeline(
        spark,
        ddl=DDL,
        subscriptions=[row for row in subscriptions() if row[0] // 100 in (1, 3, 9)],
        state_dir=folder / "state",
        layout=Layout(tables=2, joins=1, subscriptions=1),
    )
    query = pipeline.start(
        changes_from(spark, broker, "changes", maxOffsetsPerTrigger="30"),
        sink=f"kafka:deltas@{broker}",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])

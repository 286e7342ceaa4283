"""A pipeline that sends messages to a topic: `python described.py <folder> <broker> <jars>`."""

import sys
from pathlib import Path

from tests.spark.workload import DDL, JOINS
from tocsin.spark import Layout, Pipeline, session
from tocsin.spark.sinks.kafka import changes_from


def main(folder: Path, broker: str, jars: str) -> None:
    spark = session("described", log=folder / "spark.log", **{"spark.jars": jars})
    pipeline = Pipeline(
        spark, ddl=DDL, subscriptions=JOINS[:6], state_dir=folder / "state", layout=Layout(2, 2, 2)
    )
    query = pipeline.start(
        changes_from(spark, broker, "changes", maxOffsetsPerTrigger="30"),
        sink=f"kafka:messages@{broker}",
        output="messages",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])

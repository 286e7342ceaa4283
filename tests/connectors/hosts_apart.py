"""A driver: `python hosts_apart.py run <master> <classpath>`, or `read local[1] <classpath>`.

It reads changes from S3 and writes the deltas to a Delta table there, until all is processed.
"""

import json
import sys

from tests.spark.workload import DDL, subscriptions
from tocsin.lab.chaos.object_store import BUCKET
from tocsin.spark import Layout, deltas, session
from tocsin.spark.sources import TEXTS

PLACE = f"s3a://{BUCKET}"


def settings(classpath: str, endpoint: str) -> dict[str, str]:
    from tocsin.lab.chaos.object_store import S3

    return {
        **S3(endpoint).spark,
        "spark.shuffle.readHostLocalDisk": "false",  # one address, but not one disk
        "spark.driver.extraClassPath": classpath,
        "spark.executor.extraClassPath": classpath,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def main(what: str, master: str, classpath: str, endpoint: str) -> None:
    spark = session("apart", master, **settings(classpath, endpoint))
    if what == "read":
        rows = spark.read.format("delta").load(f"{PLACE}/deltas").drop("subscriber").collect()
        print(json.dumps([row.asDict() for row in rows]))
    else:
        changes = spark.readStream.schema(TEXTS).option("maxFilesPerTrigger", 1).json(f"{PLACE}/in")
        found = deltas(
            changes,
            subscriptions(),
            ddl=DDL,
            state_dir=f"s3://{BUCKET}/state",
            layout=Layout(tables=2, joins=2, subscriptions=2),
            rows="json",
        )
        writer = found.writeStream.format("delta").option("checkpointLocation", f"{PLACE}/checkpoint")
        writer.trigger(availableNow=True).start(f"{PLACE}/deltas").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

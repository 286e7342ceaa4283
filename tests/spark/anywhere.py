"""A pipeline file that runs anywhere: `python anywhere.py <folder> <master>`, or by spark-submit.

The folder has `subscriptions.json`, `definitions.sql` and `in/` with a file of changes per batch.
"""

import json
import sys
from pathlib import Path

from tocsin.spark import Layout, Pipeline, session


def main(folder: Path, master: str | None) -> None:
    spark = session("anywhere", master) if master is not None else session("anywhere")
    pipeline = Pipeline(
        spark,
        ddl=(folder / "definitions.sql").read_text(),
        subscriptions=[tuple(row) for row in json.loads((folder / "subscriptions.json").read_text())],
        state_dir=folder / "state",
        layout=Layout(tables=2, joins=1, subscriptions=1),
    )
    changes = (
        spark.readStream.schema("table string, op string, row string, seq bigint")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder / "in"))
    )
    pipeline.start(
        changes, sink=f"json:{folder / 'deltas'}", trigger={"availableNow": True}
    ).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)

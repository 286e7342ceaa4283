"""The changes as files, and the pipeline over them: it can be killed at any time and resumed.

    <folder>/demo.json           what is replayed: days, subscriptions, seed, batches
    <folder>/changes/*.json      the changes, one file per micro-batch
    <folder>/state/              the pipeline's: subscriptions, pins, checkpoint
    <folder>/deltas/batch=7/     what came out of batch 7 (Parquet)
    <folder>/spark.log           what Spark had to say

`folder.py` holds the folder for one demo. Everything is written before the pipeline starts, and
`demo.json` last, so that a folder with that file can be resumed. Spark takes files in order of
their time of change; they are set one second apart, as `seq` must not go back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tocsin.lab.demo.flights import DDL, Change
from tocsin.lab.demo.folder import SCRIPT, clear, nothing_to_resume
from tocsin.lab.demo.received import COLUMNS
from tocsin.lab.demo.script import Script
from tocsin.lab.demo.subscriptions import Wanted
from tocsin.spark import Pipeline
from tocsin.spark.versions.placement import Layout

__all__ = ["Replay"]

CHANGES = "table string, op string, row string, seq bigint"
LAYOUT = Layout(tables=2, joins=2, subscriptions=2)  # for the two cores it asks for
_FIRST_FILE_TIME = 1_000_000_000  # seconds since 1970; any will do


class Replay:
    """A script laid out in a folder."""

    def __init__(self, folder: Path, script: Script) -> None:
        self.folder, self.script = folder, script

    @classmethod
    def begin(cls, folder: Path, script: Script, changes: list[Change]) -> Replay:
        """Lay a script out afresh in a folder that is held; an earlier replay in it is removed."""
        clear(folder)
        source = folder / "changes"
        source.mkdir(parents=True)
        size = -(-len(changes) // script.batches)
        for number, start in enumerate(range(0, len(changes), size)):
            path = source / f"{number:05}.json"
            path.write_text("".join(f"{change.line()}\n" for change in changes[start : start + size]))
            os.utime(path, (_FIRST_FILE_TIME + number,) * 2)
        partial = folder / f".{SCRIPT}"
        partial.write_text(json.dumps(asdict(script)))
        os.replace(partial, folder / SCRIPT)
        return cls(folder, script)

    @classmethod
    def resume(cls, folder: Path) -> Replay:
        """Go on with what the folder says."""
        try:
            return cls(folder, Script(**json.loads((folder / SCRIPT).read_text())))
        except (OSError, ValueError, TypeError):
            raise nothing_to_resume(folder) from None

    def start(self, spark: SparkSession, wanted: list[Wanted]) -> StreamingQuery:
        """Start, or start again: what is in the checkpoint is not done twice."""
        changes = (
            spark.readStream.schema(CHANGES)
            .option("maxFilesPerTrigger", 1)
            .json(str(self.folder / "changes"))
        )
        pipeline = Pipeline(
            spark, ddl=DDL, subscriptions=_table(wanted), state_dir=self.folder / "state", layout=LAYOUT
        )
        return pipeline.start(
            changes,
            sink=f"parquet:{self.folder / 'deltas'}",
            dead_letters=f"json:{self.folder / 'dead_letters'}",
            trigger={"availableNow": True},
        )

    @property
    def log(self) -> Path:
        return self.folder / "spark.log"

    def count(self, batch: int) -> int:
        """How many deltas a batch brought."""
        files = (self.folder / "deltas" / f"batch={batch}").glob("*.parquet")
        return sum(parquet.read_metadata(file).num_rows for file in files)

    def deltas(self) -> Iterator[pa.Table]:
        """All deltas so far, in order."""
        for folder in sorted((self.folder / "deltas").glob("batch=*"), key=_number):
            for file in sorted(folder.glob("*.parquet")):
                yield parquet.ParquetFile(file, read_dictionary=["row"]).read(list(COLUMNS))

    def dead_letters(self) -> list[dict[str, Any]]:
        """Changes that were refused; the demo has none unless something is wrong."""
        files = sorted((self.folder / "dead_letters").glob("batch=*/*.json"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _number(folder: Path) -> int:
    return int(folder.name.partition("=")[2])


def _table(wanted: list[Wanted]) -> pa.Table:
    """Subscriptions as a pipeline takes many of them."""
    return pa.table({name: [getattr(w, name) for w in wanted] for name in ("id", "sql", "subscriber")})

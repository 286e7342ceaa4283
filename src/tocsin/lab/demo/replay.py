"""The demo's folder, and the pipeline over its files. A killed replay can be resumed.

    <folder>/.tocsin-demo        marks the folder as the demo's; written first, never removed
    <folder>/lock                locked while a demo runs; never removed: a second demo locks the same
    <folder>/demo.json           the script: days, subscriptions, seed, batches
    <folder>/changes/*.json      the changes, one file per micro-batch
    <folder>/state/              the pipeline's state: subscriptions, pins, checkpoint
    <folder>/deltas/batch=7/     the deltas of batch 7 (Parquet)
    <folder>/spark.log           Spark's log

One demo at a time uses a folder. The demo only uses a folder that does not exist, is empty, or holds nothing
but a demo, and removes nothing else. It writes all files before the pipeline starts, `demo.json` last, so
a folder with that file can be resumed. Spark reads files in order of modification time; the times are set one
second apart, because `seq` must increase from batch to batch.

>>> import tempfile
>>> with locked_folder(Path(tempfile.mkdtemp()), resume=False) as folder:
...     sorted(path.name for path in folder.iterdir())
['.tocsin-demo', 'lock']
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as parquet

from tocsin.errors import TocsinError, UsageError
from tocsin.lab.demo.flights import DDL, FlightChange
from tocsin.lab.demo.received import COLUMNS
from tocsin.lab.demo.script import DemoSubscription, Script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["LOG", "SCRIPT", "FlightReplay", "clear_folder", "locked_folder"]

SCRIPT, LOG = "demo.json", "spark.log"
_MARK, _LOCK = ".tocsin-demo", "lock"
_OWN = ("changes", "state", "deltas", "dead_letters", LOG, SCRIPT, f".{SCRIPT}")


@contextmanager
def locked_folder(folder: Path, *, resume: bool) -> Iterator[Path]:
    """Lock a folder for one demo, and yield its real path. Any other folder is rejected unchanged."""
    try:
        folder = folder.resolve()
        if resume and not (folder / SCRIPT).is_file():
            raise nothing_to_resume(folder)
        if not resume:
            _refuse_foreign(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _MARK).touch()
        lock = open(folder / _LOCK, "a")  # noqa: SIM115  # closed below
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise UsageError(
            f"{folder} cannot be the demo's folder: {error}", hint="choose another with --dir"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TocsinError(
                f"a demo is running in {folder}",
                hint="wait for it, or choose another with --dir",
            ) from None
        yield folder


def clear_folder(folder: Path) -> None:
    """Remove the files of an earlier demo from a locked folder; the mark and the lock stay."""
    _refuse_foreign(folder)
    for path in (folder / name for name in _OWN):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise TocsinError(
                f"{path} of an earlier demo cannot be removed: {error.strerror}",
                hint="choose another folder with --dir",
            ) from None


def nothing_to_resume(folder: Path) -> UsageError:
    return UsageError(
        f"there is no demo to resume in {folder}",
        hint="start one: tocsin demo; or name its folder with --dir",
    )


def _refuse_foreign(folder: Path) -> None:
    """Raise unless the folder is missing, empty, or holds nothing but a demo."""
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if names and _MARK not in names:
        raise UsageError(
            f"{folder} is not empty and holds no demo; nothing was removed",
            hint="choose another with --dir",
        )
    others = sorted(names - {_MARK, _LOCK, *_OWN})
    if others:
        raise UsageError(
            f"{folder} holds more than a demo: {', '.join(others[:5])}{', ...' if others[5:] else ''}; "
            "nothing was removed",
            hint="move that away, or choose another folder with --dir",
        )


CHANGES = "table string, op string, row string, seq bigint"

_FIRST_FILE_TIME = 1_000_000_000  # seconds since 1970; any will do


class FlightReplay:
    """A script whose files lie in a folder."""

    def __init__(self, folder: Path, script: Script) -> None:
        self.folder, self.script = folder, script

    @classmethod
    def begin(cls, folder: Path, script: Script, changes: list[FlightChange]) -> FlightReplay:
        """Write the files of a script to a locked folder that is clear."""
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
    def resume(cls, folder: Path) -> FlightReplay:
        """The replay whose files the folder holds."""
        try:
            return cls(folder, Script(**json.loads((folder / SCRIPT).read_text())))
        except (OSError, ValueError, TypeError):
            raise nothing_to_resume(folder) from None

    def publish(self, wanted: list[DemoSubscription]) -> None:
        """Write the subscriptions where the pipeline reads them, unless they are there; needs no Spark."""
        from tocsin.spark import Versions

        Versions(self._state / "subscriptions").publish(DDL, _table(wanted))

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the pipeline over the published subscriptions, from its checkpoint if there is one."""
        from tocsin.spark import Layout, Pipeline

        layout = Layout(tables=2, joins=2, subscriptions=2)  # for the demo's two cores
        changes = (
            spark.readStream.schema(CHANGES)
            .option("maxFilesPerTrigger", 1)
            .json(str(self.folder / "changes"))
        )
        return Pipeline(spark, state_dir=self._state, layout=layout).start(
            changes,
            sink=f"parquet:{self.folder / 'deltas'}",
            dead_letters=f"json:{self.folder / 'dead_letters'}",
            trigger={"availableNow": True},
        )

    @property
    def _state(self) -> Path:
        return self.folder / "state"

    def count(self, batch: int) -> int:
        """Number of deltas of a batch."""
        files = (self.folder / "deltas" / f"batch={batch}").glob("*.parquet")
        return sum(parquet.read_metadata(file).num_rows for file in files)

    def deltas(self) -> Iterator[pa.Table]:
        """All deltas written so far, in order."""
        for folder in sorted((self.folder / "deltas").glob("batch=*"), key=_number):
            for file in sorted(folder.glob("*.parquet")):
                yield parquet.ParquetFile(file, read_dictionary=["row"]).read(list(COLUMNS))

    def dead_letters(self) -> list[dict[str, Any]]:
        """Rejected changes; there are none unless something is wrong."""
        files = sorted((self.folder / "dead_letters").glob("batch=*/*.json"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def _number(folder: Path) -> int:
    return int(folder.name.partition("=")[2])


def _table(wanted: list[DemoSubscription]) -> pa.Table:
    """The subscriptions as a table for `Pipeline`."""
    return pa.table({name: [getattr(w, name) for w in wanted] for name in ("id", "sql", "subscriber")})

"""Where a batch of deltas or dead letters goes.

A sink is a function of (DataFrame, batch id). Spark may call it again with the same batch after a
crash, so it must do the same again rather than more: files are kept one directory per batch,
`<path>/batch=7`, and a replay overwrites its own.

    "parquet:/data/deltas"   "json:/data/deltas"   "console"   Memory()   any function of your own
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tocsin.errors import TocsinError

__all__ = ["Memory", "Sink", "as_sink", "files"]

Sink = Callable[[DataFrame, int], object]


def files(form: str, path: str | Path) -> Sink:
    """One directory per batch, in a format of Spark's."""

    def write(frame: DataFrame, batch: int) -> None:
        # one file, moved into place by the commit: `batch` is the directory's name, not a column
        writer = frame.drop("batch").coalesce(1).write.format(form).mode("overwrite")
        if form == "json":
            writer = writer.option("ignoreNullFields", "false")  # every line has every column
        writer.save(f"{path}/batch={batch}")

    return write


def console(frame: DataFrame, batch: int) -> None:
    """Print a batch, if it has rows."""
    rows = frame.toArrow().to_pylist()
    for row in rows:
        print(" ".join(f"{name}={value}" for name, value in row.items() if value is not None))


class Memory:
    """Keeps each batch as an Arrow table, in this process: for tests and small demos."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = frame.toArrow()

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in order of batch."""
        return [row for number in sorted(self.batches) for row in self.batches[number].to_pylist()]


def as_sink(sink: str | Path | Sink) -> Sink:
    """A sink from its name: `parquet:<path>`, `json:<path>`, `console`; a path alone is Parquet."""
    if callable(sink):
        return sink
    form, colon, path = str(sink).partition(":")
    if sink == "console":
        return console
    if colon and form in ("parquet", "json"):
        if not path.strip():
            raise TocsinError(f"sink {sink!r} has no path", hint=f"write it as {form}:<path>")
        return files(form, path)
    if isinstance(sink, Path):
        return files("parquet", sink)
    raise TocsinError(
        f"unknown sink {sink!r}",
        hint="one of parquet:<path>, json:<path>, console, or a function (frame, batch)",
    )

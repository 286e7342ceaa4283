"""Sinks: where a batch of deltas or dead letters goes.

A sink is a function of (DataFrame, batch number). The key of a delta is in its row: query, batch, seq,
subscription. After a crash Spark may call a sink again with the same batch, so it must repeat its effect,
not add to it: files go into one directory per batch, `<path>/batch=7`, and a replay overwrites its own. A
pipeline takes one sink or a list.

    "parquet:/data/deltas"                 one directory per batch
    "json:/data/deltas"
    "console"
    MemorySink()                           in this process
    "kafka:topic@host:9092,host:9092"      see kafka.py
    "webhook:https://host/{subscriber}"    see webhooks.py
    any function of your own

A sink may have two methods besides: `write_packed(deltas)` receives a batch's deltas before they are rows
(`stages/deliver.py`, `BatchDeltas`), and `begin(start)` returns the sink for a query that starts.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tocsin.errors import TocsinError
from tocsin.spark.stages.deliver import Messages, Opener
from tocsin.spark.storage.cache import local_cache
from tocsin.spark.storage.store import SCHEMES, Store, open_store

if TYPE_CHECKING:
    from tocsin.spark.stages.deliver import BatchDeltas

__all__ = [
    "Files",
    "MemorySink",
    "QueryStart",
    "Sink",
    "as_lines",
    "as_sink",
    "as_sinks",
    "begin_sinks",
    "json_lines",
    "require_output",
]

Sink = Callable[[DataFrame, int], object]

FORMATS = ("parquet", "json")
OUTPUTS = ("deltas", "messages")
OWNER = "_query"  # a file in the folder of a sink; readers of data skip such names
_WRITTEN = "file string, rows bigint"


@dataclass(frozen=True)
class Files:
    """One directory per batch. Few rows are one sorted file; of many, each file is sorted.

    Tasks write deltas to a folder or to an object store (`storage/store.py`) without making Spark rows of
    them; Spark's own file systems write to other addresses (`s3a://`, `hdfs://`). In JSON lines `row` is an
    object, not a text; in Parquet it is a text, and in dead letters too, because a rejected row need not be
    JSON.
    """

    form: str
    path: str
    query: str = ""  # the owner of the folder: batches are numbered per query

    def begin(self, start: QueryStart) -> Files:
        """The sink for a query that starts; raises if the folder has batches of another query."""
        store = self._store
        if store is None:
            return self
        owner = store.find(OWNER)
        is_other = owner is not None and owner.decode() != start.query
        if is_other and any(name.startswith("batch=") for name in store.folders()):
            raise TocsinError(
                f"{store} has batches of another query, or of this one with an earlier checkpoint",
                hint="give the sink a folder of its own, or remove this one",
            )
        return replace(self, query=start.query)

    @property
    def _store(self) -> Store | None:
        """The folder or object store; None if Spark's file systems write to it."""
        path = _plain(self.path)
        scheme, mark, _ = path.partition("://")
        ours = not mark or (scheme in SCHEMES and scheme != "s3a")
        return open_store(path) if ours else None

    def _write_owner(self, store: Store) -> None:
        """Record the query that owns the folder."""
        if self.query and store.find(OWNER) != self.query.encode():
            store.put(OWNER, self.query.encode())

    def __call__(self, frame: DataFrame, batch: int) -> None:
        # query and batch are in the path, so they are not columns as well
        plain = frame.drop("query", "batch")
        store = self._store
        if store is not None:
            self._write_owner(store)
            if not store.is_local:
                self._write_objects([(plain, _as_they_are)], store / f"batch={batch}")
                return
        if self.form == "json" and "sign" in frame.columns:
            plain, form = as_lines(plain), "text"
        else:
            form = self.form
        writer = plain.write.format(form).mode("overwrite")
        if form == "json":
            writer = writer.option("ignoreNullFields", "false")  # every line has every column
        writer.save(f"{self.path}/batch={batch}")

    def write_packed(self, deltas: BatchDeltas) -> None:
        """Write the deltas of a batch; tasks open the messages and write the files."""
        store = self._store
        if store is None:
            self(deltas.table(), deltas.batch)
            return
        self._write_owner(store)
        openers = deltas.openers() if deltas.rows or deltas.messages else []
        if not store.is_local:
            self._write_objects(openers, store / f"batch={deltas.batch}", deltas.schema)
            return
        aside = store.path / f".batch={deltas.batch}-{uuid4().hex}"
        aside.mkdir(parents=True)
        try:
            written = _write_parts(openers, aside, self.form)
            if not written and self.form == "parquet":  # no rows, but a reader finds the columns
                parquet.write_table(deltas.schema.empty_table(), aside / "part-0.parquet")
                written = ["part-0.parquet"]
            for file in {*os.listdir(aside)}.difference(written):
                os.unlink(aside / file)  # empty, or of a task that was retried
            target = aside.with_name(f"batch={deltas.batch}")
            shutil.rmtree(target, ignore_errors=True)  # of the batch's first run
            os.rename(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _write_objects(
        self, openers: Sequence[tuple[Messages, Opener]], store: Store, schema: pa.Schema = None
    ) -> None:
        """Write a batch to an object store. A replay writes the same objects under the same names again."""
        written = _write_parts(openers, store.address, self.form)
        if not written and self.form == "parquet" and schema is not None:
            with pa.BufferOutputStream() as out:
                parquet.write_table(schema.empty_table(), out)
                store.put("part-0.parquet", memoryview(out.getvalue()))
            written = ["part-0.parquet"]
        store.delete([entry.key for entry in store.list() if entry.key not in written])


def _plain(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:")


def as_lines(deltas: DataFrame) -> DataFrame:
    """Deltas as lines of JSON, with `row` as an object."""
    head = F.to_json(
        F.struct(*(name for name in deltas.columns if name != "row")), {"ignoreNullFields": "false"}
    )
    return deltas.select(
        F.concat(
            F.regexp_replace(head, r"\}$", ',"row":'), F.coalesce("row", F.lit("null")), F.lit("}")
        ).alias("value")
    )


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """The same of an Arrow batch.

    >>> delta = {"seq": 3, "subscription": 7, "subscriber": None, "sign": 1, "row": '{"n":1}'}
    >>> print(*json_lines(pa.RecordBatch.from_pylist([delta])), end="")
    {"seq":3,"subscription":7,"subscriber":null,"sign":1,"row":{"n":1}}
    """
    names = [name for name in batch.schema.names if name != "row"]
    columns = [batch[name].to_pylist() for name in names]
    if "data" in names:  # bytes as base64, as Spark writes them
        at = names.index("data")
        columns[at] = [None if data is None else b64encode(data).decode() for data in columns[at]]
    for *values, row in zip(*columns, batch["row"].to_pylist(), strict=True):
        head = json.dumps(dict(zip(names, values, strict=True)), ensure_ascii=False, separators=(",", ":"))
        yield f'{head[:-1]},"row":{"null" if row is None else row}}}\n'


def _as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The opener of rows."""
    yield from batches


def _write_parts(openers: Sequence[tuple[Messages, Opener]], folder: str | Path, form: str) -> list[str]:
    """Write what is in the driver, and have tasks write the rest; returns the names of files with rows."""
    written: list[tuple[str, int]] = []
    parts: list[DataFrame] = []
    for number, (messages, opener) in enumerate(openers):
        write = partial(_write_part, opener=opener, folder=str(folder), part=number, form=form)
        if isinstance(messages, DataFrame):
            parts.append(messages.mapInArrow(write, _WRITTEN))
        else:
            written += [(one["file"][0].as_py(), one["rows"][0].as_py()) for one in write([messages])]
    if parts:
        written += [(row.file, row.rows) for row in reduce(DataFrame.union, parts).collect()]
    return [file for file, rows in written if rows]


def _write_part(
    batches: Iterable[pa.RecordBatch], opener: Opener, folder: str, part: int, form: str
) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow`: write a file with the deltas of this task, or of the driver."""
    context = TaskContext.get()
    partition, attempt = (0, 0) if context is None else (context.partitionId(), context.taskAttemptId())
    write = _write_parquet if form == "parquet" else _write_json
    if "://" in folder:
        name = f"part-{part}-{partition:05d}.{form}"  # the same if the task is retried
        with tempfile.TemporaryFile(dir=local_cache().root) as draft:
            rows = write(draft, opener(batches))
            if rows:
                open_store(folder).put_file(name, draft)
        yield pa.RecordBatch.from_pydict({"file": [name], "rows": [rows]})
        return
    name = f"part-{part}-{partition:05d}-{attempt}.{form}"
    if not os.path.isdir(folder):
        raise TocsinError(
            f"{folder} cannot be reached by a worker",
            hint="write to a folder that all hosts share, or to an address such as s3://",
        )
    with open(f"{folder}/{name}", "xb") as file:
        rows = write(file, opener(batches))
        file.flush()
        os.fsync(file.fileno())
    yield pa.RecordBatch.from_pydict({"file": [name], "rows": [rows]})


def _write_parquet(file: IO[bytes], batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return 0
    with parquet.ParquetWriter(file, first.schema) as writer:
        for batch in chain([first], batches):
            rows += batch.num_rows
            writer.write_batch(batch)
    return rows


def _write_json(file: IO[bytes], batches: Iterable[pa.RecordBatch]) -> int:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        is_delta = "sign" in batch.schema.names
        lines = json_lines(batch) if is_delta else (f"{json.dumps(row)}\n" for row in batch.to_pylist())
        file.write("".join(lines).encode())
    return rows


def console(frame: DataFrame, batch: int) -> None:
    """Print a batch, if it has rows."""
    rows = frame.toArrow().to_pylist()
    for row in rows:
        print(
            " ".join(
                f"{name}={value}" for name, value in row.items() if value is not None and name != "query"
            )
        )


class MemorySink:
    """Keeps each batch as an Arrow table, in this process: for tests and small demos."""

    def __init__(self) -> None:
        self.batches: dict[int, pa.Table] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = frame.toArrow()

    def rows(self) -> list[dict[str, Any]]:
        """All rows, in order of batch."""
        return [row for number in sorted(self.batches) for row in self.batches[number].to_pylist()]


def as_sink(sink: str | Path | Sink) -> Sink:
    """A sink from its name; a path alone is Parquet."""
    if callable(sink):
        return sink
    form, _, rest = str(sink).partition(":")
    if sink == "console":
        return console
    if form in (*FORMATS, "kafka", "webhook") and rest.strip() == "" and isinstance(sink, str):
        shape = {"kafka": "kafka:<topic>@<host>:<port>", "webhook": "webhook:<address>"}
        raise TocsinError(
            f"sink {sink!r} has no {'address' if form in shape else 'path'}",
            hint=f"write it as {shape.get(form, f'{form}:<path>')}",
        )
    if isinstance(sink, Path):
        return Files("parquet", str(sink))
    if form in FORMATS:
        return Files(form, rest)
    if form == "kafka":
        from tocsin.spark.sinks.kafka import Kafka

        return Kafka.parse(rest)
    if form == "webhook":
        from tocsin.spark.sinks.webhooks import Webhook

        return Webhook(rest)
    raise TocsinError(
        f"unknown sink {sink!r}",
        hint="one of parquet:<path>, json:<path>, console, kafka:<topic>@<servers>, webhook:<address>, "
        "or a function (frame, batch)",
    )


def as_sinks(sinks: str | Path | Sink | Sequence[str | Path | Sink]) -> list[Sink]:
    """One sink or several."""
    if isinstance(sinks, str | Path) or callable(sinks):
        return [as_sink(sinks)]
    if not sinks:
        raise TocsinError("there is no sink", hint="give one, or a list of them")
    return [as_sink(sink) for sink in sinks]


def require_output(output: str, sinks: Sequence[Sink]) -> None:
    """Raise if there is no such output, or a sink cannot take it."""
    if output not in OUTPUTS:
        raise TocsinError(f"there is no output {output!r}", hint=f"one of {', '.join(OUTPUTS)}")
    if output == "messages" and any(getattr(sink, "only_deltas", False) for sink in sinks):
        raise TocsinError(
            "messages cannot go to a webhook: they are for many subscribers at once",
            hint="write them to files or to Kafka",
        )


class QueryStart(NamedTuple):
    """What a sink learns about a query that starts."""

    spark: SparkSession
    query: str  # its name in what is sent, unique among all pipelines
    folder: Store  # where it may keep files


def begin_sinks(sinks: Sequence[Sink], start: QueryStart, *, dead_letters: bool = False) -> list[Sink]:
    """The sinks for a query that starts."""
    if dead_letters and any(getattr(sink, "only_deltas", False) for sink in sinks):
        raise TocsinError(
            "dead letters cannot go to a webhook: they have no subscriber", hint="write them to files"
        )
    return [sink.begin(start) if hasattr(sink, "begin") else sink for sink in sinks]

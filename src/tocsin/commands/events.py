"""Reads the events of a file in batches: only one batch is in memory, however long the file is.

    .jsonl .ndjson .json   lines, each a JSON object        (one array of objects is read whole)
    .csv                   blocks of rows (`csv_files.py`); cells are converted to values (`cells.py`)
    .parquet               row groups, in batches

An event's number is its position in the file, from 0; its seq is that number plus 1, so a delta names its
event. A row that cannot be read becomes a `BadRow` with its number, and reading continues. For a table, a
column `_op` has insert, update, delete or upsert; a column `_seq` is ignored, because the order of the file
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tocsin.commands.csv_files import check_columns, read_csv
from tocsin.commands.data import JSON, check_format, reading
from tocsin.engine import Engine
from tocsin.errors import BadRow, ChangeError, TocsinError, UsageError
from tocsin.language.scope import nearest
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index
from tocsin.model.jsonlines.changes import read_lines
from tocsin.model.jsonlines.parse import JsonRow, parse_array
from tocsin.model.schema import Stream, Table

__all__ = ["BATCH", "EventBatch", "find_relation", "parse_lines", "read_events"]

BATCH = 10_000


@dataclass(frozen=True)
class EventBatch:
    """Consecutive events: the good ones, the bad ones, how many, and the share of the file read so far."""

    changes: ChangeBatch  # `origin` is the event's number in the file, `seq` that plus 1
    bad: list[BadRow]
    read: int
    share: float  # from 0 to 1


def find_relation(engine: Engine, file: Path, name: str | None) -> Table | Stream:
    """The relation of a file's events: the given one, else that named as the file, else the only one."""
    declared = engine.schemas()
    if name is not None:
        try:
            return engine.schema(name)
        except TocsinError as error:
            raise UsageError(error.fact, hint=nearest(name, _names(declared)) or _listed(declared)) from None
    for relation in declared:
        if relation.name.lower() == file.stem.lower():
            return relation
    streams = [relation for relation in declared if isinstance(relation, Stream)]
    if len(streams or declared) == 1:
        return (streams or declared)[0]
    raise UsageError(
        f"it is not clear which stream or table the events in {file} belong to",
        hint=f"use --relation: {_listed(declared)}",
    )


def _names(relations: Sequence[Table | Stream]) -> list[str]:
    return [relation.name for relation in relations]


def _listed(relations: Sequence[Table | Stream]) -> str:
    return f"there is {', '.join(_names(relations))}" if relations else "nothing is declared; see --schema"


def read_events(file: Path, relation: Table | Stream, size: int = BATCH) -> Iterator[EventBatch]:
    """The events of a file in batches of at most `size`; none if it is empty."""
    check_format(file)
    with reading(file):
        if file.stat().st_size == 0 and file.suffix != ".parquet":
            return
        if file.suffix in JSON:
            yield from _from_json(file, relation, size)
            return
        batches = _from_csv if file.suffix == ".csv" else _from_parquet
        try:
            yield from batches(file, relation, size)
        except ChangeError as error:  # a whole column is bad
            raise TocsinError(f"{file}: {error.fact}", hint=error.hint) from None


def _batch(
    made: tuple[ChangeBatch, list[BadRow]], numbers: Index, bad: list[BadRow], share: float
) -> EventBatch:
    """A batch whose rows have their numbers in the file; rows in `bad` have these already."""
    changes, rejected = made
    kept = changes.renumbered(numbers)
    bad = sorted([*bad, *(BadRow(int(numbers[row]), reason) for row, reason in rejected)])
    kept = kept.with_seq(kept.origin + 1)
    return EventBatch(kept, bad, len(kept) + len(bad), min(share, 1.0))


# -- JSON --------------------------------------------------------------------------------------------


def _from_json(file: Path, relation: Table | Stream, size: int) -> Iterator[EventBatch]:
    length, done, first = file.stat().st_size, 0, 0
    with file.open("rb") as lines:
        head = lines.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
        lines.seek(0)
        if head.startswith(b"["):
            yield from _from_array(parse_array(file.read_text("utf-8-sig")), relation, size)
            return
        while chunk := list(islice(lines, size)):
            done += sum(map(len, chunk))
            texts = [line for line in chunk if line.strip()]
            made = read_lines(relation, b"".join(texts), with_seq=False)
            yield _batch(made, np.arange(first, first + len(texts)), [], done / length)
            first += len(texts)


def parse_lines(lines: Sequence[bytes], relation: Table | Stream, first: int) -> EventBatch:
    """Lines of JSON, none blank, as a batch; `first` is the number of the first."""
    made = read_lines(relation, b"\n".join(lines), with_seq=False)
    return _batch(made, np.arange(first, first + len(lines)), [], 0.0)


def _from_array(rows: list[JsonRow], relation: Table | Stream, size: int) -> Iterator[EventBatch]:
    for first in range(0, len(rows), size):
        chunk = rows[first : first + size]
        yield _parsed(chunk, relation, first, (first + len(chunk)) / len(rows))


def _parsed(rows: Sequence[JsonRow], relation: Table | Stream, first: int, share: float) -> EventBatch:
    bad = [BadRow(first + i, row) for i, row in enumerate(rows) if isinstance(row, str)]
    good = [(first + i, row) for i, row in enumerate(rows) if isinstance(row, dict)]
    numbers = np.array([number for number, _ in good], np.int64)
    return _from_dicts([row for _, row in good], relation, numbers, bad, share)


def _from_dicts(
    rows: list[dict[str, Any]], relation: Table | Stream, numbers: Index, bad: list[BadRow], share: float
) -> EventBatch:
    ops = [str(row.pop("_op", "insert")) for row in rows]
    for row in rows:
        row.pop("_seq", None)
    return _batch(ChangeBatch.from_dicts(relation, rows, ops, json=True), numbers, bad, share)


# -- Parquet -----------------------------------------------------------------------------------------


def _from_parquet(file: Path, relation: Table | Stream, size: int) -> Iterator[EventBatch]:
    import pyarrow.parquet as parquet

    first = 0
    with parquet.ParquetFile(file) as source:
        length = source.metadata.num_rows
        check_columns(file, relation, source.schema_arrow.names)
        for batch in source.iter_batches(batch_size=size):
            numbers = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            yield _batch(_arrow(relation, batch), numbers, [], first / length)


def _arrow(relation: Table | Stream, batch: Any) -> tuple[ChangeBatch, list[BadRow]]:
    kept = [name for name in batch.schema.names if name != "_seq"]
    return ChangeBatch.from_arrow(relation, batch if len(kept) == batch.num_columns else batch.select(kept))


# -- CSV ---------------------------------------------------------------------------------------------


def _from_csv(file: Path, relation: Table | Stream, size: int) -> Iterator[EventBatch]:
    for part in read_csv(file, relation, size):
        yield _batch(part.made, part.numbers, part.bad, part.share)

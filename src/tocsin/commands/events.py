"""Reads the events of a file in batches: only one batch is in memory, however long the file is.

    .jsonl .ndjson .json   lines, each a JSON object        (one array of objects is read whole)
    .csv                   blocks of rows; cells are converted to the stream's types
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
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from tocsin.commands.data import JSON, check_format, reading
from tocsin.engine import Engine
from tocsin.errors import BadRow, ChangeError, TocsinError, UsageError
from tocsin.language.scope import nearest
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index
from tocsin.model.jsonlines.changes import read_lines
from tocsin.model.jsonlines.parse import JsonRow, parse_array
from tocsin.model.schema import Stream, Table, Type, read

__all__ = ["BATCH", "EventBatch", "find_relation", "fit", "guess", "infer", "read_events"]

BATCH = 10_000
_BLOCK = 1 << 20  # bytes of CSV per read


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
    first = 0
    with parquet.ParquetFile(file) as source:
        length = source.metadata.num_rows
        _check_columns(file, relation, source.schema_arrow.names)
        for batch in source.iter_batches(batch_size=size):
            numbers = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            yield _batch(_arrow(relation, batch), numbers, [], first / length)


def _arrow(relation: Table | Stream, batch: Any) -> tuple[ChangeBatch, list[BadRow]]:
    kept = [name for name in batch.schema.names if name != "_seq"]
    return ChangeBatch.from_arrow(relation, batch if len(kept) == batch.num_columns else batch.select(kept))


def _check_columns(file: Path, relation: Table | Stream, names: Sequence[str]) -> None:
    """Raise for a column that the stream or table does not have, before any event is read."""
    for name in names:
        if not relation.open and name not in ("_op", "_seq") and relation.find(name) is None:
            known = f"it has {', '.join(relation.names)}; or declare it open: CREATE STREAM {relation.name}"
            raise TocsinError(
                f"{file}: {relation.name} has no column {name!r}", hint=nearest(name, relation.names) or known
            )


# -- CSV ---------------------------------------------------------------------------------------------


def _from_csv(file: Path, relation: Table | Stream, size: int) -> Iterator[EventBatch]:
    length, first, done = file.stat().st_size, 0, 0
    misshapen: dict[int, str] = {}  # rows with too few or too many cells, also ahead of the current batch
    reader = _CsvReader(relation)

    def skip(row: Any) -> str:
        reason = f"malformed row: {row.actual_columns} cells instead of {row.expected_columns}"
        misshapen[row.number - 2] = reason  # the header is row 1
        return "skip"

    names = _header(file, relation)
    _check_columns(file, relation, names)
    with file.open("rb") as raw:
        stream = csv.open_csv(
            raw,
            read_options=csv.ReadOptions(block_size=_BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.binary() for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for block in stream:
            for start in range(0, block.num_rows, size):
                rows = block.slice(start, size)
                numbers, bad = _numbers(first, rows.num_rows, misshapen)
                first += len(numbers) + len(bad)
                done += _bytes(rows)
                yield reader.batch(*_decoded(rows, numbers, bad), done / length)
    if misshapen:  # after the last good row
        empty = np.empty(0, np.int64)
        bad = [BadRow(number, reason) for number, reason in sorted(misshapen.items())]
        yield _from_dicts([], relation, empty, bad, 1.0)


def _bytes(rows: Any) -> int:
    """About how many bytes the rows have in the file, without quotes. (Arrow reads far ahead in the file.)"""
    cells = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in rows)
    return int(cells + rows.num_rows * rows.num_columns)


def _decoded(rows: Any, numbers: Index, bad: list[BadRow]) -> tuple[Any, Index, list[BadRow]]:
    """Rows with cells as text; a row with a cell that is not UTF-8 is bad."""
    try:
        texts = [pc.cast(column, pa.string()) for column in rows.columns]
    except pa.ArrowInvalid:
        reasons: dict[int, str] = {}
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            for i, cell in enumerate(column.to_pylist()):
                try:
                    (cell or b"").decode()
                except UnicodeDecodeError as error:
                    reasons.setdefault(i, f"malformed row: column {name} is not UTF-8, byte {error.start}")
        good, bad = _split_bad(numbers, bad, reasons)
        return _decoded(rows.take(pa.array(good)), numbers[good], bad)
    return pa.RecordBatch.from_arrays(texts, rows.schema.names), numbers, bad


def _split_bad(numbers: Index, bad: list[BadRow], reasons: dict[int, str]) -> tuple[Index, list[BadRow]]:
    """The positions of good rows, and all bad rows: the given ones and those with a reason (by position)."""
    good = np.setdiff1d(np.arange(len(numbers)), np.array(list(reasons), np.int64))
    return good, [*bad, *(BadRow(int(numbers[i]), reason) for i, reason in reasons.items())]


def _header(file: Path, relation: Table | Stream) -> list[str]:
    with file.open("rb") as raw:
        parse = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")
        names = list(csv.open_csv(raw, parse_options=parse).schema.names)
    if len(names) == 1 and relation.find(names[0]) is None and any(mark in names[0] for mark in ";\t|"):
        raise UsageError(f"{file} has one column, {names[0]!r}", hint="separate the cells by commas")
    return names


def _numbers(first: int, count: int, misshapen: dict[int, str]) -> tuple[Index, list[BadRow]]:
    """The numbers of `count` good rows from `first` on, and the misshapen rows among them.

    >>> misshapen = {4: "short", 9: "long"}
    >>> _numbers(3, 3, misshapen), misshapen
    ((array([3, 5, 6]), [BadRow(row=4, reason='short')]), {9: 'long'})
    """
    among: list[int] = []
    for number in sorted(misshapen):
        if number < first + count + len(among):
            among.append(number)
    bad = [BadRow(number, misshapen.pop(number)) for number in among]
    return np.setdiff1d(np.arange(first, first + count + len(among)), np.array(among, np.int64)), bad


class _CsvReader:
    """Converts cells to values. In an open stream, the first batch of cells determines a column's type."""

    def __init__(self, relation: Table | Stream) -> None:
        self.relation = relation
        self.types: dict[str, Type] = {"_op": Type.STRING, "_seq": Type.STRING}
        for field in relation.fields:
            self.types[field.name.lower()] = field.type

    def batch(self, rows: Any, numbers: Index, bad: list[BadRow], share: float) -> EventBatch:
        columns: list[Any] = []
        misfits: dict[str, list[int]] = {}
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            fitted, wrong = fit(column, self._type(name, column))
            columns.append(fitted)
            if wrong:
                misfits[name] = wrong
        typed = pa.RecordBatch.from_arrays(columns, rows.schema.names)
        if not misfits:
            return _batch(_arrow(self.relation, typed), numbers, bad, share)
        if self.relation.open:  # values may be of any type
            return self._mixed(rows, typed, misfits, numbers, bad, share)
        reasons: dict[int, str] = {}
        for name, wrong in misfits.items():
            for i in wrong:
                cell, type_ = rows[name][i].as_py(), self._type(name, None)
                reasons.setdefault(i, f"column {name}: {cell!r} is not a {type_}")
        good, bad = _split_bad(numbers, bad, reasons)
        return _batch(_arrow(self.relation, typed.take(pa.array(good))), numbers[good], bad, share)

    def _type(self, name: str, column: Any) -> Type:
        key = name if self.relation.open else name.lower()
        if key not in self.types and column is not None:
            found = infer(column)
            if found is None:
                return Type.STRING  # no cell yet: the next batch decides
            self.types[key] = found
        return self.types[key]

    def _mixed(
        self,
        rows: Any,
        typed: Any,
        misfits: dict[str, list[int]],
        numbers: Index,
        bad: list[BadRow],
        share: float,
    ) -> EventBatch:
        dicts = typed.to_pylist()
        for name, wrong in misfits.items():
            for i in wrong:
                dicts[i][name] = guess(rows[name][i].as_py())
        return _from_dicts(dicts, self.relation, numbers, bad, share)


# -- cells of CSV ------------------------------------------------------------------------------------

NULLS = ("", "NA", "N/A", "NULL", "null")  # in columns of text, only an empty cell is NULL
_TRIED = (Type.BIGINT, Type.DOUBLE, Type.BOOLEAN, Type.DATE, Type.TIMESTAMP)
_TRIED_FIRST = 256  # cells, from all over the column, that rule out most types
_FEW = 0.1  # share of a column's cells that may be of another type
_TRUTHS = {"true": True, "false": False, "1": True, "0": False}


def fit(column: Any, type: Type) -> tuple[Any, list[int]]:
    """A column of text as a type, and the positions of cells that are not of it (they become NULL).

    The whole column is cast at once. Only if that fails, each distinct text is converted by itself, so that a
    bad cell costs its own row and no other.

    >>> column = pa.array(["3", "2.5", "", "x"])
    >>> fit(column, Type.DOUBLE)[0].to_pylist(), fit(column, Type.DOUBLE)[1]
    ([3.0, 2.5, None, None], [3])
    """
    if type is Type.STRING:
        return column, []
    column = _plain(column)
    whole = _cast(column, type)
    if whole is not None:
        return whole, []
    encoded = column.dictionary_encode()
    values: list[Any] = []
    wrong: list[int] = []
    for n, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            values.append(_value(text, type))
        except (ValueError, OverflowError):
            values.append(None)
            wrong.append(n)
    which = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(np.isin(which, wrong)).tolist()
    return pa.array(values, type.arrow).take(encoded.indices), bad


def infer(column: Any) -> Type | None:
    """The type of a column of text; None if all cells are empty.

    It is the first type that all cells have: BIGINT, DOUBLE, BOOLEAN, DATE, TIMESTAMP; else the one that most
    cells have, at least nine of ten; else STRING.

    >>> infer(pa.array(["3", "", "4"])), infer(pa.array(["2013-01-31", "2013-02-01 05:00"]))
    (<Type.BIGINT: 'BIGINT'>, <Type.TIMESTAMP: 'TIMESTAMP'>)
    >>> infer(pa.array(["3", "2.5", "", "x"])), infer(pa.array(["warming up"] * 100 + ["5"] * 900))
    (<Type.STRING: 'STRING'>, <Type.BIGINT: 'BIGINT'>)
    """
    column = _plain(column)
    count = len(column) - column.null_count
    if not count:
        return None
    for type in _TRIED:
        if _cast(column, type) is not None:
            return type
    some = column.drop_null().take(pa.array(np.linspace(0, count - 1, min(count, _TRIED_FIRST)).astype(int)))
    likely = [type for type in _TRIED if len(fit(some, type)[1]) <= 3 * _FEW * len(some)]
    misfits = {type: len(fit(column, type)[1]) for type in likely}
    best = min(likely, key=lambda type: misfits[type], default=Type.STRING)
    return best if misfits.get(best, count) <= _FEW * count else Type.STRING


def guess(text: str) -> int | float | str:
    """The value of a cell that is not of its column's type: a number, or the text itself.

    >>> guess("2.5"), guess("n/a")
    (2.5, 'n/a')
    """
    for type in (Type.BIGINT, Type.DOUBLE):
        try:
            number: int | float = _value(text.strip(), type)
        except (ValueError, OverflowError):
            continue
        return number
    return text


def _plain(column: Any) -> Any:
    trimmed = pc.utf8_trim_whitespace(column)
    nothing = pc.is_in(trimmed, value_set=pa.array(NULLS))
    return pc.if_else(nothing, pa.scalar(None, pa.string()), trimmed)


def _cast(column: Any, type: Type) -> Any:
    """The whole column, or None if Arrow cannot read some cell."""
    ways = (pa.timestamp("us"), type.arrow) if type is Type.TIMESTAMP else (type.arrow,)  # without zone, with
    for way in ways:
        try:
            return pc.cast(column, way)
        except pa.ArrowInvalid:
            continue
    return None


def _value(text: str, type: Type) -> Any:
    if type in (Type.DATE, Type.TIMESTAMP):
        return read(type, text)
    if type is Type.BOOLEAN:
        if text.lower() not in _TRUTHS:
            raise ValueError(text)
        return _TRUTHS[text.lower()]
    if "_" in text:  # Python accepts 1_000
        raise ValueError(text)
    number = float(text)
    if type is Type.DOUBLE:
        return number
    if text.lstrip("+-").isdigit():
        return read(type, int(text))
    return read(type, int(number) if number.is_integer() else number)  # 5.0, as some programs write 5

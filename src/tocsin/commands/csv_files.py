"""Reads CSV in blocks of rows; only a few blocks are in memory, however long the file is.

The first line has the names. Every column is read as bytes and converted by `cells.py`. A row with too few or
too many cells, or with a cell that is not UTF-8, is bad. An empty line is skipped; in a file of one column it
is a row whose cell is empty (NULL). A row longer than a block is read again with larger blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from tocsin.commands.cells import fit, own_types
from tocsin.errors import BadRow, TocsinError, UsageError
from tocsin.language.scope import nearest
from tocsin.model.buffers import to_arrow
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index
from tocsin.model.schema import Stream, Table, Type

__all__ = ["MOST_BLOCK", "CsvPart", "check_columns", "read_csv"]

BLOCK = 1 << 20  # bytes per read
MOST_BLOCK = 2**31 - 1


class CsvPart(NamedTuple):
    """Consecutive rows: converted ones, with the number of each in the file, and bad ones."""

    made: tuple[ChangeBatch, list[BadRow]]  # by position in `numbers`
    numbers: Index
    bad: list[BadRow]  # by number in the file
    share: float  # of the file read so far


class _Rows(NamedTuple):
    """Consecutive rows with cells as bytes; their numbers, and misshapen rows among them."""

    cells: Any
    numbers: Index
    bad: list[BadRow]

    def after(self, number: int) -> _Rows:
        """The rows from a number on."""
        kept = np.flatnonzero(self.numbers >= number)
        bad = [row for row in self.bad if row.row >= number]
        return _Rows(self.cells.take(to_arrow(kept)), self.numbers[kept], bad)


def read_csv(file: Path, relation: Table | Stream, size: int, block: int = BLOCK) -> Iterator[CsvPart]:
    """The rows of a file in parts of at most `size`, as changes of a relation."""
    length, done = file.stat().st_size, 0
    for rows in _all_rows(file, relation, size, block):
        done += _bytes(rows.cells)
        cells, numbers, bad = _decoded(rows)
        made, good, bad = _changes(relation, cells, numbers, bad)
        yield CsvPart(made, good, bad, done / length)


def check_columns(file: Path, relation: Table | Stream, names: Sequence[str]) -> None:
    """Raise for a column that the stream or table does not have, before any row is read."""
    for name in names:
        if not relation.open and name not in ("_op", "_seq") and relation.find(name) is None:
            known = f"it has {', '.join(relation.names)}; or declare it open: CREATE STREAM {relation.name}"
            raise TocsinError(
                f"{file}: {relation.name} has no column {name!r}", hint=nearest(name, relation.names) or known
            )


# -- rows -------------------------------------------------------------------------------------------------


def _all_rows(file: Path, relation: Table | Stream, size: int, block: int) -> Iterator[_Rows]:
    """All rows. If a row does not fit into a block, the file is read again, with larger blocks."""
    following, names = 0, None  # the number of the next row
    while True:
        try:
            if names is None:
                names = _header(file, relation, block)
                check_columns(file, relation, names)
            for rows in _rows(file, names, size, block):
                last = max([following - 1, *rows.numbers[-1:].tolist(), *(row.row for row in rows.bad)])
                if last >= following:
                    yield rows.after(following)
                    following = last + 1
            return
        except pa.ArrowInvalid as error:
            if "straddl" not in str(error) or block >= MOST_BLOCK:
                raise
            block = min(16 * block, MOST_BLOCK)


def _rows(file: Path, names: list[str], size: int, block: int) -> Iterator[_Rows]:
    misshapen: dict[int, str] = {}  # rows with too few or too many cells, also ahead of the current part
    first = 0

    def skip(row: Any) -> str:
        reason = f"malformed row: {row.actual_columns} cells instead of {row.expected_columns}"
        misshapen[row.number - 2] = reason  # the header is row 1
        return "skip"

    with file.open("rb") as raw:
        raw.seek(_empty_lines(file))
        stream = csv.open_csv(
            raw,
            read_options=csv.ReadOptions(block_size=block, use_threads=False),
            parse_options=csv.ParseOptions(
                newlines_in_values=True, invalid_row_handler=skip, ignore_empty_lines=len(names) > 1
            ),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.binary() for name in names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for read in stream:
            for start in range(0, read.num_rows, size):
                cells = read.slice(start, size)
                numbers, bad = _numbers(first, cells.num_rows, misshapen)
                first += len(numbers) + len(bad)
                yield _Rows(cells, numbers, bad)
    if misshapen:  # after the last good row
        nothing = pa.RecordBatch.from_pylist([], pa.schema([(name, pa.binary()) for name in names]))
        bad = [BadRow(number, reason) for number, reason in sorted(misshapen.items())]
        yield _Rows(nothing, np.empty(0, np.int64), bad)


def _header(file: Path, relation: Table | Stream, block: int) -> list[str]:
    with file.open("rb") as raw:
        parse = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda _: "skip")
        options = csv.ReadOptions(block_size=block, use_threads=False)
        names = list(csv.open_csv(raw, options, parse).schema.names)
    if len(names) == 1 and relation.find(names[0]) is None and any(mark in names[0] for mark in ";\t|"):
        raise UsageError(f"{file} has one column, {names[0]!r}", hint="separate the cells by commas")
    return names


def _empty_lines(file: Path) -> int:
    """The bytes of empty lines before the names."""
    with file.open("rb") as raw:
        head = raw.read(BLOCK)
    return len(head) - len(head.lstrip(b"\r\n"))


def _bytes(cells: Any) -> int:
    """About how many bytes the rows have in the file, without quotes. (Arrow reads far ahead in the file.)"""
    inside = sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in cells)
    return int(inside + cells.num_rows * cells.num_columns)


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


# -- cells ------------------------------------------------------------------------------------------------


def _decoded(rows: _Rows) -> tuple[Any, Index, list[BadRow]]:
    """Rows with cells as text; a row with a cell that is not UTF-8 is bad."""
    cells, numbers, bad = rows
    names = cells.schema.names
    try:
        texts = [pc.cast(column, pa.string()) for column in cells.columns]
    except pa.ArrowInvalid:
        reasons: dict[int, str] = {}
        for name, column in zip(names, cells.columns, strict=True):
            for i, cell in enumerate(column.to_pylist()):
                try:
                    (cell or b"").decode()
                except UnicodeDecodeError as error:
                    reasons.setdefault(i, f"malformed row: column {name} is not UTF-8, byte {error.start}")
        good, bad = _split_bad(numbers, bad, reasons)
        return _decoded(_Rows(cells.take(to_arrow(good)), numbers[good], bad))
    return pa.RecordBatch.from_arrays(texts, names), numbers, bad


def _split_bad(numbers: Index, bad: list[BadRow], reasons: dict[int, str]) -> tuple[Index, list[BadRow]]:
    """The positions of good rows, and all bad rows: the given ones and those with a reason (by position)."""
    good = np.setdiff1d(np.arange(len(numbers)), np.array(list(reasons), np.int64))
    return good, [*bad, *(BadRow(int(numbers[i]), reason) for i, reason in reasons.items())]


def _changes(
    relation: Table | Stream, cells: Any, numbers: Index, bad: list[BadRow]
) -> tuple[tuple[ChangeBatch, list[BadRow]], Index, list[BadRow]]:
    """Rows as changes: those that could be made, the numbers of the rows they are from, and bad rows."""
    names: list[str] = []
    columns: list[Any] = []
    reasons: dict[int, str] = {}
    for name, column in zip(cells.schema.names, cells.columns, strict=True):
        if name == "_seq":
            continue  # the order of the file counts
        field = None if relation.open else relation.find(name)
        if name == "_op" or field is not None:
            type_ = field.type if field is not None else Type.STRING
            fitted, wrong = fit(column, type_)
            for i in wrong:
                reasons.setdefault(i, f"column {name}: {column[i].as_py()!r} is not a {type_}")
            found = [fitted]
        else:
            found = own_types(column)
        names.extend([name] * len(found))
        columns.extend(found)
    table = pa.table(columns, names=names) if names else pa.table({"_op": ["insert"] * len(numbers)})
    if reasons:
        good, bad = _split_bad(numbers, bad, reasons)
        table, numbers = table.take(to_arrow(good)), numbers[good]
    return ChangeBatch.from_columns(relation, table), numbers, bad

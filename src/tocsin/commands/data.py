"""Reads rows from files into an engine.

stocks.json            one JSON object per line (or one array): rows of the table `stocks`
stocks.csv, .parquet   the same in other formats
anything.json          lines {"table": ..., "op": ..., "row": {...}}: changes of several tables
a folder               all such files in it, in order of name
a saved engine         the output of Engine.save
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tocsin.commands.csv_files import MOST_BLOCK, read_csv
from tocsin.engine import Engine
from tocsin.errors import BadRow, TocsinError, UsageError
from tocsin.model.change import ChangeBatch
from tocsin.model.schema import Table

__all__ = [
    "FORMATS",
    "JSON",
    "check_format",
    "is_saved_engine",
    "json_rows",
    "load_data",
    "reading",
]

JSON = (".json", ".jsonl", ".ndjson")
FORMATS = (*JSON, ".csv", ".parquet")


def is_saved_engine(path: Path) -> bool:
    return (path / "manifest.json").is_file()


def load_data(engine: Engine, path: Path) -> int:
    """Apply the rows of a file, or of the files of a folder; return how many."""
    files = sorted(f for f in path.iterdir() if f.suffix in FORMATS) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"there is no data in {path}", hint=f"files end in {', '.join(FORMATS)}")
    return sum(_load(engine, file) for file in files)


def check_format(file: Path, formats: tuple[str, ...] = FORMATS) -> None:
    """Raise unless the name of a file ends in one of the formats."""
    if file.suffix not in formats:
        raise UsageError(f"{file} has an unknown format", hint=f"files end in {', '.join(formats)}")


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn an error while reading a file into one that names the file."""
    try:
        yield
    except TocsinError:
        raise
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} cannot be read: byte {error.start} is not UTF-8", hint="save it as UTF-8"
        ) from None
    except (OSError, ValueError, pa.ArrowException) as error:
        fact = f"{file} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UsageError(fact, hint=_hint(error)) from None


def _hint(error: Exception) -> str | None:
    if isinstance(error, OSError):
        return None
    if "UTF8" in str(error):
        return "save it as UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return "one JSON object per line, or one array of them"
    return "is it a Parquet file?" if "Parquet" in str(error) else None


def _load(engine: Engine, file: Path) -> int:
    check_format(file)
    with reading(file):
        if file.suffix == ".csv":
            return _load_csv(engine, file)
        if file.suffix == ".parquet":
            import pyarrow.parquet as parquet

            return _apply_table(engine, file.stem, parquet.read_table(file))
        rows = json_rows(file)
    if rows and all("table" in row and "row" in row for row in rows):
        for row in rows:
            body = json.loads(row["row"]) if isinstance(row["row"], str) else row["row"]
            _apply_rows(engine, row["table"], [body], row.get("op", "insert"), file)
    else:
        _apply_rows(engine, file.stem, rows, "insert", file)
    return len(rows)


def _load_csv(engine: Engine, file: Path) -> int:
    """Apply a whole file: nothing of it if a cell is bad, and up to 2 GB all rows as one step."""
    relation, size = engine.schema(file.stem), file.stat().st_size
    parts = list(read_csv(file, relation, MOST_BLOCK, min(size + 1, MOST_BLOCK))) if size else []
    numbered = [BadRow(int(part.numbers[i]), reason) for part in parts for i, reason in part.made[1]]
    bad = sorted([*numbered, *(row for part in parts for row in part.bad)])
    if bad:
        raise TocsinError(f"{file}, row {bad[0].row}: {bad[0].reason}")
    for part in parts:
        engine.apply(relation.name, part.made[0])
    return sum(len(part.numbers) for part in parts)


def json_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a whole file: one object per line, or one array. A ValueError describes a bad row."""
    text = file.read_text(encoding="utf-8-sig")
    if text.lstrip().startswith("["):
        rows = json.loads(text)
    else:
        rows = [_json_line(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a row is not a JSON object")
    return list(rows)


def _json_line(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None


def _apply_rows(engine: Engine, table: str, rows: Iterable[dict[str, Any]], op: str, file: Path) -> None:
    batch, bad = ChangeBatch.from_dicts(engine.schema(table), list(rows), op, json=True)
    if bad:
        raise TocsinError(f"{file}, row {bad[0].row}: {bad[0].reason}")
    engine.apply(batch.relation.name, batch)


def _apply_table(engine: Engine, table: str, rows: pa.Table) -> int:
    """Apply rows, each column cast to its declared type (an integer to DOUBLE, a timestamp of any unit)."""
    schema = engine.schema(table)
    if isinstance(schema, Table):
        for i, name in enumerate(rows.column_names):
            field = schema.find(name)
            if field is not None and rows[name].type != field.type.arrow:
                rows = rows.set_column(i, field.name, rows[name].cast(field.type.arrow))
    engine.apply(schema.name, rows)
    return int(rows.num_rows)

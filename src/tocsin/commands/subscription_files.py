"""Subscriptions from a file, into an engine.

alerts.sql                   CREATE statements and SELECTs; a comment `-- id: 7` gives an id
alerts.jsonl, .csv, .parquet a column `sql`, and perhaps `id` and `subscriber`
the same without `sql`       columns `id` and `predicates` (`tocsin.language.predicates`), of one stream

Definitions come from the file or from a schema file. Without any, each stream that a SELECT
names is declared open: its events may have any attributes.

>>> engine = Engine()
>>> subscribe_all(engine, SubscriptionTexts(["SELECT * FROM hits WHERE n > 5", "SELECT * FROM `big hits`"]))
>>> print(*engine.schemas(), sep="; ")
CREATE STREAM hits; CREATE STREAM `big hits`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from tocsin.commands.data import FORMATS, JSON, check_format, json_rows, reading
from tocsin.commands.output import read_text
from tocsin.commands.validate import is_definition, position_in_file, with_position
from tocsin.engine import Engine
from tocsin.errors import BadRow, SubscriptionError, TocsinError, UsageError
from tocsin.language.scope import nearest
from tocsin.language.statements import Statement, lexemes, split_statements
from tocsin.model.schema import Stream, quote

__all__ = [
    "HIGHEST",
    "LOWEST",
    "SubscriptionTexts",
    "load_schema",
    "load_subscriptions",
    "number",
    "split_statements",
    "subscribe_all",
]

LOWEST, HIGHEST = -(2**62), 2**63 - 1  # ids that a subscription may have


def number(statements: Iterable[Statement], taken: set[int], state: Path | None) -> list[tuple[int, str]]:
    """The statements with their ids; `taken` are ids given elsewhere, `state` is the pipeline's folder."""
    statements = list(statements)
    said = [_said(statement) for statement in statements]
    taken = set(taken)
    for id, statement in zip(said, statements, strict=True):
        if id is not None and id in taken:
            raise UsageError(f"line {statement.line}: id {id} is given twice", hint="give another -- id:")
        taken |= {id} if id is not None else set()
    kept, used = _on_disk(state) if statements and state is not None else ({}, set())
    found: list[int | None] = []
    for id, statement in zip(said, statements, strict=True):
        same = [known for known in kept.get(statement.text, ()) if known not in taken]
        found.append(id if id is not None else next(iter(same), None))
        taken |= {found[-1]} if found[-1] is not None else set()
    free = _free(taken, used)
    return [
        (id if id is not None else next(free), statement.text)
        for id, statement in zip(found, statements, strict=True)
    ]


def _said(statement: Statement) -> int | None:
    """The id that a comment gives."""
    said = [c.strip()[3:].strip() for c in statement.comments if c.strip().startswith("id:")]
    if not said:
        return None
    if len(said) > 1 or not re.fullmatch(r"-?\d{1,19}", said[0]) or not LOWEST <= int(said[0]) <= HIGHEST:
        raise UsageError(
            f"line {statement.line}: '-- id: {' and '.join(said)}' is no id",
            hint="write one whole number, as in -- id: 7",
        )
    return int(said[0])


def _free(taken: set[int], used: set[int]) -> Iterator[int]:
    """Numbers that nobody has or had, in order."""
    start = max(used | {0}) + 1
    yield from (n for n in range(start, HIGHEST + 1) if n not in taken)
    raise UsageError(f"there is no free id above {HIGHEST}", hint="give one with a comment: -- id: 7")


def _on_disk(state: Path) -> tuple[dict[str, list[int]], set[int]]:
    """The ids by text of the newest version, and the ids of all versions."""
    folder = state / "subscriptions"
    if not folder.is_dir():  # spares a first run the import
        return {}, set()
    from tocsin.spark.versions.store import Versions

    versions = Versions(folder)
    by_text: dict[str, list[int]] = {}
    used: set[int] = set()
    for version in versions.numbers():
        by_text = {}
        found = versions.load(version)
        used.update(found.subscriptions.ids.tolist())
        for row in found.table.select(["id", "sql"]).to_pylist():
            by_text.setdefault(row["sql"], []).append(row["id"])
    return by_text, used


OPEN = "events"  # the stream that predicates are of if nothing is declared
SHOWN = 5  # bad rows in an error
_NUMBER = re.compile(r" *[+-]?\d{1,19} *")
_COLUMNS = "columns are sql, id, subscriber; or id, predicates, subscriber"


@dataclass(frozen=True)
class SubscriptionTexts:
    """SQL texts, whose they are, and what to call the place of each in an error."""

    sql: Sequence[str]
    ids: Sequence[int] | None = None
    subscribers: Sequence[str | None] | None = None
    places: Sequence[str] | None = None
    statements: Sequence[Statement] | None = None  # of a file with this text:
    text: str = field(default="", repr=False)

    def place(self, row: int) -> str:
        return self.places[row] if self.places is not None else f"row {row}"

    def error(self, row: int, error: TocsinError) -> TocsinError:
        """The error with its place in the file, if that is known."""
        if self.statements is None:
            return error
        return with_position(error, position_in_file(error.position, self.statements[row], self.text))


def load_schema(engine: Engine, file: Path) -> None:
    """Declare what a file of definitions declares."""
    text = read_text(file)
    for statement in split_statements(text):
        _define(engine, file, statement, text)


def load_subscriptions(engine: Engine, file: Path, *, relation: str | None = None) -> None:
    """Take in all subscriptions of a file, or raise an error that names the first bad one.

    `relation` is the stream that columns of predicates are about.
    """
    if file.suffix == ".sql":
        _load_sql(engine, file)
        return
    check_format(file, (".sql", *FORMATS))
    with reading(file):
        table = _read(file)
    if not table.num_rows:
        raise UsageError(f"there are no subscriptions in {file}", hint=_COLUMNS)
    if "sql" in table.column_names:
        subscribe_all(engine, _texts(file, table), str(file))
    elif "predicates" in table.column_names:
        _load_predicates(engine, file, table, relation)
    else:
        near = next(
            (hint for name in table.column_names if (hint := nearest(name, ["sql", "predicates"]))), None
        )
        found = ", ".join(table.column_names)
        raise UsageError(f"{file} has no column 'sql' or 'predicates' but {found}", hint=near or _COLUMNS)


def subscribe_all(engine: Engine, texts: SubscriptionTexts, where: str = "") -> None:
    """Take in SQL texts, all or none; declares the streams they name if nothing is declared."""
    if not engine.schemas():
        for name in _streams(texts.sql):
            engine.execute(f"CREATE STREAM {quote(name)}")
    try:
        _subscribe(engine, texts)
    except SubscriptionError as error:
        if not error.rows:
            raise
        raise _refusal(engine, texts, error.rows, where) from None


# -- SQL ---------------------------------------------------------------------------------------------


def _load_sql(engine: Engine, file: Path) -> None:
    text = read_text(file)
    statements = split_statements(text)
    for statement in statements:
        if is_definition(statement.text):
            _define(engine, file, statement, text)
    selects = [statement for statement in statements if not is_definition(statement.text)]
    if not selects:
        raise UsageError(f"there are no subscriptions in {file}", hint="write SELECT ... FROM ...;")
    numbered = number(selects, set(), None)
    texts = SubscriptionTexts(
        [sql for _, sql in numbered],
        [id for id, _ in numbered],
        places=[f"line {statement.line}" for statement in selects],
        statements=selects,
        text=text,
    )
    subscribe_all(engine, texts, str(file))


def _define(engine: Engine, file: Path, statement: Statement, text: str) -> None:
    try:
        engine.execute(statement.text)
    except TocsinError as error:
        there = with_position(error, position_in_file(error.position, statement, text))
        raise TocsinError(
            f"{file}, line {statement.line}: {there.fact}", there.position, there.hint
        ) from None


def _subscribe(engine: Engine, texts: SubscriptionTexts) -> None:
    """SubscriptionError has all bad rows."""
    together = getattr(engine, "subscribe_texts", None)
    if together is not None:
        together(list(texts.sql), ids=texts.ids, subscribers=texts.subscribers)
        return
    bad: list[BadRow] = []
    nobody = [None] * len(texts.sql)
    for row, (sql, id, subscriber) in enumerate(
        zip(texts.sql, texts.ids or nobody, texts.subscribers or nobody, strict=True)
    ):
        try:
            engine.subscribe(sql, id=id, subscriber=subscriber)
        except TocsinError as error:
            bad.append(BadRow(row, error.fact))
    if bad:
        raise SubscriptionError("bad rows", rows=tuple(bad))


def _refusal(engine: Engine, texts: SubscriptionTexts, bad: Sequence[BadRow], where: str) -> TocsinError:
    """The first bad text with the place in it, and the next ones by their reasons."""
    first = bad[0]
    try:
        engine.subscribe(texts.sql[first.row])
        error = TocsinError(first.reason)  # the text is good: its id is not
    except TocsinError as found:
        error = texts.error(first.row, found)
    fact = f"{where}, {texts.place(first.row)}: {error.fact}".removeprefix(", ")
    others = [f"{texts.place(row)}: {reason.splitlines()[0]}" for row, reason in bad[1:SHOWN]]
    if len(bad) > SHOWN:
        others.append(f"and {len(bad) - SHOWN:,} more")
    hint = "\n".join([*([error.hint] if error.hint else []), *(f"also {other}" for other in others)])
    return TocsinError(fact, error.position, hint.replace("also and", "and") or None)


def _streams(texts: Iterable[str]) -> list[str]:
    """What the texts say FROM, each once; names that differ only by case are one."""
    cuts = ((text, text.lower().find("where")) for text in texts)
    heads = dict.fromkeys(text[:at] if at >= 0 else text for text, at in cuts)
    found: dict[str, str] = {}
    for head in heads:
        after = False
        for word in lexemes(head):
            if word.kind in ("space", "comment"):
                continue
            if after and word.kind in ("word", "name"):
                name = word.text[1:-1].replace("``", "`") if word.kind == "name" else word.text
                found.setdefault(name.lower(), name)
            after = word.kind == "word" and word.text.upper() in ("FROM", "JOIN")
    return list(found.values())


# -- columns -----------------------------------------------------------------------------------------


def _read(file: Path) -> Any:
    """A whole file as a table; texts stay texts, whatever they look like."""
    if file.suffix == ".parquet":
        return parquet.read_table(file)
    if file.suffix in JSON:
        rows = json_rows(file)
        names = list(dict.fromkeys(name for row in rows for name in row))
        if "sql" not in names and "predicates" not in names:
            return pa.table({name: pa.nulls(len(rows)) for name in names})
        _check_texts(file, [row.get("sql") for row in rows] if "sql" in names else [])
        known = [name for name in ("id", "sql", "subscriber", "predicates") if name in names]
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in known})
    if file.stat().st_size == 0:
        return pa.table({})
    options = csv.ConvertOptions(
        column_types={"sql": pa.string(), "subscriber": pa.string()},
        null_values=[""],
        strings_can_be_null=True,
    )
    parse = csv.ParseOptions(newlines_in_values=True)
    return csv.read_csv(file, parse_options=parse, convert_options=options)


def _texts(file: Path, table: Any) -> SubscriptionTexts:
    sql = table.column("sql").to_pylist()
    _check_texts(file, sql)
    subscribers = None
    if "subscriber" in table.column_names:
        given = table.column("subscriber").to_pylist()
        subscribers = [None if who is None else str(who) for who in given]
    return SubscriptionTexts(sql, _ids(file, table), subscribers)


def _check_texts(file: Path, sql: list[Any]) -> None:
    for row, text in enumerate(sql):
        if not isinstance(text, str):
            raise TocsinError(f"{file}, row {row}: sql is {text!r}", hint="write SELECT ... FROM ...")


def _ids(file: Path, table: Any) -> list[int]:
    """The ids given; rows without one have the lowest that are free, from 1 on."""
    given = table.column("id").to_pylist() if "id" in table.column_names else [None] * table.num_rows
    if file.suffix == ".csv":  # one cell that is no number makes all of them text
        given = [int(id) if isinstance(id, str) and _NUMBER.fullmatch(id) else id for id in given]
    seen: dict[int, int] = {}
    for row, id in enumerate(given):
        if id is None:
            continue
        if isinstance(id, bool) or not isinstance(id, int) or not LOWEST <= id <= HIGHEST:
            raise TocsinError(f"{file}, row {row}: {id!r} is no id", hint="ids are whole numbers")
        if id in seen:
            raise TocsinError(f"{file}, row {row}: id {id} is that of row {seen[id]} too")
        seen[id] = row
    free = (n for n in range(1, HIGHEST) if n not in seen)
    return [next(free) if id is None else id for id in given]


def _load_predicates(engine: Engine, file: Path, table: Any, relation: str | None) -> None:
    streams = [known.name for known in engine.schemas() if isinstance(known, Stream)]
    if not engine.schemas():
        engine.execute(f"CREATE STREAM {quote(relation or OPEN)}")
        streams = [relation or OPEN]
    if relation is None and len(streams) != 1:
        raise UsageError(
            f"it is not clear which stream the predicates in {file} are of",
            hint=f"use --relation: there is {', '.join(known.name for known in engine.schemas())}",
        )
    ids = pa.array(_ids(file, table), pa.int64())
    kept = [name for name in ("predicates", "subscriber") if name in table.column_names]
    try:
        engine.subscribe_predicates(relation or streams[0], table.select(kept).append_column("id", ids))
    except SubscriptionError as error:
        if not error.rows:
            raise SubscriptionError(f"{file}: {error.fact}", error.hint) from None
        shown = [f"{file}, row {row}: {reason}" for row, reason in error.rows[:SHOWN]]
        more = [f"and {len(error.rows) - SHOWN:,} more"] if len(error.rows) > SHOWN else []
        raise SubscriptionError("\n".join([*shown, *more])) from None

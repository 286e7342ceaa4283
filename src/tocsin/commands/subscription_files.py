"""Reads the subscriptions of a file into an engine.

    alerts.sql                     CREATE statements and SELECTs; a comment `-- id: 7` sets an id
    alerts.jsonl, .csv, .parquet   a column `sql`, optionally `id` and `subscriber`
    the same without `sql`         columns `id` and `predicates` (`tocsin.language.predicates`), of one stream

Definitions come from the file or from a schema file. Without any, each stream that a SELECT names is declared
open: its events may have any attributes.

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

from tocsin.commands.data import FORMATS, JSON, check_format, json_rows, reading
from tocsin.commands.output import read_text
from tocsin.commands.stdin import spooled
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
    "declare_streams",
    "load_schema",
    "load_subscriptions",
    "number_statements",
    "split_statements",
    "subscribe_all",
]

LOWEST, HIGHEST = -(2**62), 2**63 - 1  # ids that a subscription may have

# -- ids ---------------------------------------------------------------------------------------------


def number_statements(
    statements: Iterable[Statement], reserved: set[int], state: Path | None
) -> list[tuple[int, str]]:
    """The SELECTs of a file with their ids, so that the file can be edited between two runs.

    An id means one subscription forever (`tocsin.spark.versions`); a place in a file does not. So the id is

    1. the one in a comment before the statement, `-- id: 7`;
    2. else that of the same text in the newest version on disk;
    3. else a new one, above all ids ever used there.

    `reserved` are ids used elsewhere, `state` is the pipeline's folder.

    >>> first, second = split_statements("-- id: 7\\nSELECT * FROM s; SELECT a FROM s")
    >>> number_statements([first, second], reserved=set(), state=None)
    [(7, 'SELECT * FROM s'), (1, 'SELECT a FROM s')]
    """
    statements = list(statements)
    given = [_commented_id(statement) for statement in statements]
    reserved = set(reserved)
    for id, statement in zip(given, statements, strict=True):
        if id is not None and id in reserved:
            raise UsageError(f"line {statement.line}: id {id} is given twice", hint="give another -- id:")
        reserved |= {id} if id is not None else set()
    by_text, used = _ids_on_disk(state) if statements and state is not None else ({}, set())
    found: list[int | None] = []
    for id, statement in zip(given, statements, strict=True):
        same = [known for known in by_text.get(statement.text, ()) if known not in reserved]
        found.append(id if id is not None else next(iter(same), None))
        reserved |= {found[-1]} if found[-1] is not None else set()
    free = _free_ids(reserved, used)
    return [
        (id if id is not None else next(free), statement.text)
        for id, statement in zip(found, statements, strict=True)
    ]


def _commented_id(statement: Statement) -> int | None:
    """The id in the comments before a statement."""
    given = [c.strip()[3:].strip() for c in statement.comments if c.strip().startswith("id:")]
    if not given:
        return None
    if len(given) > 1 or not re.fullmatch(r"-?\d{1,19}", given[0]) or not LOWEST <= int(given[0]) <= HIGHEST:
        raise UsageError(
            f"line {statement.line}: '-- id: {' and '.join(given)}' is not an id",
            hint="write one whole number, as in -- id: 7",
        )
    return int(given[0])


def _free_ids(reserved: set[int], used: set[int]) -> Iterator[int]:
    """Ids that no subscription has or had, in order."""
    start = max(used | {0}) + 1
    yield from (n for n in range(start, HIGHEST + 1) if n not in reserved)
    raise UsageError(f"there is no free id above {HIGHEST}", hint="set one with a comment: -- id: 7")


def _ids_on_disk(state: Path) -> tuple[dict[str, list[int]], set[int]]:
    """The ids by text in the newest version, and the ids of all versions."""
    folder = state / "subscriptions"
    if not folder.is_dir():  # spares a first run the import of versions
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


OPEN = "events"  # the stream of predicates if none is declared
SHOWN = 5  # bad rows in an error
_NUMBER = re.compile(r" *[+-]?\d{1,19} *")
_COLUMNS = "columns are sql, id, subscriber; or id, predicates, subscriber"


@dataclass(frozen=True)
class SubscriptionTexts:
    """SQL texts with ids and subscribers, and how an error names the place of each."""

    sql: Sequence[str]
    ids: Sequence[int] | None = None
    subscribers: Sequence[str | None] | None = None
    places: Sequence[str] | None = None
    statements: Sequence[Statement] | None = None  # of a file with this text:
    text: str = field(default="", repr=False)

    def place(self, row: int) -> str:
        return self.places[row] if self.places is not None else f"row {row}"

    def error(self, row: int, error: TocsinError) -> TocsinError:
        """The error with its position in the file, if that is known."""
        if self.statements is None:
            return error
        return with_position(error, position_in_file(error.position, self.statements[row], self.text))


def load_schema(engine: Engine, file: Path) -> None:
    """Execute the definitions of a file."""
    text = read_text(file)
    for statement in split_statements(text):
        _define(engine, file, statement, text)


def load_subscriptions(engine: Engine, file: Path, *, relation: str | None = None) -> None:
    """Register all subscriptions of a file, or raise an error that names the first bad one.

    `relation` is the stream of a file with predicates. `-` is stdin.
    """
    with spooled(file, sql=True) as path:
        _load(engine, path, relation)


def _load(engine: Engine, file: Path, relation: str | None) -> None:
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


def declare_streams(engine: Engine, texts: Iterable[str]) -> None:
    """If nothing is declared, declare the streams that SELECTs name: open, so with any attributes."""
    if not engine.schemas():
        for name in _streams(texts):
            engine.execute(f"CREATE STREAM {quote(name)}")


def subscribe_all(engine: Engine, texts: SubscriptionTexts, where: str = "") -> None:
    """Register SQL texts, all or none; if nothing is declared, declare the streams they name."""
    declare_streams(engine, texts.sql)
    try:
        _subscribe(engine, texts)
    except SubscriptionError as error:
        if not error.rows:
            raise
        raise _error_of(engine, texts, error.rows, where) from None


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
    numbered = number_statements(selects, set(), None)
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
    """Register the texts; a SubscriptionError has all bad rows."""
    subscribe_texts = getattr(engine, "subscribe_texts", None)
    if subscribe_texts is not None:
        subscribe_texts(list(texts.sql), ids=texts.ids, subscribers=texts.subscribers)
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


def _error_of(engine: Engine, texts: SubscriptionTexts, bad: Sequence[BadRow], where: str) -> TocsinError:
    """The error of the first bad text with its position, and the reasons of the next ones."""
    first = bad[0]
    try:
        engine.subscribe(texts.sql[first.row])
        error = TocsinError(first.reason)  # the text is good, its id is bad
    except TocsinError as found:
        error = texts.error(first.row, found)
    fact = f"{where}, {texts.place(first.row)}: {error.fact}".removeprefix(", ")
    others = [f"{texts.place(row)}: {reason.splitlines()[0]}" for row, reason in bad[1:SHOWN]]
    if len(bad) > SHOWN:
        others.append(f"and {len(bad) - SHOWN:,} more")
    hint = "\n".join([*([error.hint] if error.hint else []), *(f"also {other}" for other in others)])
    return TocsinError(fact, error.position, hint.replace("also and", "and") or None)


def _streams(texts: Iterable[str]) -> list[str]:
    """The names after FROM and JOIN, each once; names that differ only in case are the same."""
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
    """A whole file as a table; SQL and subscribers stay texts, whatever they look like."""
    if file.suffix == ".parquet":
        import pyarrow.parquet as parquet

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
    import pyarrow.csv as csv

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
    """The given ids; a row without one gets the lowest free id from 1 on."""
    given = table.column("id").to_pylist() if "id" in table.column_names else [None] * table.num_rows
    if file.suffix == ".csv":  # one cell that is not a number makes the whole column text
        given = [int(id) if isinstance(id, str) and _NUMBER.fullmatch(id) else id for id in given]
    seen: dict[int, int] = {}
    for row, id in enumerate(given):
        if id is None:
            continue
        if isinstance(id, bool) or not isinstance(id, int) or not LOWEST <= id <= HIGHEST:
            raise TocsinError(f"{file}, row {row}: {id!r} is not an id", hint="ids are whole numbers")
        if id in seen:
            raise TocsinError(f"{file}, row {row}: id {id} is already used by row {seen[id]}")
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
            f"it is not clear which stream the predicates in {file} belong to",
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

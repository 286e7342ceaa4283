"""Windows over streams: which events of a stream a query with `window` reads.

A stream is windowed by arrival, or, with `late` or `time`, by event time: then one of its TIMESTAMP columns
is the time of an event. It need not be named if there is only one.

>>> from tocsin.model.schema import Field, Type
>>> hits = Stream("hits", (Field("page", Type.STRING), Field("at", Type.TIMESTAMP)))
>>> window_of(Options(window=60_000_000), TableRef("hits", "h"), hits)
WindowSpec(stream='hits', span=60000000, time=None, late=0, columns=None, absent=None, where=None)
>>> window_of(Options(window=60_000_000, late=5), TableRef("hits", "h"), hits).time
'at'
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tocsin.language.algebra import (
    And,
    Column,
    Existence,
    Predicate,
    Query,
    TableRef,
    Truth,
    atoms,
)
from tocsin.language.hints import nearest
from tocsin.language.options import Options
from tocsin.language.rewrite import NormalForm, normalise
from tocsin.language.shape import conjuncts
from tocsin.language.spans import BadAmount
from tocsin.model.expressions.derived import read_by
from tocsin.model.schema import Catalog, Stream, Type

__all__ = ["WindowSpec", "event_time", "over_windows", "window_of", "windows_of"]


class WindowSpec(NamedTuple):
    """The events of a stream's last `span` microseconds, by arrival or by a column of event time.

    `columns`: not the events, but the distinct values they have there, the keys; with `absent`, those that no
    event has now, for so long after the last one. Then only events that satisfy `where` count.
    """

    stream: str
    span: int
    time: str | None = None
    late: int = 0
    columns: tuple[str, ...] | None = None
    absent: int | None = None
    where: NormalForm | None = None

    @property
    def table(self) -> str:
        """The name of the table of its events.

        >>> WindowSpec("hits", 60_000_000, "at", 1_000_000).table
        "hits WITH (window = '1 minute', time = 'at', late = '1 second')"
        >>> WindowSpec("hits", 60_000_000, columns=("page",)).table
        "hits (page) WITH (window = '1 minute')"
        """
        options = Options(window=self.span, time=self.time, late=self.late or None, absent=self.absent)
        keys = "" if self.columns is None else f" ({', '.join(self.columns)})"
        where = "" if self.where is None else f" WHERE {self.where}"
        return f"{self.stream}{keys}{where} {options}"


def windows_of(query: Query, catalog: Catalog) -> tuple[WindowSpec | None, ...]:
    """By table of a query the window that it reads; None for tables, and if the query has no windows.

    A join of streams with a budget keeps rows of its own.
    """
    if query.options.window is None or query.options.memory is not None:
        return (None,) * len(query.tables)
    if query.branches:
        whole = [replace(branch, options=query.options) for branch in query.branches]
        return tuple(window for branch in whole for window in windows_of(branch, catalog))
    first, found = len(query.from_tables), list[WindowSpec | None]()
    for place, ref in enumerate(query.tables):
        relation = catalog[ref.name]
        if not isinstance(relation, Stream):
            found.append(None)
            continue
        window = window_of(query.options, ref, relation)
        if query.options.absent is not None:
            window = _of_absent(window, query)
        elif place >= first and (columns := _looked_at(query.exists[place - first], relation)):
            window = window._replace(columns=columns)
        found.append(window)
    return tuple(found)


def _looked_at(one: Existence, stream: Stream) -> tuple[str, ...]:
    """The columns of a subquery's stream that decide whether a partner exists."""
    used = {column for join in one.joins for column in (join.left, join.right)}
    used |= {atom.column for atom in atoms(one.where)} | set(one.member or ())
    names = {name for column in used if column.relation == one.alias for name in read_by(column.name)}
    return tuple(field.name for field in stream.fields if field.name in names)


def _of_absent(window: WindowSpec, query: Query) -> WindowSpec:
    """The keys of SELECT DISTINCT; conditions on other columns say which events count."""
    columns = tuple(dict.fromkeys(i.expression.name for i in query.items if isinstance(i.expression, Column)))
    parts = [part for part in conjuncts(query.where) if not _names(part) <= {*columns}]
    where = None if not parts else normalise(parts[0] if len(parts) == 1 else And(tuple(parts)))
    return window._replace(columns=columns, absent=query.options.absent, where=where)


def _names(part: Predicate) -> set[str]:
    return {name for atom in atoms(part) for name in read_by(atom.column.name)}


def over_windows(query: Query, windows: tuple[WindowSpec | None, ...]) -> Query:
    """The query over the tables of its windows' events, or of their keys."""
    tables = tuple(
        ref if window is None else replace(ref, name=window.table, stream=False)
        for ref, window in zip(query.tables, windows, strict=True)
    )
    branches, start = [], 0
    for branch in query.branches:
        own = windows[start : start + len(branch.tables)]
        branches.append(over_windows(branch, own))
        start += len(own)
    found = replace(query, tables=tables, branches=tuple(branches))
    if query.options.absent is None or windows[0] is None:
        return found
    keys = windows[0].columns or ()
    parts = tuple(part for part in conjuncts(query.where) if _names(part) <= {*keys})
    where = Truth(True) if not parts else parts[0] if len(parts) == 1 else And(parts)
    return replace(found, where=where, distinct=False)


def window_of(options: Options, ref: TableRef, stream: Stream) -> WindowSpec:
    """The window over a stream of a query; BadAmount if its event time is not known."""
    assert options.window is not None
    if options.late is None and options.time is None:
        return WindowSpec(stream.name, options.window)
    return WindowSpec(stream.name, options.window, event_time(options, ref, stream), options.late or 0)


def event_time(options: Options, ref: TableRef, stream: Stream) -> str:
    """The column of a stream's event time: named by `time`, or its only TIMESTAMP; else BadAmount.

    `time` has one name for all streams of the query, or several: `time = 'c.clicked, i.shown'`.
    """
    columns = [field.name for field in stream.fields if field.type is Type.TIMESTAMP]
    names = [name.strip().replace("`", "") for name in (options.time or "").split(",") if name.strip()]
    own = [name.partition(".")[2] for name in names if name.partition(".")[0].lower() == ref.alias.lower()]
    for name in own or [name for name in names if "." not in name]:
        for column in columns:
            if column.lower() == name.lower():
                return column
    if len(columns) == 1 and (not names or (len(names) > 1 and not own)):
        return columns[0]
    if not columns:
        hint = "leave out time and late for a window by arrival, or declare a TIMESTAMP column"
        raise BadAmount(f"{stream.name} has no TIMESTAMP column", hint)
    if names and not own and all("." in name for name in names):
        hint = f"name one for each stream: time = '{', '.join(names)}, {ref.alias}.{columns[0]}'"
        raise BadAmount(f"time names no column of {ref.alias}", hint)
    if names:
        wrong = (own or names)[0]
        hint = nearest(wrong, columns) or f"its TIMESTAMP columns are {', '.join(columns)}"
        raise BadAmount(f"there is no TIMESTAMP column {wrong!r} in {stream.name}", hint)
    first = f"name one: time = '{columns[0]}'"
    raise BadAmount(f"{stream.name} has {len(columns)} TIMESTAMP columns", first)

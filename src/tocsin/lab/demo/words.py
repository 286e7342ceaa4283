"""A delta in plain words: who is told what, and because of what.

The condition of the query is read beside the row that changed, atom by atom:

>>> from tocsin.language.algebra import Between, Column, Compare
>>> late, far = Compare(Column("dep_delay"), ">=", 45), Between(Column("distance"), 500, 900)
>>> reasons(And((late, far)), {"dep_delay": 95, "distance": 740}.get)
['dep_delay 95 is at least 45', 'distance 740 is between 500 and 900']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tocsin.lab.demo.check import conjuncts
from tocsin.lab.demo.flights import Change
from tocsin.lab.demo.received import Received
from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
    Query,
    Rlike,
    Truth,
    literal,
)
from tocsin.reference import holds

__all__ = ["Event", "Moment", "choose", "moments", "reasons", "tell"]

Read = Callable[[str], Any]


class Event(NamedTuple):
    """What one subscription was told of one change: rows that went, rows that came."""

    seq: int
    subscription: int
    gone: tuple[dict[str, Any], ...]
    come: tuple[dict[str, Any], ...]


class Moment(NamedTuple):
    """A change, with the row as it was before and after it."""

    change: Change
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def choose(received: Received, labels: Mapping[int, str], order: Sequence[str], seed: int) -> list[Event]:
    """One event of each shape in `order` (the first that have any), drawn by the seed."""
    ids = np.array(sorted(labels), np.int64)
    shapes = np.array([labels[number] for number in ids.tolist()])
    draw, found = Random(seed), []
    for label in order:
        mine = np.zeros(int(ids.max(initial=-1)) + 1, np.bool_)
        mine[ids[shapes == label]] = True
        come = mine[received.subscription] & (received.sign > 0) & (received.seq > 0)  # 0: held at the start
        telling = np.unique((received.seq[come] << 32) | received.subscription[come])
        if len(telling):  # not from the very beginning, when all is new
            key = int(telling[draw.choice(range(len(telling) // 3, len(telling)))])
            found.append(_event(received, key >> 32, key & 0xFFFFFFFF))
    return found


def _event(received: Received, seq: int, subscription: int) -> Event:
    places = np.flatnonzero((received.seq == seq) & (received.subscription == subscription))
    gone, come = (tuple(received.rows(places[received.sign[places] == sign])) for sign in (-1, 1))
    return Event(seq, subscription, gone, come)


def moments(
    changes: Iterable[Change], keys: Mapping[str, tuple[str, ...]], wanted: set[int]
) -> dict[int, Moment]:
    """The changes with these numbers, and the rows around them."""
    rows: dict[tuple[str, Any], dict[str, Any]] = {}
    found = {}
    for change in changes:
        key = (change.table, tuple(change.row[name] for name in keys[change.table]) or change.seq)
        before = rows.get(key, {})
        after = {} if change.op == "delete" else before | change.row
        rows[key] = after
        if change.seq in wanted:
            found[change.seq] = Moment(change, before, after)
    return found


def tell(event: Event, query: Query, subscriber: str, moment: Moment) -> str:
    """One event as a sentence or two."""
    when = f"{moment.change.time:%-d %B %H:%M}"
    news, why = _news(event, query), _because(event, query, moment)
    return f"{when}, {_happened(moment)}: {subscriber} is told {news}, {why}"


_VERBS = {"scheduled": "is announced", "departed": "departs", "arrived": "lands", "diverted": "is diverted"}


def _happened(moment: Moment) -> str:
    change, row = moment.change, moment.after or moment.before
    if change.table == "weather":
        return f"new weather at {row['origin']}"
    if change.table == "notices":
        return f"a notice ({row['kind']})"
    if change.table != "flights":
        return f"{change.op} of {change.table}"
    name = f"{row['carrier']} {row['flight']} from {row['origin']} to {row.get('dest')}"
    return f"{name} {'is cancelled' if change.op == 'delete' else _VERBS[row['status']]}"


def _news(event: Event, query: Query) -> str:
    """What is new in the answer; of a row that changed, only what changed."""
    come, gone = event.come[0], event.gone[0] if event.gone else None
    if gone is not None and query.limit is None:
        fresh = [name for name in come if come[name] != gone.get(name)]
        now = _and([f"{name} is now {_value(come[name])}" for name in fresh])
        return f"{now} (before: {', '.join(_value(gone.get(name)) for name in fresh)})"
    if query.limit is not None:
        order = _and([str(key.column) for key in query.order])
        return f"{_row(come)} is now among the first {query.limit} by {order}"
    return f"of {_row(come)}"


def _because(event: Event, query: Query, moment: Moment) -> str:
    change = moment.change
    if query.limit is not None and not _selected(moment.after, query):
        failed = [part for part in conjuncts(query.where) if not holds(part, moment.after)]
        left = f"it no longer has {_and(list(map(str, failed)))}" if moment.after else "it is gone"
        return f"because another stood before it: {left}"
    row = moment.after or moment.before
    found = reasons(
        query.where,
        _reader(query, row, event),
        lambda part: bool(holds(part, _as_read(query, change.table, row))),
    )
    return f"because {_and(found)}" if found else "because every row counts"


def _selected(row: Mapping[str, Any], query: Query) -> bool:
    return bool(row) and bool(holds(query.where, row))


def _as_read(query: Query, table: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row as `holds` wants it: by alias, if there are several tables."""
    if len(query.tables) == 1:
        return row
    return {t.alias: row if t.name == table else {} for t in query.tables}


def _row(row: Mapping[str, Any]) -> str:
    """At most six columns, the known ones."""
    known = [(name, value) for name, value in row.items() if value is not None] or list(row.items())
    return ", ".join(f"{name} {_value(value)}" for name, value in known[:6])


def _value(value: Any) -> str:
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return f"{value:%-d %B %H:%M}"
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


# -- because ---------------------------------------------------------------------------------------


def reasons(where: Predicate, read: Read, holding: Callable[[Predicate], bool] | None = None) -> list[str]:
    """Each condition that must hold, with the value that satisfies it; of an OR, what holds."""
    found = []
    for part in conjuncts(where):
        if part == Truth(True):
            continue
        if isinstance(part, Or) and holding is not None:
            part = next((arg for arg in part.args if holding(arg)), part)
        found += [_reason(inner, read) for inner in conjuncts(part)]
    return list(dict.fromkeys(found))  # two tables may have the same to say


_WORDS = {
    "=": "is",
    "!=": "is not",
    "<": "is below",
    "<=": "is at most",
    ">": "is above",
    ">=": "is at least",
}


def _reason(part: Predicate, read: Read) -> str:
    if isinstance(part, Not) and isinstance(part.arg, Between):
        return _reason(part.arg, read).replace(" is between ", " is not between ")
    if isinstance(part, Truth | Not | And | Or):
        return str(part)
    value, name = read(part.column.name), part.column.name
    if isinstance(part, IsNull):
        return f"{name} is not known"
    if value is None:
        return str(part)
    shown = f"{name} {_value(value)}"
    match part:
        case Compare(_, "=", _) | In():
            return f"{name} is {_value(value)}"
        case Compare(_, op, bound):
            return f"{shown} {_WORDS[op]} {_value(bound)}"
        case Between(_, low, high):
            return f"{shown} is between {_value(low)} and {_value(high)}"
        case Like(_, pattern) | Rlike(_, pattern):
            return f"{shown} matches {literal(pattern)}"
    return str(part)


def _reader(query: Query, row: Mapping[str, Any], event: Event) -> Read:
    """A column's value: from the row that changed, or from the answer if it shows the column."""
    shown = {
        item.expression.name: event.come[0][item.name]
        for item in query.items
        if isinstance(item.expression, Column) and item.name in event.come[0]
    }
    return lambda name: row[name] if row.get(name) is not None else shown.get(name)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""

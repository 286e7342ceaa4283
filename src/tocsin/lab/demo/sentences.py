"""A delta as an English sentence: what changed, who receives which row, and why.

The reasons are the conditions of the query with the values of the changed row:

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
from tocsin.lab.demo.flights import FlightChange
from tocsin.lab.demo.received import Received
from tocsin.language.algebra import (
    And,
    Between,
    Column,
    Compare,
    Ilike,
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

__all__ = [
    "ChangeContext",
    "Notification",
    "as_sentence",
    "change_contexts",
    "choose_notifications",
    "reasons",
]

Read = Callable[[str], Any]


class Notification(NamedTuple):
    """The deltas of one change for one subscription: removed rows, added rows."""

    seq: int
    subscription: int
    removed: tuple[dict[str, Any], ...]
    added: tuple[dict[str, Any], ...]


class ChangeContext(NamedTuple):
    """A change, with its row before and after it."""

    change: FlightChange
    before: Mapping[str, Any]
    after: Mapping[str, Any]


def choose_notifications(
    received: Received, labels: Mapping[int, str], order: Sequence[str], seed: int
) -> list[Notification]:
    """One notification for each shape in `order` that has any, drawn by the seed."""
    ids = np.array(sorted(labels), np.int64)
    shapes = np.array([labels[number] for number in ids.tolist()])
    draw, found = Random(seed), []
    for label in order:
        mine = np.zeros(int(ids.max(initial=-1)) + 1, np.bool_)
        mine[ids[shapes == label]] = True
        added = mine[received.subscription] & (received.sign > 0) & (received.seq > 0)  # 0: initial content
        packed = np.unique((received.seq[added] << 32) | received.subscription[added])
        if len(packed):  # skips the first third, in which everything is new
            key = int(packed[draw.choice(range(len(packed) // 3, len(packed)))])
            found.append(_notification(received, key >> 32, key & 0xFFFFFFFF))
    return found


def _notification(received: Received, seq: int, subscription: int) -> Notification:
    places = np.flatnonzero((received.seq == seq) & (received.subscription == subscription))
    removed, added = (tuple(received.rows(places[received.sign[places] == sign])) for sign in (-1, 1))
    return Notification(seq, subscription, removed, added)


def change_contexts(
    changes: Iterable[FlightChange], keys: Mapping[str, tuple[str, ...]], wanted: set[int]
) -> dict[int, ChangeContext]:
    """The changes with these sequence numbers, by number, each with its row before and after."""
    rows: dict[tuple[str, Any], dict[str, Any]] = {}
    found = {}
    for change in changes:
        key = (change.table, tuple(change.row[name] for name in keys[change.table]) or change.seq)
        before = rows.get(key, {})
        after = {} if change.op == "delete" else before | change.row
        rows[key] = after
        if change.seq in wanted:
            found[change.seq] = ChangeContext(change, before, after)
    return found


def as_sentence(event: Notification, query: Query, subscriber: str, context: ChangeContext) -> str:
    """One notification as a sentence."""
    when = f"{context.change.time:%-d %B %H:%M}"
    news, why = _news(event, query), _because(event, query, context)
    return f"{when}, {_happened(context)}: {subscriber} receives {news}, {why}"


_VERBS = {"scheduled": "is announced", "departed": "departs", "arrived": "lands", "diverted": "is diverted"}


def _happened(context: ChangeContext) -> str:
    change, row = context.change, context.after or context.before
    if change.table == "weather":
        return f"new weather at {row['origin']}"
    if change.table == "notices":
        return f"a notice ({row['kind']})"
    if change.table != "flights":
        return f"{change.op} of {change.table}"
    name = f"{row['carrier']} {row['flight']} from {row['origin']} to {row.get('dest')}"
    return f"{name} {'is cancelled' if change.op == 'delete' else _VERBS[row['status']]}"


def _news(event: Notification, query: Query) -> str:
    """What is new in the answer; for an updated row, only the updated columns."""
    added, removed = event.added[0], event.removed[0] if event.removed else None
    if removed is not None and query.limit is None:
        updated = [name for name in added if added[name] != removed.get(name)]
        now = _and([f"{name} is now {_value(added[name])}" for name in updated])
        return f"an update: {now} (before: {', '.join(_value(removed.get(name)) for name in updated)})"
    if query.limit is not None:
        order = _and([str(key.column) for key in query.order])
        return f"{_row(added)}, now among the first {query.limit} by {order}"
    return _row(added)


def _because(event: Notification, query: Query, context: ChangeContext) -> str:
    change = context.change
    if query.limit is not None and not _selected(context.after, query):
        failed = [part for part in conjuncts(query.where) if not holds(part, context.after)]
        left = f"no longer has {_and(list(map(str, failed)))}" if context.after else "was removed"
        return f"because a row that ranked before it {left}"
    row = context.after or context.before
    found = reasons(
        query.where,
        _reader(query, row, event),
        lambda part: bool(holds(part, _scoped(query, change.table, row))),
    )
    return f"because {_and(found)}" if found else "because every row counts"


def _selected(row: Mapping[str, Any], query: Query) -> bool:
    return bool(row) and bool(holds(query.where, row))


def _scoped(query: Query, table: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row as `holds` expects it: by alias, if there are several tables."""
    if len(query.tables) == 1:
        return row
    return {t.alias: row if t.name == table else {} for t in query.tables}


def _row(row: Mapping[str, Any]) -> str:
    """At most six columns, those with values."""
    known = [(name, value) for name, value in row.items() if value is not None] or list(row.items())
    return ", ".join(f"{name} {_value(value)}" for name, value in known[:6])


def _value(value: Any) -> str:
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return f"{value:%-d %B %H:%M}"
    return "unknown" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")


# -- reasons ---------------------------------------------------------------------------------------


def reasons(where: Predicate, read: Read, holding: Callable[[Predicate], bool] | None = None) -> list[str]:
    """Each condition that must hold, with the value that satisfies it; for an OR, the first that holds."""
    found = []
    for part in conjuncts(where):
        if part == Truth(True):
            continue
        if isinstance(part, Or) and holding is not None:
            part = next((arg for arg in part.args if holding(arg)), part)
        found += [_reason(inner, read) for inner in conjuncts(part)]
    return list(dict.fromkeys(found))  # two tables may give the same reason


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
        case Like(_, pattern) | Ilike(_, pattern) | Rlike(_, pattern):
            return f"{shown} matches {literal(pattern)}"
    return str(part)


def _reader(query: Query, row: Mapping[str, Any], event: Notification) -> Read:
    """A column's value: from the changed row, or from the answer if it has the column."""
    answer = {
        item.expression.name: event.added[0][item.name]
        for item in query.items
        if isinstance(item.expression, Column) and item.name in event.added[0]
    }
    return lambda name: row[name] if row.get(name) is not None else answer.get(name)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""

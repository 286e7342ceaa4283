"""What streams add over time: the events in a window, and joins of two streams."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tocsin.language.algebra import Band, Query
from tocsin.reference.answers import joins, projected, reader
from tocsin.reference.conditions import truth
from tocsin.reference.values import Row, microseconds

__all__ = ["events_in", "join_streams"]


def events_in(
    moments: Iterable[tuple[int, Row | None]], span: int, time: str | None = None, late: int = 0
) -> list[Row]:
    """The events of a stream that are in a window after all these moments, in order of arrival.

    A moment is the engine's clock in microseconds, and an event that arrives then, or None.

    By arrival, an event that arrived at t is in the window for t <= now < t + span; out is out, even if
    the clock is set back:

    >>> events_in([(0, {"n": 1}), (4, {"n": 2}), (9, None)], span=10)
    [{'n': 1}, {'n': 2}]
    >>> events_in([(0, {"n": 1}), (4, {"n": 2}), (10, None), (9, None)], span=10)
    [{'n': 2}]

    With `time`, the column of event time, the clock of the window is the largest time seen minus `late`.
    Events above clock - span are in the window; one that is outside when it comes, or has no time, changes
    nothing:

    >>> at = [datetime.fromtimestamp(0, UTC) + timedelta(microseconds=n) for n in (100, 92, 103, 91, 93)]
    >>> kept = events_in([(0, {"at": t}) for t in [*at, None]], span=10, time="at", late=2)
    >>> [event["at"].microsecond for event in kept]
    [100, 92, 103, 93]
    """
    kept: list[tuple[int, Row]] = []
    latest: int | None = None
    for now, event in moments:
        if time is None:
            kept = [(t, e) for t, e in kept if now < t + span]
            kept += [] if event is None else [(now, event)]
        elif event is not None and event.get(time) is not None:
            own = microseconds(event[time])
            latest = own if latest is None else max(latest, own)
            kept = [(t, e) for t, e in [*kept, (own, event)] if t > latest - late - span]
    return [event for _, event in kept]


_Event = tuple[int, datetime, Row]  # seq, time, row


def join_streams(
    query: Query,
    steps: Iterable[tuple[datetime, Sequence[tuple[int, str, Row]]]],
    times: tuple[str, str] | None = None,
) -> list[list[tuple[int, dict[str, Any]]]]:
    """What a join of two streams emits without a budget: (seq, row) by step.

    A step is the engine's clock and the events (seq, stream, row) that come together. `times`: the columns
    of event time, for a window over event time; a band on times names them itself.

    >>> from tocsin.language.algebra import Column, Equal, Item, TableRef
    >>> from tocsin.model.schema import Type
    >>> k, l = Column("k", Type.BIGINT, "a"), Column("k", Type.BIGINT, "b")
    >>> two = Query((Item(k, "k"),), (TableRef("s", "a", True), TableRef("t", "b", True)), (Equal(k, l),))
    >>> noon = datetime(2013, 1, 31, 12, tzinfo=UTC)
    >>> join_streams(two, [(noon, [(1, "s", {"k": 5}), (2, "t", {"k": 6})]), (noon, [(3, "t", {"k": 5})])])
    [[], [(3, {'k': 5})]]
    """
    window, late = query.options.window, timedelta(microseconds=query.options.late or 0)
    span = None if window is None else timedelta(microseconds=window)
    if times is None and (bound := _time_bound(query)) is not None:
        times = bound[0]
    kept: tuple[list[_Event], list[_Event]] = [], []
    clock = latest = None
    found = []
    for now, events in steps:
        clock = now if clock is None else max(clock, now)
        fresh: tuple[list[_Event], list[_Event]] = [], []
        for seq, name, row in events:
            for place, table in enumerate(query.tables):
                at = clock if times is None else _moment(row.get(times[place]))
                if name == table.name and at is not None:
                    fresh[place].append((seq, at, row))
                    latest = at if latest is None else max(latest, at)
        pairs = [(a, b) for a in kept[0] for b in fresh[1]]
        pairs += [(a, b) for a in fresh[0] for b in [*kept[1], *fresh[1]]]
        found.append([(max(a[0], b[0]), row) for a, b in pairs for row in _pair(query, a, b, span)])
        for place in range(2):
            kept[place].extend(fresh[place])
            if times is not None and latest is not None:
                kept[place][:] = [e for e in kept[place] if not _is_over(query, place, e, latest - late)]
    return found


def _pair(query: Query, a: _Event, b: _Event, span: timedelta | None) -> list[dict[str, Any]]:
    """The answer over two events alone."""
    if span is not None and abs(a[1] - b[1]) > span:
        return []
    rows = {table.alias: event[2] for table, event in zip(query.tables, (a, b), strict=True)}
    read = reader(query, rows)
    joined = all(joins(join, read) for join in query.joins) and truth(query.where, read) is True
    return [projected(query, rows)] if joined else []


def _is_over(query: Query, place: int, event: _Event, clock: datetime) -> bool:
    """Whether no event from this moment of event time on joins the event."""
    reach: float | None = query.options.window
    if reach is None:
        bound = _time_bound(query)
        assert bound is not None
        low, high = bound[1:]
        reach = high if place == 0 else None if low is None else -low
    return reach is not None and microseconds(clock) - microseconds(event[1]) > reach


def _time_bound(query: Query) -> tuple[tuple[str, str], float | None, float | None] | None:
    """The band on times that has both ends, or any: (columns by place, low, high) of second - first."""
    timed = [join for join in query.joins if isinstance(join, Band) and join.timed]
    if not timed or query.options.window is not None:
        return None
    band = next((b for b in timed if b.low is not None and b.high is not None), timed[0])
    low = None if band.low is None else math.floor(band.low) + 1 if band.low_open else math.ceil(band.low)
    high = (
        None if band.high is None else math.ceil(band.high) - 1 if band.high_open else math.floor(band.high)
    )
    if band.left.relation == query.tables[1].alias:
        return (band.right.name, band.left.name), low, high
    columns = band.left.name, band.right.name
    return columns, None if high is None else -high, None if low is None else -low


def _moment(value: Any) -> datetime | None:
    """A moment of event time; a date is its midnight."""
    if value is None or isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day, tzinfo=UTC)

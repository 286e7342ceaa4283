"""What streams add over time: the events in a window, keys without any, sequences, joins of two streams."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tocsin.language.algebra import Band, Predicate, Query, Truth
from tocsin.reference.answers import joins, projected, reader
from tocsin.reference.conditions import holds, truth
from tocsin.reference.values import Row, microseconds, row_key

__all__ = ["absent_in", "events_in", "follow_steps", "join_streams"]


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


_ANY = Truth(True)


def absent_in(
    moments: Iterable[tuple[int, Row | None]],
    span: int,
    absent: int | None,
    columns: Sequence[str],
    where: Predicate = _ANY,
    time: str | None = None,
    late: int = 0,
) -> list[Row]:
    """The keys, distinct values of `columns`, that were seen once and have no event in a window.

    Moments, `span`, `time` and `late` are those of `events_in`. Events that are outside when they come, or
    for which `where` is not true, are not seen. A key is dropped `absent` after its last event; None: never.

    >>> a, b = {"host": "a"}, {"host": "b"}
    >>> absent_in([(0, a), (4, b), (6, None)], 5, 20, ["host"])
    [{'host': 'a'}]
    >>> absent_in([(0, a), (4, b), (6, None), (7, a), (20, None)], 5, 20, ["host"])
    [{'host': 'b'}, {'host': 'a'}]
    """
    last: dict[Hashable, tuple[int, Row]] = {}  # of keys seen
    gone: set[Hashable] = set()
    latest: int | None = None
    for now, event in moments:
        own, clock = now, now
        if time is not None:
            if event is None or event.get(time) is None:
                continue
            own = microseconds(event[time])
            latest = own if latest is None else max(latest, own)
            clock = latest - late
        gone |= {key for key, (seen, _) in last.items() if clock >= seen + span}
        over = {key for key in gone if absent is not None and clock >= last[key][0] + absent}
        last = {key: found for key, found in last.items() if key not in over}
        gone -= over
        if event is None or own <= clock - span or holds(where, event) is not True:
            continue
        row = {name: event.get(name) for name in columns}
        key = row_key(row)
        seen = own if key in gone or key not in last else max(own, last[key][0])
        gone.discard(key)
        last.pop(key, None)
        last[key] = seen, row
    return [row for key, (_, row) in last.items() if key in gone]


_Event = tuple[int, datetime, Row]  # seq, time, row


# -- sequences -------------------------------------------------------------------------------------


def follow_steps(
    query: Query, steps: Iterable[tuple[datetime, Sequence[tuple[int, str, Row]]]]
) -> list[list[tuple[int, dict[str, Any]]]]:
    """What a sequence emits: (seq, row) by step.

    A step is the engine's clock and the events (seq, stream, row) that come together. An event that ends a
    sequence of events, one of each table of the query in order, gives one row: that of the sequence which
    begins last; among those, whose second event is the last, and so on.

    >>> from tocsin.language.algebra import Column, Compare, Equal, Item, TableRef
    >>> from tocsin.model.schema import Type
    >>> (k, n), l = (Column(name, Type.BIGINT, "a") for name in "kn"), Column("k", Type.BIGINT, "b")
    >>> tables, end = (TableRef("s", "a", True), TableRef("s", "b", True)), Column("n", Type.BIGINT, "b")
    >>> items = Item(n, "first"), Item(end, "last")
    >>> pair = Query(items, tables, (Equal(k, l),), Compare(end, ">", 7), within=5_000_000)
    >>> noon = datetime(2013, 1, 31, 12, tzinfo=UTC)
    >>> events = [(seq, "s", {"k": 1, "n": n}) for seq, n in enumerate((5, 6, 8, 3))]
    >>> follow_steps(pair, [(noon, events)])
    [[(2, {'first': 6, 'last': 8})]]
    """
    assert query.within is not None
    kept: list[_Event] = []  # in order
    streams: list[str] = []
    clock, found = None, []
    for now, events in steps:
        clock = now if clock is None else max(clock, now)
        ended = []
        for seq, name, row in events:
            kept.append((seq, clock, row))
            streams.append(name)
            chains = list(_chains(query, kept, streams))
            if chains:
                rows = {t.alias: kept[at][2] for t, at in zip(query.tables, max(chains), strict=True)}
                ended.append((seq, projected(query, rows)))
        found.append(ended)
    return found


def _chains(query: Query, kept: list[_Event], streams: list[str]) -> Iterator[tuple[int, ...]]:
    """Every sequence that the last event ends, as positions of its events."""
    last, count = len(kept) - 1, len(query.tables)

    def extend(later: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(later) == count:
            rows = {table.alias: kept[at][2] for at, table in zip(later, query.tables, strict=True)}
            if truth(query.where, reader(query, rows)) is True:
                yield later
            return
        bound = query.tables[count - 1 - len(later) :]
        due = [j for j in query.joins if {j.left.relation, j.right.relation} <= {t.alias for t in bound}]
        for at in range(later[0]) if later else (last,):
            took = kept[last][1] - kept[at][1]
            if streams[at] != bound[0].name or took // timedelta(microseconds=1) > (query.within or 0):
                continue
            rows = {table.alias: kept[n][2] for n, table in zip((at, *later), bound, strict=True)}
            if all(joins(join, reader(query, rows)) for join in due):
                yield from extend((at, *later))

    return extend(())


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
        fresh: tuple[list[_Event], list[_Event]] = [], []
        if any(name == table.name for _, name, _ in events for table in query.tables):
            clock = now if clock is None else max(clock, now)  # events of other streams do not move it
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

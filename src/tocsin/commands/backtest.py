"""`tocsin backtest`: how often would a subscription have fired on past events?

An event fires a subscription if it changes its answer: for a filter over a stream, if it matches; for a
table, if it has a delta, +1 or -1. It fires once, however many rows it changes.

    2013-01-01  ██████████ 120      bins over a time column of the events, or over their numbers;
    2013-01-02  ███ 38              quiet gaps include those after the first event and before the last

>>> fired = FiringHistory(7, "SELECT ...", None, 2, 0.5, "2013-01-01", "2013-01-02", None, None, (
...     Bin(0, "2013-01-01", 120), Bin(1, "2013-01-02", 38)))
>>> print(*fired.bars(width=10), sep="\\n")
2013-01-01  ██████████ 120
2013-01-02  ███▏ 38
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tocsin.commands.data import check_format
from tocsin.commands.replay import BadRowCounts, EventReplay, ReplayClock, ReplayedBatch, by_arrival, prepare
from tocsin.commands.stdin import STDIN, check_one_stdin
from tocsin.commands.timeline import MOST_BINS, NUMBERS, TIMES, Axis, Bin, Timeline, bins, label
from tocsin.errors import UsageError
from tocsin.language.scope import nearest
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Mask, Rows, Vector
from tocsin.model.schema import Stream, Table, Type, read_time

__all__ = ["Backtest", "FiringHistory", "QuietGap", "backtest"]

MOST_SUBSCRIPTIONS = 1000
_EIGHTHS = " ▏▎▍▌▋▊▉"
_DAY = 86_400_000_000
_TIMES = (Type.TIMESTAMP, Type.DATE)


class QuietGap(NamedTuple):
    """A stretch without a match."""

    start: str
    end: str
    length: str  # "3 days, 4:05:00", or "120 events"


@dataclass(frozen=True)
class FiringHistory:
    """How often one subscription fired, and when. Times are None if no event has one."""

    subscription: int
    sql: str
    subscriber: str | None
    matches: int
    share: float  # of the good events
    first: str | None
    last: str | None
    quiet: QuietGap | None
    busiest: Bin | None
    histogram: tuple[Bin, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            **vars(self),
            "quiet": None if self.quiet is None else self.quiet._asdict(),
            "busiest": None if self.busiest is None else _bin(self.busiest),
            "histogram": [_bin(bin) for bin in self.histogram],
        }

    def bars(self, width: int = 40) -> Iterator[str]:
        """The histogram as text; the busiest bin is `width` wide."""
        most = max((bin.total for bin in self.histogram), default=0)
        margin = max((len(bin.label) for bin in self.histogram), default=0)
        for bin in self.histogram:
            eighths = 0 if not bin.total else max(1, round(8 * width * bin.total / most))
            bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
            yield f"{bin.label:>{margin}}  {bar}{' ' if bar else ''}{bin.total:,}"

    def lines(self) -> Iterator[str]:
        """The printed history."""
        who = f" ({self.subscriber})" if self.subscriber else ""
        yield f"subscription {self.subscription}{who}: {' '.join(self.sql.split())}"
        yield f"  matches: {self.matches:,} ({self.share:.2%} of the events)"
        if self.first is not None:
            yield f"  first: {self.first}; last: {self.last}"
        if self.quiet is not None:
            yield f"  longest quiet gap: {self.quiet.length}, from {self.quiet.start} to {self.quiet.end}"
        if self.busiest is not None:
            yield f"  busiest: {self.busiest.label}, {self.busiest.total:,} matches"
        yield ""
        yield from self.bars()


@dataclass(frozen=True)
class Backtest:
    """The result of a backtest."""

    relation: str
    events: int  # good and bad
    time: str | None  # the column; None: bins are over the numbers of events
    first: str | None  # of all events
    last: str | None
    untimed: int  # matches without a readable time: in no bin
    bad: BadRowCounts
    subscriptions: tuple[FiringHistory, ...]
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    stopped: bool = False  # by Ctrl-C

    @property
    def ok(self) -> bool:
        return not self.bad.rows and not self.stopped

    def to_dict(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name not in ("bad", "subscriptions")}
        return {
            "ok": self.ok,
            **plain,
            "bad_rows": self.bad.rows,
            "reasons": [kind.to_dict() for kind in self.bad.kinds()],
            "subscriptions": [fired.to_dict() for fired in self.subscriptions],
        }

    def lines(self) -> Iterator[str]:
        """The printed summary."""
        span = "" if self.first is None else f", from {self.first} to {self.last}"
        by = f"time is {self.time}" if self.time else "by event number; name a time column with --time"
        yield f"{self.events:,} events of {self.relation}{span} ({by})"
        for fired in self.subscriptions:
            yield ""
            yield from fired.lines()
        yield ""
        yield from self.bad.lines()
        if self.untimed:
            yield f"matches without a time: {self.untimed:,}; they are in no bin"
        yield from (f"note: {warning}" for warning in self.warnings)
        if self.stopped:
            yield "stopped before the end of the file"


def backtest(
    subscriptions: str | Sequence[str] | Path,
    events: Path,
    *,
    schema: Path | str | None = None,
    relation: str | None = None,
    time: str | None = None,
    bins: int = 20,
) -> Backtest:
    """Run subscriptions (a SELECT, several, or a file of them) over the events of a file.

    `schema` is a file of definitions, or DDL text; without it, and without definitions in the file of
    subscriptions, the stream is open. `time` names a TIMESTAMP or DATE column; the default is the only such
    column, or else the numbers of events. For sequences and windows by arrival, events come at that time.
    """
    if not 1 <= bins <= MOST_BINS:
        raise UsageError(f"there are 1 to {MOST_BINS} bins, not {bins}")
    check_one_stdin(subscriptions, events, schema)
    if events != STDIN:
        check_format(events)
    texts, engine_clock = [subscriptions] if isinstance(subscriptions, str) else subscriptions, ReplayClock()
    engine = prepare(texts, schema, relation, engine_clock)
    entries = engine.subscriptions()
    if len(entries) > MOST_SUBSCRIPTIONS:
        raise UsageError(
            f"{len(entries):,} subscriptions are too many to look at one by one",
            hint=f"at most {MOST_SUBSCRIPTIONS:,}; `tocsin match` counts the matches of any number",
        )
    replay = EventReplay(engine, events, relation, "backtest")
    clock = _Clock(replay.relation, time)
    if by_arrival(engine) and clock.column is not None:
        replay.clock, replay.moments = engine_clock, lambda changes: clock.moments(changes)[1:]
    ledger = _Ledger([entry.id for entry in entries])
    for batch in replay:
        ledger.add(batch, *clock.moments(batch.changes))
    clock.check(ledger)
    start, end, axis = ledger.start, ledger.end, clock.axis
    good = max(1, replay.events - replay.bad.rows)
    fired = []
    for entry in entries:
        line, count = ledger.line(entry.id, axis), ledger.matches[entry.id]
        times = _times_of(line, axis, start, end, bins)
        fired.append(FiringHistory(entry.id, entry.sql, entry.subscriber, count, count / good, *times))
    return Backtest(
        relation=replay.relation.name,
        events=replay.events,
        time=clock.column,
        first=None if start is None else clock.show(start),
        last=None if end is None else clock.show(end),
        untimed=ledger.untimed,
        bad=replay.bad,
        subscriptions=tuple(fired),
        seconds=round(replay.seconds, 3),
        warnings=(*clock.warnings(ledger), *replay.warnings()),
        stopped=replay.stopped,
    )


def _times_of(line: Timeline, axis: Axis, start: int | None, end: int | None, most: int) -> tuple[Any, ...]:
    """First, last, quiet gap, busiest bin and histogram of one subscription."""
    if start is None or end is None:
        return None, None, None, None, ()
    histogram = tuple(bins(line, start, end, most))
    busiest = max(histogram, key=lambda bin: bin.total)  # the first of them
    ends = [None if moment is None else _show(axis, moment) for moment in (line.first, line.last)]
    low, high = line.longest_gap(start, end)
    length = str(timedelta(microseconds=high - low)) if axis is TIMES else f"{high - low:,} events"
    quiet = QuietGap(_show(axis, low), _show(axis, high), length)
    return *ends, quiet if high > low else None, busiest if busiest.total else None, histogram


class _Ledger:
    """Counts and times of each subscription's matches."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.matches: dict[int, int] = dict.fromkeys(ids, 0)
        self.start: int | None = None  # of all events that have a time
        self.end: int | None = None
        self.timed = self.untimed = 0
        self._lines: dict[int, Timeline] = {}

    def line(self, id: int, axis: Axis) -> Timeline:
        return self._lines.setdefault(id, Timeline(axis))

    def add(self, batch: ReplayedBatch, axis: Axis, moment: Index, known: Mask) -> None:
        """Add a batch; `moment[i]` is the time of its event i, if `known[i]`."""
        if known.any():
            low, high = int(moment[known].min()), int(moment[known].max())
            self.start = low if self.start is None else min(self.start, low)
            self.end = high if self.end is None else max(self.end, high)
        self.timed += int(known.sum())
        at = np.searchsorted(batch.changes.origin, batch.event)
        order = np.argsort(batch.subscription, kind="stable")
        ids, starts = np.unique(batch.subscription[order], return_index=True)
        parts = np.split(at[order], starts[1:]) if len(ids) else []
        for id, mine in zip(ids.tolist(), parts, strict=True):
            self.matches[id] += len(mine)
            timed = mine[known[mine]]
            self.untimed += len(mine) - len(timed)
            self.line(id, axis).add(moment[timed])


class _Clock:
    """The time column and its values. In an open stream, the first events determine the column."""

    def __init__(self, relation: Table | Stream, wanted: str | None) -> None:
        self.relation, self.wanted = relation, wanted
        self.column: str | None = wanted
        self._names: list[str] = []  # of the first events of an open stream
        self._choices = [field.name for field in relation.fields if field.type in _TIMES]
        self._chosen = not relation.open
        if relation.open:
            return
        if wanted is None:
            self.column = self._choices[0] if len(self._choices) == 1 else None
            return
        field = relation.find(wanted)
        if field is None or field.type not in _TIMES:
            fact = f"{relation.name} has no column {wanted!r}"
            if field is not None:
                fact = f"column {field.name} of {relation.name} is a {field.type}, not a TIMESTAMP or DATE"
            listed = (
                f"time columns are {', '.join(self._choices)}" if self._choices else "it has no time column"
            )
            near = nearest(wanted, relation.names) if field is None else None
            raise UsageError(fact, hint=near or listed)
        self.column = field.name

    @property
    def axis(self) -> Axis:
        return NUMBERS if self.column is None else TIMES

    def show(self, moment: int) -> str:
        return _show(self.axis, moment)

    def moments(self, changes: ChangeBatch) -> tuple[Axis, Index, Mask]:
        """The time of each event of a batch, and whether it has one."""
        rows, count = changes.rows, len(changes)
        if not self._chosen and count:
            self._choose(rows)
        moment, known = np.zeros(count, np.int64), np.zeros(count, np.bool_)
        if self.column is None:
            return NUMBERS, changes.origin, ~known
        for vector in rows.vectors(self.column):
            values, valid = _times(vector)
            moment[valid], known = values[valid], known | valid
        return TIMES, moment, known

    def warnings(self, ledger: _Ledger) -> Iterator[str]:
        if self.column is None and len(self._choices) > 1:
            yield f"there are several time columns: {', '.join(self._choices)}; choose one with --time"

    def check(self, ledger: _Ledger) -> None:
        """Raise if a wanted column of an open stream has no time in any event."""
        if self.wanted is None or ledger.timed or not self._names:
            return
        found = "has no time in any event" if self.wanted in self._names else "is in no event"
        near = nearest(self.wanted, self._names) if self.wanted not in self._names else None
        listed = f"time columns are {', '.join(self._choices)}" if self._choices else "leave out --time"
        raise UsageError(f"column {self.wanted!r} {found}", hint=near or listed)

    def _choose(self, rows: Rows) -> None:
        self._chosen = True
        self._names = list(rows.names)
        self._choices = [n for n in rows.names if any(v.type in _TIMES for v in rows.vectors(n))]
        if self.wanted is None:
            self.column = self._choices[0] if len(self._choices) == 1 else None


def _times(vector: Vector) -> tuple[Index, Mask]:
    """The times of a vector in microseconds; text is parsed, other types have no time."""
    if vector.type is Type.TIMESTAMP:
        return vector.values, vector.valid
    if vector.type is Type.DATE:
        return vector.values * _DAY, vector.valid
    if vector.type is not Type.STRING:
        return np.zeros(len(vector), np.int64), np.zeros(len(vector), np.bool_)
    read = []
    for text in vector.to_list():
        try:
            read.append(None if text is None else read_time(Type.TIMESTAMP, text))
        except ValueError:
            read.append(None)
    times = Vector.of(Type.TIMESTAMP, read)
    return times.values, times.valid


def _show(axis: Axis, moment: int) -> str:
    if axis is not TIMES:
        return f"event {moment:,}"
    text = label(axis, moment)
    return text.removesuffix(".000000").removesuffix(" 00:00:00")


def _bin(bin: Bin) -> dict[str, Any]:
    return {"start": bin.label, "matches": bin.total}

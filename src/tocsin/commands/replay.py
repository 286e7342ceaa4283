"""Applies the events of a file to an engine: the loop of `match` and `backtest`.

For each batch it yields the pairs (event, subscription) in which the event changes the subscription's answer,
each pair once, however many rows change. It counts bad rows by reason and shows progress. Ctrl-C ends it
after the current batch.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tocsin.commands.events import find_relation, read_events
from tocsin.commands.progress import Display, Interrupted
from tocsin.commands.stdin import STDIN, read_stdin
from tocsin.commands.subscription_files import (
    SubscriptionTexts,
    load_schema,
    load_subscriptions,
    subscribe_all,
)
from tocsin.engine import Engine
from tocsin.errors import BadRow
from tocsin.language.algebra import IsNull, atoms
from tocsin.language.scope import nearest
from tocsin.model.change import ChangeBatch
from tocsin.model.columns import Index, Mask
from tocsin.model.schema import Stream, Table

__all__ = [
    "BadKind",
    "BadRowCounts",
    "EventReplay",
    "ReplayClock",
    "ReplayedBatch",
    "by_arrival",
    "prepare",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MOST_KINDS = 1000  # distinct reasons of bad rows
MOST_NAMES = 100_000  # attribute names remembered from events
MOST_SEARCHED = 10_000  # subscriptions searched for attributes that no event has


class ReplayClock:
    """The clock of a replay: the wall clock, until events set it to their times; then it does not go back."""

    def __init__(self) -> None:
        self._now: int | None = None  # microseconds since 1970

    def __call__(self) -> datetime:
        return datetime.now(UTC) if self._now is None else _EPOCH + timedelta(microseconds=self._now)

    def parts(self, moment: Index, known: Mask) -> list[tuple[int | None, Index]]:
        """Events by the time at which they come, in order: (time, positions).

        One without a time comes with the event before it; the first ones with the first that has a time.
        """
        if self._now is None and not known.any():
            return [(None, np.arange(len(moment)))]
        least = int(moment[known][0]) if self._now is None else self._now
        moment = np.maximum.accumulate(np.where(known, np.maximum(moment, least), least))
        cuts = np.flatnonzero(np.diff(moment)) + 1
        return [(int(moment[some[0]]), some) for some in np.split(np.arange(len(moment)), cuts) if len(some)]

    def set(self, now: int | None) -> None:
        """It is this time."""
        self._now = now


def by_arrival(engine: Engine) -> bool:
    """Whether answers depend on when events come: sequences, and windows without a time of their own."""
    for entry in engine.subscriptions():
        query = engine.query(entry.id)
        windowed = query.options.window is not None and query.options.memory is None
        if query.within is not None or (
            windowed and query.options.time is None and query.options.late is None
        ):
            return True
    return False


def prepare(
    subscriptions: Path | Sequence[str],
    schema: Path | str | None = None,
    relation: str | None = None,
    clock: ReplayClock | None = None,
) -> Engine:
    """An engine with the subscriptions of a file, or with SQL texts. A `schema` is a file, or DDL text."""
    engine = Engine(clock=clock)
    with Display("reading the subscriptions"):
        if isinstance(schema, Path):
            load_schema(engine, schema)
        elif schema:
            engine.execute(schema)
        if isinstance(subscriptions, Path):
            load_subscriptions(engine, subscriptions, relation=relation)
        else:
            subscribe_all(engine, SubscriptionTexts(subscriptions))
        engine.tick()  # a row that is in an answer before the first event is not a match
    return engine


class ReplayedBatch(NamedTuple):
    """One batch: its good events, and the pairs that match, in order of event."""

    changes: ChangeBatch  # `origin` is the event's number in the file
    event: Index
    subscription: Index


@dataclass
class BadKind:
    """Bad rows with similar reasons; `reason` is that of the first."""

    reason: str
    first: int
    rows: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {"reason": self.reason, "first": self.first, "rows": self.rows}


@dataclass
class BadRowCounts:
    """The number of bad rows by reason. Reasons that differ only in a value are one kind.

    >>> counts = BadRowCounts()
    >>> counts.add([BadRow(3, "column n: 'x' is not a DOUBLE"), BadRow(7, "column n: 'y' is not a DOUBLE")])
    >>> counts.rows, [(kind.rows, kind.first, kind.reason) for kind in counts.kinds()]
    (2, [(2, 3, "column n: 'x' is not a DOUBLE")])
    """

    rows: int = 0
    _kinds: dict[str, BadKind] = field(default_factory=dict)

    def add(self, bad: Sequence[BadRow]) -> None:
        self.rows += len(bad)
        for row, reason in bad:
            key = reason if "no column" in reason else re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "*", reason)
            if key not in self._kinds and len(self._kinds) >= MOST_KINDS:
                key = "other reasons"
            self._kinds.setdefault(key, BadKind(reason, row)).rows += 1

    def kinds(self) -> list[BadKind]:
        """The most frequent first."""
        return sorted(self._kinds.values(), key=lambda kind: (-kind.rows, kind.first))

    def lines(self, shown: int = 10) -> Iterator[str]:
        """The printed counts."""
        if self.rows:
            yield f"bad rows: {self.rows:,}"
        for kind in self.kinds()[:shown]:
            yield f"  {kind.rows:>9,}  {kind.reason}  (first: event {kind.first:,})"
        if len(self._kinds) > shown:
            yield f"             and {len(self._kinds) - shown} other reasons"


class _Bar(Display):
    """A progress bar for a file with an unknown number of events: it follows the share read so far."""

    def __init__(self, what: str) -> None:
        super().__init__(what, total=1, unit="events")
        self.total = None

    def follow(self, events: int, share: float, *facts: str) -> None:
        if share > 0:
            self._size = max(1.0, events / share)
        self.show(events, *([f"{share:.0%}"] if share > 0 else []), *facts)


class EventReplay:
    """Iterating over it applies the events of a file; afterwards its counts are those of the whole file."""

    clock: ReplayClock | None = (
        None  # events come at their `moments`: the time of each, and whether it has one
    )
    moments: Callable[[ChangeBatch], tuple[Index, Mask]] | None = None

    def __init__(self, engine: Engine, file: Path, relation: str | None = None, what: str = "match") -> None:
        self.engine, self.file, self.what = engine, file, what
        self.relation: Table | Stream = find_relation(engine, file, relation)
        self.events = self.matches = 0
        self.bad = BadRowCounts()
        self.seconds = 0.0
        self.stopped = False  # by Ctrl-C
        self._seen: set[str] = set()
        self._windows = bool(engine.stats()["windows"])

    def __iter__(self) -> Iterator[ReplayedBatch]:
        began = time.monotonic()
        with _Bar(self.what) as bar, Interrupted() as interrupted:
            stdin = self.file == STDIN
            for batch in read_stdin(self.relation) if stdin else read_events(self.file, self.relation):
                bad = batch.bad
                pairs = self._pairs(*self._apply(batch.changes, bad))
                self.events += batch.read
                self.matches += len(pairs[0])
                self.bad.add(sorted(bad))
                if self.relation.open and len(self._seen) < MOST_NAMES:
                    self._seen.update(batch.changes.rows.names)
                bar.follow(self.events, batch.share, f"{self.matches:,} matches")
                yield ReplayedBatch(batch.changes, *pairs)
                if interrupted:
                    self.stopped = True
                    break
        self.seconds = time.monotonic() - began

    def _apply(self, changes: ChangeBatch, bad: list[BadRow]) -> tuple[Index, Index]:
        """Pairs (event, subscription) of deltas."""
        if self.clock is None or self.moments is None:
            before = self.engine.last_seq
            deltas = self.engine.apply(self.relation.name, changes, dead_letters=bad)
            if self._windows:  # what left by the clock is no match of an event
                deltas = deltas.take(deltas.seq > before)
            return deltas.seq - 1, deltas.subscription
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for now, some in self.clock.parts(*self.moments(changes)):
            self.clock.set(now)
            deltas = self.engine.apply(self.relation.name, changes.take(some), dead_letters=bad)
            first = int(changes.origin[some[0]])  # the event that moves the clock is what is due by then
            parts.append((np.maximum(deltas.seq - 1, first), deltas.subscription))
        return np.concatenate([event for event, _ in parts]), np.concatenate([own for _, own in parts])

    def _pairs(self, event: Index, subscription: Index) -> tuple[Index, Index]:
        order = np.lexsort((subscription, event))
        event, subscription = event[order], subscription[order]
        if (
            isinstance(self.relation, Table) or self._windows or self.clock is not None
        ):  # an event may change several rows of it
            fresh = np.ones(len(event), np.bool_)
            fresh[1:] = (event[1:] != event[:-1]) | (subscription[1:] != subscription[:-1])
            event, subscription = event[fresh], subscription[fresh]
        return event, subscription

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.events / max(self.seconds, 1e-6)

    def warnings(self, shown: int = 5) -> list[str]:
        """Likely mistakes: columns that are not declared, attributes that events lack or have otherwise."""
        found = []
        for kind in self.bad.kinds():
            unknown = re.search(r"has no column '(.*)'", kind.reason)
            hint = nearest(unknown[1], self.relation.names) if unknown else None
            if unknown and hint:
                found.append(f"{self.relation.name} has no column {unknown[1]!r}: {hint}")
        if self.relation.open and self.events > self.bad.rows and len(self._seen) < MOST_NAMES:
            for name, users in self._unseen().items():
                hint = nearest(name, self._seen)
                who = "1 subscription uses" if users == 1 else f"{users:,} subscriptions use"
                found.append(f"no event has {name!r}, which {who}{f': {hint}' if hint else ''}")
            doubts = self.engine.stats()["warnings"].get(self.relation.name, {})
            found += [doubt for name, doubt in doubts.items() if name in self._seen]  # of another kind
        return found[:shown]

    def _unseen(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for subscription in self.engine.subscriptions()[:MOST_SEARCHED]:
            query = self.engine.query(subscription)
            if query.tables[0].name == self.relation.name:
                used = {atom.column.name for atom in atoms(query.where) if not isinstance(atom, IsNull)}
                for name in used - self._seen:
                    counts[name] = counts.get(name, 0) + 1
        return counts

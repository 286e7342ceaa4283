"""What is sent when: repeats are suppressed, digests collect, and an answer that becomes empty is resolved.

    changes ─► suppress ─► digest ─► notices
               holds what     collects   deltas that leave together, and
               repeats        for a time the subscriptions that are resolved

Suppressing and collecting keep the law: what is held is netted, and what remains at the end of the time is
sent. So a row that flaps (enters, leaves, enters) costs one delta, and who adds up all deltas still has the
answer, later. Filters over streams have no answer to keep up with: their repeats are dropped and counted.

A change repeats another if it has the same subscription and the same row, or the same values in `by`.

>>> flow = Flow(SendTiming(suppress=600.0), lambda id: True)
>>> def row(at, sign):
...     return TimedDelta(at, 1, 7, sign, b'{"host":"web1"}', None)
>>> flow.add([row(0, +1)]); [[c.sign for c in notice.changes] for notice in flow.take(0)]
[[1]]
>>> flow.add([row(60, -1), row(90, +1), row(120, -1)]); flow.take(120), flow.due
([], 600.0)
>>> [([c.sign for c in notice.changes], notice.resolved) for notice in flow.take(600)]
[([-1], [7])]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

__all__ = ["Flow", "FlowState", "Notice", "SendTiming", "TimedDelta"]

MOST_HELD = 100_000  # keys of repeats; beyond that the oldest are sent as they are
MOST_COLLECTED = 10_000  # deltas of a digest; then it leaves early


class SendTiming(msgspec.Struct, frozen=True, omit_defaults=True):
    """When things are sent. Times are in seconds, 0 for at once."""

    digest: float = 0.0
    suppress: float = 0.0
    by: tuple[str, ...] | None = None  # columns that tell repeats apart; None: all of the row
    resolved: bool = True


class TimedDelta(NamedTuple):
    """A delta: its time in seconds, and its row as JSON text."""

    at: float
    seq: int
    subscription: int
    sign: int
    row: bytes
    subscriber: str | None


class Notice(NamedTuple):
    """Deltas that leave together, and subscriptions whose answer is empty after them."""

    changes: list[TimedDelta]
    resolved: list[int]
    dropped: int = 0  # repeats of streams


class Held(msgspec.Struct, array_like=True):
    """A key that was sent, and what came since."""

    until: float
    rows: dict[bytes, int] = {}  # row: net
    last: tuple[int, int, str | None] = (0, 0, None)  # seq, subscription, subscriber


class FlowState(msgspec.Struct, array_like=True):
    """All that a flow knows, to be stored with the position that it has come to."""

    counts: dict[int, int] = {}  # rows of each answer, as far as sent
    held: dict[str, Held] = {}
    collected: list[TimedDelta] = []
    since: float = 0.0  # when collecting began
    dropped: int = 0
    made: int = 0  # messages


class Flow:
    """Changes in, notices out. `has_content` says whether a subscription has an answer to keep up with."""

    def __init__(
        self, timing: SendTiming, has_content: Callable[[int], bool], state: FlowState | None = None
    ) -> None:
        self.timing, self._has_content = timing, has_content
        self.state = state or FlowState()

    def add(self, changes: Iterable[TimedDelta]) -> None:
        """Take changes in, in order."""
        passed = list(changes) if not self.timing.suppress else [c for c in changes if not self._holds(c)]
        self._collect(passed)

    def take(self, now: float) -> list[Notice]:
        """What is to be sent now."""
        if self.timing.suppress:
            self._collect(self._released(now))
        state = self.state
        is_due = now >= state.since + self.timing.digest or len(state.collected) >= MOST_COLLECTED
        if not state.collected or not is_due:
            return []
        changes = state.collected if not self.timing.digest else self._netted(state.collected)
        dropped, state.collected, state.dropped = state.dropped, [], 0
        resolved = self._resolved(changes)
        return [Notice(changes, resolved, dropped)] if changes or dropped else []

    @property
    def due(self) -> float | None:
        """When `take` has something next; None if nothing waits."""
        times = [held.until for held in self.state.held.values()]
        if self.state.collected:
            times.append(self.state.since + self.timing.digest)
        return min(times, default=None)

    # -- repeats -----------------------------------------------------------------------------------

    def _key(self, change: TimedDelta) -> str:
        row: bytes = change.row
        if self.timing.by is not None:
            values = msgspec.json.decode(row)
            row = msgspec.json.encode([values.get(name) for name in self.timing.by])
        return f"{change.subscription}:{row.decode()}"

    def _holds(self, change: TimedDelta) -> bool:
        """Whether a change repeats one that was sent; if not, its repeats are held from now on."""
        key, held = self._key(change), self.state.held
        found = held.get(key)
        if found is None or (change.at >= found.until and not found.rows):
            held.pop(key, None)
            if len(held) < MOST_HELD:
                held[key] = Held(change.at + self.timing.suppress)
            return False
        if self._has_content(change.subscription):
            net = found.rows.get(change.row, 0) + change.sign
            found.rows = {**found.rows, change.row: net}
            if not net:
                del found.rows[change.row]
            found.last = (change.seq, change.subscription, change.subscriber)
        else:
            self.state.dropped += 1
        return True

    def _released(self, now: float) -> list[TimedDelta]:
        """What is left of repeats whose time is over; they are held anew."""
        out = []
        for key, held in list(self.state.held.items()):
            if held.until > now:
                continue
            if not held.rows:
                del self.state.held[key]
                continue
            seq, subscription, subscriber = held.last
            signs = sorted(held.rows.items(), key=lambda item: item[1])  # what leaves is first
            for row, net in signs:
                one = TimedDelta(held.until, seq, subscription, 1 if net > 0 else -1, row, subscriber)
                out += [one] * abs(net)
            self.state.held[key] = Held(now + self.timing.suppress)
        return sorted(out, key=lambda change: change.seq)

    # -- digests -----------------------------------------------------------------------------------

    def _collect(self, changes: Sequence[TimedDelta]) -> None:
        if changes and not self.state.collected:
            self.state.since = changes[0].at
        self.state.collected += changes

    def _netted(self, changes: Sequence[TimedDelta]) -> list[TimedDelta]:
        """Without rows that left and entered again; streams have nothing to cancel."""
        net: dict[tuple[int, bytes], int] = {}
        for change in changes:
            key = change.subscription, change.row
            net[key] = net.get(key, 0) + change.sign
        out = []
        for change in reversed(changes):  # the last ones stay
            key = change.subscription, change.row
            if net[key] * change.sign > 0:
                net[key] -= change.sign
                out.append(change)
        return out[::-1]

    def _resolved(self, changes: Sequence[TimedDelta]) -> list[int]:
        counts, touched = self.state.counts, dict[int, None]()
        for change in changes:
            id = change.subscription
            if self._has_content(id):
                counts[id] = counts.get(id, 0) + change.sign
                if change.sign < 0:
                    touched[id] = None
        empty = [id for id in touched if counts[id] <= 0]
        for id in empty:
            del counts[id]
        return empty if self.timing.resolved else []

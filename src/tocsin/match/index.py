"""The default index: immutable segments, newest last, and one path per conjunction (`segment.py`).

    add ─► waiting ─(at the next match)─► front ─(when it is felt)─► segment ─(by size)─► larger segment
                                     │     └──(a segment that has lost most melts into it)
                                     └─► segment, if there is nothing yet, or it is much
    remove ─► off the front; or its slot has no owner any more, and what a segment has of it is passed over

Every slot is owned by one segment, or by the front, by number. A removed slot is owned by none, so its
conjunctions stay where they are in a segment and are never told; a merge leaves them behind, and so does
sifting, when they are many in one segment. A front that has cost much is merged with the segments that are
not much larger (`tiers.py`): small ones at once, large ones in the background, while matching goes on with
the old ones and a new front takes what comes.

Where a conjunction hangs depends on what events are like. A sample of recent events is kept; when a segment
costs clearly more than it would if it were built today, it is built anew, in the background too.

>>> from tocsin.language.algebra import Column, Compare
>>> from tocsin.language.rewrite import normalise
>>> from tocsin.match.base import unpack
>>> from tocsin.model.columns import Vector
>>> from tocsin.model.schema import Type
>>> from tocsin.predicate.compile import flatten
>>> index = Auto()
>>> index.add(np.array([7]), flatten([normalise(Compare(Column("price", Type.BIGINT), "<", 5))]))
>>> unpack(index.match(Rows.of(price=Vector.of(Type.BIGINT, [3, 9, 4]))))
(array([7, 7]), array([0, 2]))
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import groupby, pairwise
from pathlib import Path
from time import perf_counter
from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.verify import SEEN
from tocsin.match.base import MatchIndex
from tocsin.match.build.assemble import Spread, alone, in_halves
from tocsin.match.build.cost import Sample, build
from tocsin.match.build.samples import Samples
from tocsin.match.dimensions import grouped
from tocsin.match.segments.files import open_segment, read_version, write_segment, write_version
from tocsin.match.segments.immutable import PATHS, Segment
from tocsin.match.segments.merge_policy import (
    Held,
    Merge,
    Policy,
    background,
    due,
    is_thin,
    living,
    sift,
)
from tocsin.match.segments.migrate import Melt, melts
from tocsin.match.segments.mutable import Front, FrontFrame, Hung
from tocsin.match.segments.rebuild import hangs_badly
from tocsin.match.thread_buffers import Shares
from tocsin.model.columns import Index, Mask, Rows, distinct, longer
from tocsin.predicate.conjunctions import Conjunctions, Names, merge_conjunctions
from tocsin.predicate.deferred import DeferredFilters, deferred_conjunctions
from tocsin.predicate.events import Events, events_of
from tocsin.predicate.flat import FlatFilters

__all__ = ["Auto", "Policy"]


NOWHERE = 2**31 - 1  # the owner of slots that can never match


class Auto(MatchIndex):
    """Segments by size; `threads` share the events of a batch."""

    takes_deferred = True

    def __init__(self, policy: Policy | None = None, *, threads: int = 1) -> None:
        self.policy = policy or Policy()
        self.threads = threads
        self._names = Names()
        self._held: list[Held] = []
        self._waiting: list[tuple[int, Index, FlatFilters | DeferredFilters]] = []  # by number, not built yet
        self._owner: NDArray[np.int32] = np.zeros(0, np.int32)  # by slot: number, or 0
        self._next = 1
        self._count = 0
        self._samples = Samples(self.policy.sample, self._names.attributes)
        self._merge: Merge | None = None
        self._melt: Melt | None = None
        self._events = 0
        self._seconds = 0.0
        self._warm = False
        self._put_off = 0  # times to settle before another merge is tried
        self._pool: ThreadPoolExecutor | None = None
        self._workers = 0

    # -- the protocol ----------------------------------------------------------------------------

    def add(self, slots: Index, filters: FlatFilters | DeferredFilters) -> None:
        slots = np.asarray(slots, np.int64)
        if not len(slots):
            return
        if self._next >= NOWHERE - 1:
            self._renumber()
        most = int(slots.max()) + 1
        if most > len(self._owner):
            known = len(self._owner)
            self._owner = longer(self._owner, max(64, most, min(2 * known, known + (1 << 22))))
        assert not self._owner[slots].any(), "a slot is in use"
        self._owner[slots] = self._next
        self._waiting.append((self._next, slots, filters))
        self._next += 1
        self._count += len(slots)
        if len(self._waiting) > 1024:  # many came and nothing was matched: what went meanwhile falls out
            self._build_waiting()

    def remove(self, slots: Index) -> None:
        slots = np.asarray(slots, np.int64)
        owners = self._owner[slots]
        assert owners.all(), "a slot is not in use"
        for held in self._held:
            mine = slots[owners == held.number]
            if held.is_front and not self._is_taken(held):
                held.segment.remove(mine)  # type: ignore[union-attr]
            else:
                held.dead += len(mine)
        self._owner[slots] = 0
        self._count -= len(slots)

    def match(self, rows: Rows) -> Index:
        events = events_of(rows)
        is_first = not self._samples
        if is_first:  # what waits is built by what is asked
            self._samples.remember(events, self._names.attributes.find(events.names))
        self._settle()
        begun = perf_counter()
        numbers = self._names.attributes.find(events.names)
        out: list[Index] = []
        doubtful: list[Index] = []
        for held, (once, twice, seen) in zip(self._held, self._matched(events, numbers), strict=True):
            out += once
            doubtful += twice
            held.seen += seen
            held.events += events.count
        if not is_first:
            self._samples.remember(events, numbers)
        if self._warm:  # the first match may have to load compiled code
            self._events += events.count
            self._seconds += perf_counter() - begun
        self._warm = self._warm or bool(self._held)
        if any(len(part) for part in doubtful):
            out.append(distinct(np.concatenate(doubtful)))
        found = [part for part in out if len(part)]
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def supports(self, filters: FlatFilters | DeferredFilters) -> Mask:
        return np.ones(filters.count, np.bool_)

    def stats(self) -> dict[str, Any]:
        """Subscriptions, bytes, conjunctions by path, and cost per event: expected, and measured so far."""
        self._settle()
        built = [held.segment for held in self._held if isinstance(held.segment, Segment)]
        paths = {path: sum(segment.counts[path] for segment in built) for path in PATHS}
        paths["front"] = sum(h.segment.size for h in self._held if h.is_front)
        paths["every"] = sum(len(held.segment.every) for held in self._held)
        costly = sorted((c for held in self._held for c in held.segment.costly), key=lambda c: -c[1])
        return {
            "index": "auto",
            "subscriptions": self._count,
            "bytes": sum(held.segment.nbytes for held in self._held) + self._owner.nbytes,
            "segments": [len(held) for held in self._held],
            "removed": sum(held.dead for held in self._held),
            "paths": paths,
            "expected_us_per_event": sum(h.expected for h in self._held) / 1000,
            "measured_us_per_event": 1e6 * self._seconds / self._events if self._events else None,
            "candidates_per_event": self._candidates(),
            "slowest": [
                {"slot": slot, "expected_ns_per_event": cost} for slot, cost in costly if self._owner[slot]
            ][:10],
        }

    def _candidates(self) -> dict[str, float]:
        """How many conjunctions an event was compared with, by path, and in fronts."""
        out = dict.fromkeys(("lists", "pairs", "always", "bits", "values", "front"), 0.0)
        for held in self._held:
            seen = held.seen / max(1, held.events)
            if held.is_front:
                out["front"] += float(seen[0] + seen[1] + seen[3])  # in lists, by pairs, loose
                continue
            for path, own in zip(out, seen[:5].tolist(), strict=False):
                out[path] += own
        return out

    def wait(self) -> None:
        """Until nothing is being built: for measurements and for saving."""
        self._settle()
        while self._merge is not None:
            self._merge.future.exception()  # of an error is told when it is taken in
            self._settle()

    # -- on disk ---------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> int:
        """Write this state as the next version of a folder, and returns its number.

        Segments that are there already are not written again.
        """
        root = Path(folder)
        self.wait()
        for front in [held for held in self._held if held.is_front]:
            self._replace([front], self._build(living(front, self._owner)))
        for held in self._held:
            assert isinstance(held.segment, Segment)
            if held.name is None or not (root / "segments" / held.name).is_dir():
                held.name = write_segment(root, held.segment)
        content = {
            "segments": [{"name": h.name, "number": h.number, "dead": h.dead} for h in self._held],
            "attributes": list(self._names.attributes),
            "patterns": list(self._names.patterns),
            "count": self._count,
            "next": self._next,
        }
        return write_version(root, content, self._owner)

    @classmethod
    def open(cls, folder: str | Path, version: int | None = None, **options: Any) -> Auto:
        """The index of a version (the newest, if None), its segments mapped, not read."""
        root = Path(folder)
        _, content, owner = read_version(root, version)
        index = cls(**options)
        index._owner, index._count, index._next = owner, content["count"], content["next"]
        patterns = [(kind, text) for kind, text in content["patterns"]]
        index._names = Names(content["attributes"], patterns)
        index._samples = Samples(index.policy.sample, index._names.attributes)
        for entry in content["segments"]:
            held = Held(open_segment(root, entry["name"]), entry["number"], entry["name"], entry["dead"])
            index._held.append(held)
        return index

    # -- matching --------------------------------------------------------------------------------

    def _matched(self, events: Events, numbers: Index) -> Iterator[tuple[list[Index], list[Index], Index]]:
        """What each segment tells of a batch, as it does; threads share the events."""
        nothing = np.empty(0, np.int32)
        frames = [s.frame if isinstance(s, Front) else s for s in (held.segment for held in self._held)]
        known = {id(frame): frame.ask(events, numbers) for frame in {id(f): f for f in frames}.values()}
        asked = [known[id(frame)] for frame in frames]
        count = self.threads if events.count >= 2 * self.threads else 1
        cuts = np.linspace(0, events.count, count + 1).astype(int).tolist()
        rooms = [Shares([held.segment.room(z - a) for a, z in pairwise(cuts)]) for held in self._held]

        def part(share: int) -> list[tuple[list[Index], list[Index], Index]]:
            some = grouped(events, numbers, len(self._names.attributes), cuts[share], cuts[share + 1])
            found = []
            for held, batch, room in zip(self._held, asked, rooms, strict=True):
                owner = self._owner if held.dead else nothing
                found.append(held.segment.match(batch, some, owner, held.number, room.of(share)))
            return found

        if self._workers < count - 1:
            self._pool, self._workers = ThreadPoolExecutor(count - 1), count - 1
        others: list[Future[Any]] = []
        try:
            for share in range(1, count):
                assert self._pool is not None
                others.append(self._pool.submit(part, share))
            parts = [part(0)]
        finally:
            wait(others)  # whatever happens, nobody reads on
        parts += [other.result() for other in others]
        for room, *own in zip(rooms, *parts, strict=True):
            once = [*room.together([told[0][0] for told in own]), *(m for told in own for m in told[0][1:])]
            yield once, [twice for told in own for twice in told[1]], sum(told[2] for told in own)

    # -- segments --------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Take in what was built, build what waits, begin what is due."""
        if self._merge is not None and self._merge.future.done():
            merge, self._merge = self._merge, None
            if (error := merge.future.exception()) is not None:  # the old ones can still answer
                warn(f"merging filters failed, and is put off: {error!r}", RuntimeWarning, stacklevel=3)
                self._put_off = 64
                self._sweep(merge.old)
            else:
                self._replace(merge.old, merge.future.result())
        if self._waiting:
            self._build_waiting()
        self._put_off = max(0, self._put_off - 1)
        if self._merge is None and not self._melt_some() and not self._put_off:
            self._begin(due(self._held, self.policy, self._hangs_badly))

    def _melt_some(self) -> bool:
        """Move some of a segment that melts, or see whether one should; False if none does."""
        if self._melt is not None and not self._melt.is_among(self._held):
            self._melt = None
        if self._melt is None and (found := melts(self._held, self.policy)) is not None:
            melt = Melt(*found, self._owner)
            self._melt = melt if self._may_melt(melt) else None
        if self._melt is None:
            return False
        segment, front = self._melt.segment, self._melt.front
        portion = self._melt.some(self._owner, self.policy.moved)
        slots = distinct(portion.slot)
        if not self._extend(front, portion.by_key(), sure=True):
            segment.is_firm, self._melt = True, None  # too many hang on nothing
            return False
        segment.dead += len(slots)
        self._melt.moved()
        if self._melt.is_done:
            self._held.remove(segment)
            self._melt = None
        return True

    def _may_melt(self, melt: Melt) -> bool:
        """Would it cost little in the front?"""
        front, sample = melt.front.segment, melt.sample()
        assert isinstance(front, Front)
        hung = front.hung(sample.by_key(), self._samples.now)
        share = len(melt.segment) / max(1, sample.size)
        melt.segment.is_firm = hung is None or share * hung.cost > self.policy.felt * self.policy.costs.coded
        return not melt.segment.is_firm

    def _renumber(self) -> None:
        """Begin with small numbers again: there are 2^31, and each batch takes one."""
        self.wait()
        known = np.array([held.number for held in self._held], np.int64)
        order = np.argsort(known)
        there = np.flatnonzero((self._owner > 0) & (self._owner < NOWHERE))
        self._owner[there] = 1 + np.searchsorted(known[order], self._owner[there])
        for number, place in enumerate(order.tolist(), 1):
            self._held[place].number = number
        self._next = len(order) + 1

    def _sweep(self, some: list[Held]) -> None:
        """Take off what was removed from fronts while they had to stay as they were."""
        for held in some:
            if isinstance(held.segment, Front) and held.dead:
                slots = held.segment.slots
                held.segment.remove(slots[self._owner[slots] != held.number])
                held.dead = 0

    def _build_waiting(self) -> None:
        parts = []
        for number, portion in self._portions(self._waiting):
            owned = self._owner[portion.slot] == number
            parts.append(portion if owned.all() else portion.take(np.flatnonzero(owned)))
        there = [part for part in parts if part.size]
        if there and not self._to_front(there):
            self._hold(self._build(merge_conjunctions(there)), _slots_of(there))
        for number, slots, _ in self._waiting:
            self._owner[slots[self._owner[slots] == number]] = NOWHERE  # they have nothing that could match
        self._waiting = []  # if something went wrong before, they wait on

    def _portions(self, waiting: list[Any]) -> Iterator[tuple[Any, Conjunctions]]:
        """What waits, in the index's own names, with the number of each conjunction; small ones together."""
        for kind, some in groupby(waiting, lambda one: getattr(one[2], "kind", None)):
            batches = list(some)
            if kind is None:
                yield from ((number, self._names.conjunctions(s, filters)) for number, s, filters in batches)
                continue
            numbers = np.repeat([number for number, _, _ in batches], [len(s) for _, s, _ in batches])
            own = np.concatenate([s for _, s, _ in batches])
            yield numbers, deferred_conjunctions([later for _, _, later in batches], own, self._names)

    def _to_front(self, parts: list[Conjunctions]) -> bool:
        """Take new conjunctions into a front, if they are few beside all, and will not be felt there.

        Patterns would be asked of every event in each front again; they go into segments.
        """
        fronts = [held for held in self._held if held.is_front and not self._is_taken(held)]
        more, there = sum(part.size for part in parts), sum(len(held) for held in self._held)
        patterned = any(len(part.key) and part.key.max() >= (1 << 40) for part in parts)
        if patterned or more > self.policy.gust * there:
            return False
        portion = merge_conjunctions(parts).by_key()
        newest = max(fronts, key=lambda held: held.number, default=None)
        if newest is not None and newest.segment.takes(portion):  # type: ignore[union-attr]
            return self._extend(newest, portion)
        if len(fronts) < self.policy.fronts:
            fronts = []
        else:  # many small ones become one
            parts = [*(living(held, self._owner) for held in fronts), *parts]
            portion = merge_conjunctions(parts).by_key()
        front = Front(self._frame_for(portion), self.policy.costs)
        hung = front.hung(portion, self._samples.now)
        if hung is None or self._is_much(hung):
            if not fronts:
                return False
            self._hold_instead(fronts, self._build(portion), _slots_of(parts))
            return True  # together they are too much for a front
        front.take(hung)
        self._hold_instead(fronts, front, _slots_of(parts))
        for held in fronts:  # what they have cost is not forgotten
            self._held[-1].seen += held.seen
            self._held[-1].events += held.events
        return True

    def _extend(self, held: Held, portion: Conjunctions, *, sure: bool = False) -> bool:
        """Take conjunctions into a front that is there, if it is not too much, or that is sure."""
        assert isinstance(held.segment, Front)
        hung = held.segment.hung(portion, self._samples.now)
        if hung is None or (not sure and self._is_much(hung)):
            return False
        held.segment.take(hung)
        self._owner[portion.slot] = held.number
        return True

    def _is_taken(self, held: Held) -> bool:
        """Is something being built from it?"""
        return self._merge is not None and held in self._merge.old

    def _is_much(self, hung: Hung) -> bool:
        """Would it soon be felt?"""
        policy = self.policy
        return policy.soon * hung.cost > policy.felt * policy.costs.building(hung.portion.size)

    def _frame_for(self, portion: Conjunctions) -> FrontFrame:
        """The frame of another front, if it will do: events are then spread once for both."""
        for held in reversed(self._held):
            if isinstance(held.segment, Front) and held.segment.takes(portion):
                return held.segment.frame.widened(portion)
        return FrontFrame.of(portion, tuple(self._names.patterns))

    def _hold_instead(self, old: list[Held], segment: Segment | Front, slots: NDArray[np.int32]) -> None:
        self._held = [held for held in self._held if held not in old]
        self._hold(segment, slots)

    def _hold(self, segment: Segment | Front, slots: NDArray[np.int32], *, whole: bool = False) -> None:
        """Take a segment in use, for slots that live; those it has nothing of can never match.

        If `whole`, it has something of all of them.
        """
        if not whole:
            self._owner[slots] = NOWHERE
            several = segment.has_several
            whole = segment.size + len(segment.every) == len(slots) and not several
        self._owner[slots if whole else slots[np.isin(slots, segment.slots)]] = self._next
        self._held.append(Held(segment, self._next, is_blind=len(self._samples) < self.policy.known))
        self._next += 1
        folder = self.policy.folder
        if (
            folder is not None
            and isinstance(segment, Segment)
            and len(self._held[-1]) > self.policy.background
        ):
            name = write_segment(folder, segment)  # the files are used in its place
            self._held[-1].segment, self._held[-1].name = open_segment(folder, name), name

    def _build(
        self,
        portion: Conjunctions,
        spread: Spread = in_halves,
        samples: list[Sample] | None = None,
        weight: float = 1.0,
    ) -> Segment:
        """Where samples are not given, a small segment has the last one: it is soon merged."""
        if samples is None:
            samples = self._samples.now()[-1 if portion.size <= self.policy.background else 0 :]
        return build(portion, tuple(self._names.patterns), samples, self.policy.costs, spread, weight)

    @property
    def _ns_per_event(self) -> float:
        return 1e9 * self._seconds / max(1, self._events)

    def _hangs_badly(self, held: Held) -> bool:
        return hangs_badly(held, self.policy, self._ns_per_event, self._tried)

    def _tried(self, portion: Conjunctions, weight: float) -> tuple[Segment, NDArray[np.float64]]:
        """A segment by one half of the sample, and the candidates that an event of the other has there."""
        samples = self._samples.now()
        part = self._build(portion, samples=samples[::2], weight=weight)
        seen, events = np.zeros(SEEN), 0
        for one in samples[1::2] or samples:
            count = one.events.count
            some = grouped(one.events, one.numbers, len(self._names.attributes), 0, count)
            asked = part.ask(one.events, one.numbers)
            room = np.empty(part.room(count), np.int64)
            seen += part.match(asked, some, np.empty(0, np.int32), 0, room)[2]
            events += count
        return part, seen / max(1, events)

    def _begin(self, old: list[Held]) -> None:
        """Build segments anew as one: at once if small, else in the background."""
        if not old:
            return
        owner = self._owner.copy() if len(old) > 1 or old[0].dead else self._owner
        total, samples = sum(len(held) for held in old), self._samples.now()
        thinned = len(old) == 1 and is_thin(old[0], self.policy)

        def merged(spread: Spread) -> Segment:
            made = sift(old[0], owner) if thinned else None
            made = made or self._build(
                merge_conjunctions([living(held, owner) for held in old]), spread, samples
            )
            assert len(made.slots) >= len(made.every)  # they are found here, not when it is taken in use
            return made

        if total <= self.policy.background:
            self._replace(old, merged(in_halves))
            return
        self._merge = Merge(background().submit(merged, alone), old)

    def _replace(self, old: list[Held], segment: Segment) -> None:
        """Put a segment in the place of others; what was removed meanwhile is dead in it."""
        numbers = [held.number for held in old]
        self._held = [held for held in self._held if held not in old]
        if segment.size or len(segment.every):
            alive = np.isin(self._owner[segment.slots], numbers)
            self._hold(segment, segment.slots[alive], whole=True)
            self._held[-1].dead = int((~alive).sum())
            self._held.sort(key=len, reverse=True)
        for held in old:
            if held.is_front:  # it takes what can never match too, and a segment does not
                slots = held.segment.slots
                self._owner[slots[self._owner[slots] == held.number]] = NOWHERE

    def _check(self) -> None:
        self.wait()
        owned = distinct(self._owner[self._owner > 0])
        assert (self._owner > 0).sum() == self._count
        assert len({held.number for held in self._held}) == len(self._held)
        for held in self._held:
            held.segment._check()
            assert held.dead == (self._owner[held.segment.slots] != held.number).sum()
        assert set(owned.tolist()) <= {NOWHERE, *(held.number for held in self._held)}, "each has an owner"


def _slots_of(portions: list[Conjunctions]) -> NDArray[np.int32]:
    return distinct(np.concatenate([portion.slot for portion in portions]))

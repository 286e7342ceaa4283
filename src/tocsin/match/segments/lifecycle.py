"""The segments of an index, from the first filter on: who owns a slot, and what becomes of segments.

    add ─► waiting ─(maintain)─► mutable segment ─(lookups have cost enough)─► immutable segment ─► larger one
                       │                 └──(an immutable segment that has lost most migrates into it)
                       └─► immutable segment, if there is nothing yet, or the batch is large
    remove ─► removed from the mutable segment; or the slot loses its owner, and matches leave it out

Every slot is owned by one segment, by number. Removal from an immutable segment clears the slot's owner; its
conjunctions stay but are filtered from results until a merge or compaction drops them. Mutable segments whose
lookups have cost much are merged with the immutable ones that are not much larger (`merge_policy.py`): small
merges run at once, large ones in the background, while matching goes on with the old segments and a new
mutable segment takes what is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.verify import Owners
from tocsin.match.build.assemble import ByRanges, in_two_threads, single_threaded
from tocsin.match.build.cost import EventSample, RecentEvents, build
from tocsin.match.segments.base import Segment, group_events, new_counters, with_unconditional
from tocsin.match.segments.files import open_segment, write_segment
from tocsin.match.segments.immutable import ImmutableSegment, compacted, is_hollow
from tocsin.match.segments.merge_policy import (
    AnyState,
    ImmutableState,
    MergePolicy,
    MutableState,
    due_for_merge,
    due_for_migration,
    is_expensive,
    should_compact,
    should_rebuild,
)
from tocsin.match.segments.mutable import MutableFrame, MutableSegment
from tocsin.model.columns import Index, distinct, longer
from tocsin.predicate.conjunctions import Conjunctions, Names, merge_conjunctions
from tocsin.predicate.deferred import DeferredFilters, deferred_conjunctions
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.plain import FEW_PLAIN, PlainFilter, PlainIndex, PlainTemplate, flat_plain

__all__ = ["NEVER", "Migration", "SegmentMerge", "Segments"]

NEVER = 2**31 - 1  # the owner of slots that can never match
_MOST_WAITING = 1024  # batches of filters that wait to be built,
_MOST_PLAIN = 8192  # and plain filters: to build many together costs less for each
_MOST_COMPARED = 1 << 16  # waiting filters that were compared with single events, before they are built
_RETRY = 64  # maintenances before another merge is tried after one has failed
_SAMPLED = 4096  # conjunctions that show what all of a segment would cost in a mutable one


WaitingFilters = FlatFilters | DeferredFilters | PlainFilter


@dataclass
class SegmentMerge:
    """A segment being built in the background from others."""

    future: Future[ImmutableSegment]
    old: Sequence[AnyState]


class Segments:
    """Immutable and mutable segments, and the owners of slots."""

    def __init__(self, policy: MergePolicy, names: Names) -> None:
        self.policy = policy
        self.names = names
        self.immutable: list[ImmutableState] = []  # largest first after a merge
        self.mutable: list[MutableState] = []  # newest last
        self.waiting: list[tuple[int, Index, WaitingFilters]] = []  # by number, not built yet
        self.plain = PlainIndex()  # of those that wait: single events are matched with it
        self.owner = np.zeros(0, np.int32)  # by slot: number of a segment or waiting batch; 0: free
        self.next_number = 1
        self.count = 0  # slots in use
        self.recent = RecentEvents(policy.sample_size, names.attributes)
        self.merge: SegmentMerge | None = None
        self.migration: Migration | None = None
        self.ns_per_event = 0.0  # what matching has cost so far, in all
        self._postponed = 0  # maintenances before another merge is tried

    @property
    def all(self) -> list[AnyState]:
        return [*self.immutable, *self.mutable]

    # -- slots -----------------------------------------------------------------------------------

    def add(self, slots: Index, filters: FlatFilters | DeferredFilters) -> None:
        """Queue filters for the next maintenance; their slots are owned at once."""
        if self.next_number >= NEVER - 1:
            self._renumber()
        most = int(slots.max()) + 1
        if most > len(self.owner):
            known = len(self.owner)
            self.owner = longer(self.owner, max(64, most, min(2 * known, known + (1 << 22))))
        assert not self.owner[slots].any(), "a slot is in use"
        self.owner[slots] = self.next_number
        self.waiting.append((self.next_number, slots, filters))
        self.next_number += 1
        self.count += len(slots)
        if len(self.waiting) > self.plain.count + _MOST_WAITING:  # those removed meanwhile are dropped
            self._build_waiting()

    def add_plain(self, slot: int, filter: PlainFilter) -> None:
        """Queue one filter, with which single events can be matched before it is built."""
        if slot >= len(self.owner) or self.next_number >= NEVER - 1:
            self.add(np.array([slot], np.int64), flat_plain([filter]))
            return
        assert not self.owner[slot], "a slot is in use"
        number = self.next_number
        self.owner[slot] = number
        self.waiting.append((number, np.array([slot], np.int64), filter))
        self.plain.add(number, slot, filter)
        self.next_number, self.count = number + 1, self.count + 1
        if self.plain.count > max(_MOST_WAITING, min(_MOST_PLAIN, self.count)):  # or most of them left
            self._build_waiting()

    @property
    def must_build(self) -> bool:
        """Must waiting filters be built before a single event is matched?"""
        return len(self.waiting) > self.plain.count or self.plain.compared > _MOST_COMPARED

    @property
    def is_merged(self) -> bool:
        """Is there a finished merge to be installed?"""
        return self.merge is not None and self.merge.future.done()

    def remove(self, slots: Index) -> None:
        """Free slots."""
        owners = self.owner[slots]
        assert owners.all(), "a slot is not in use"
        for state in self.mutable:
            mine = slots[owners == state.number]
            if self._is_being_merged(state):
                state.removed += len(mine)
            else:
                state.segment.remove(mine)
        for fixed in self.immutable:
            fixed.removed += int((owners == fixed.number).sum())
        self.owner[slots] = 0
        self.count -= len(slots)

    def _renumber(self) -> None:
        """Start with small numbers again: there are 2^31, and each batch takes one."""
        self.wait()
        states = sorted(self.all, key=lambda state: state.number)
        known = np.array([state.number for state in states], np.int64)
        there = np.flatnonzero((self.owner > 0) & (self.owner < NEVER))
        self.owner[there] = 1 + np.searchsorted(known, self.owner[there])
        for number, state in enumerate(states, 1):
            state.number = number
        self.next_number = len(states) + 1

    # -- maintenance -----------------------------------------------------------------------------

    def maintain(self, *, for_singles: bool = False) -> None:
        """Install a finished merge, build waiting filters, start a migration or merge that is due.

        `for_singles`: plain filters may go on waiting, as long as looking them up costs little.
        """
        self._finish_merge()
        if self.waiting and (self.must_build or not for_singles):
            self._build_waiting()
        self._postponed = max(0, self._postponed - 1)
        if self.merge is None and not self._migrate_some() and not self._postponed:

            def needs_rebuild(state: ImmutableState) -> bool:
                return should_rebuild(state, self.policy, self.ns_per_event, self._trial)

            self._start_merge(due_for_merge(self.immutable, self.mutable, self.policy, needs_rebuild))

    def wait(self) -> None:
        """Wait until nothing is being built."""
        self.maintain()
        while self.merge is not None:
            self.merge.future.exception()  # an error is reported when the merge is finished
            self.maintain()

    def _build_waiting(self) -> None:
        self.names.drop_unused(state.segment.dimensions.key for state in self.all)
        batches = []
        for number, conjunctions in self._waiting_batches():
            owned = self.owner[conjunctions.slot] == number
            batches.append(conjunctions if owned.all() else conjunctions.take(np.flatnonzero(owned)))
        there = [conjunctions for conjunctions in batches if conjunctions.size]
        if there and not self._add_to_mutable(there):
            self._install(self.build(merge_conjunctions(there)), _slots_of(there))
        if self.waiting:
            slots = np.concatenate([slots for _, slots, _ in self.waiting])
            numbers = np.repeat([n for n, _, _ in self.waiting], [len(own) for _, own, _ in self.waiting])
            self.owner[slots[self.owner[slots] == numbers]] = NEVER  # no conjunction of theirs can hold
        self.waiting = []  # after an error before this line they go on waiting
        self.plain = PlainIndex()

    def _waiting_batches(self) -> Iterator[tuple[Any, Conjunctions]]:
        """Waiting filters in the index's own names, with each conjunction's number; small ones together."""
        plain: dict[PlainTemplate, list[tuple[int, Index, PlainFilter]]] = {}
        waiting: list[Any] = []
        for number, slots, filters in self.waiting:
            if isinstance(filters, PlainFilter):
                plain.setdefault(filters.template, []).append((number, slots, filters))
            else:
                waiting.append((number, slots, filters))
        rare = [one for same in plain.values() if len(same) < FEW_PLAIN for one in same]
        for same in [*(same for same in plain.values() if len(same) >= FEW_PLAIN), *([rare] if rare else [])]:
            own = np.concatenate([slots for _, slots, _ in same])
            flat = flat_plain([filters for _, _, filters in same])
            numbers = np.array([number for number, _, _ in same])[flat.owner]
            yield numbers, self.names.conjunctions(own, flat)
        for kind, some in groupby(waiting, lambda batch: getattr(batch[2], "kind", None)):
            batches = list(some)
            if kind is None:
                yield from ((number, self.names.conjunctions(s, filters)) for number, s, filters in batches)
                continue
            numbers = np.repeat([number for number, _, _ in batches], [len(s) for _, s, _ in batches])
            own = np.concatenate([s for _, s, _ in batches])
            yield numbers, deferred_conjunctions([later for _, _, later in batches], own, self.names)

    def build(
        self,
        conjunctions: Conjunctions,
        by_ranges: ByRanges = in_two_threads,
        samples: list[EventSample] | None = None,
        weight: float = 1.0,
    ) -> ImmutableSegment:
        """Without given samples, a small segment is built from the last batch alone: it is soon merged."""
        if samples is None:
            samples = self.recent.samples()[-1 if conjunctions.size <= self.policy.background_size else 0 :]
        return build(conjunctions, tuple(self.names.patterns), samples, self.policy.costs, by_ranges, weight)

    # -- mutable segments ------------------------------------------------------------------------

    def _add_to_mutable(self, batches: list[Conjunctions]) -> bool:
        """Add new conjunctions to a mutable segment, if they are few beside all, and will cost little there.

        Patterns would be matched for every event in each mutable segment again: they go to immutable ones.
        """
        size, there = (
            sum(conjunctions.size for conjunctions in batches),
            sum(len(state) for state in self.all),
        )
        has_patterns = any(
            len(conjunctions.key) and conjunctions.key.max() >= (1 << 40) for conjunctions in batches
        )
        if has_patterns or size > self.policy.batch_share * there:
            return False
        conjunctions = merge_conjunctions(batches).by_key()
        open_ones = [state for state in self.mutable if not self._is_being_merged(state)]
        newest = max(open_ones, key=lambda state: state.number, default=None)
        if newest is not None and newest.segment.accepts(conjunctions):
            return self._extend(newest, conjunctions)
        if len(open_ones) < self.policy.most_mutable:
            open_ones = []
        else:  # many small ones become one
            batches = [*(state.living(self.owner) for state in open_ones), *batches]
            conjunctions = merge_conjunctions(batches).by_key()
        segment = MutableSegment(self._frame_for(conjunctions), self.policy.costs)
        placement = segment.place(conjunctions, self.recent.samples)
        if placement is None or is_expensive(placement.cost, placement.conjunctions.size, self.policy):
            if not open_ones:
                return False
            built = self.build(conjunctions)
            self._drop(open_ones)
            self._install(built, _slots_of(batches))
            return True  # together they are too expensive for a mutable segment
        segment.add(placement)
        self._drop(open_ones)
        state = self._install_mutable(segment, _slots_of(batches))
        for old in open_ones:  # what they have cost still counts
            state.counters += old.counters
            state.events += old.events
        return True

    def _extend(
        self, state: MutableState, conjunctions: Conjunctions, *, whatever_it_costs: bool = False
    ) -> bool:
        """Add conjunctions to a mutable segment in use; False if that would cost too much."""
        placement = state.segment.place(conjunctions, self.recent.samples)
        if placement is None:
            return False
        if not whatever_it_costs and is_expensive(placement.cost, placement.conjunctions.size, self.policy):
            return False
        state.segment.add(placement)
        self.owner[conjunctions.slot] = state.number
        return True

    def _frame_for(self, conjunctions: Conjunctions) -> MutableFrame:
        """The frame of another mutable segment, if it will do: they then share the encoding of events."""
        for state in reversed(self.mutable):
            if state.segment.accepts(conjunctions):
                return state.segment.frame.widened(conjunctions)
        return MutableFrame.of(conjunctions, tuple(self.names.patterns))

    def _is_being_merged(self, state: AnyState) -> bool:
        return self.merge is not None and state in self.merge.old

    # -- segments in use -------------------------------------------------------------------------

    def _install(
        self, segment: ImmutableSegment, slots: NDArray[np.int32], *, removed: int = 0, has_all: bool = False
    ) -> None:
        """Use a segment, as the owner of these slots."""
        self._own(segment, slots, has_all)
        undersampled = len(self.recent) < self.policy.min_sample
        state = ImmutableState(segment, self.next_number, removed=removed, is_undersampled=undersampled)
        self.next_number += 1
        folder = self.policy.folder
        if folder is not None and len(state) > self.policy.background_size:
            state.name = write_segment(folder, segment)
            state.segment = open_segment(folder, state.name)  # the files are used in its place
        self.immutable.append(state)

    def _install_mutable(self, segment: MutableSegment, slots: NDArray[np.int32]) -> MutableState:
        self._own(segment, slots)
        state = MutableState(segment, self.next_number)
        self.next_number += 1
        self.mutable.append(state)
        return state

    def _own(self, segment: Segment, slots: NDArray[np.int32], has_all: bool = False) -> None:
        """Make the next number the owner of slots; those the segment has nothing of can never match."""
        if not has_all:
            self.owner[slots] = NEVER
            several = segment.may_repeat
            has_all = segment.size + len(segment.unconditional) == len(slots) and not several
        self.owner[slots if has_all else slots[np.isin(slots, segment.slots)]] = self.next_number

    def _drop(self, old: Sequence[AnyState]) -> None:
        self.immutable = [state for state in self.immutable if state not in old]
        self.mutable = [state for state in self.mutable if state not in old]

    # -- merging ---------------------------------------------------------------------------------

    def _start_merge(self, old: Sequence[AnyState]) -> None:
        """Build one segment from others: at once if small, else in the background."""
        if not old:
            return
        owner = self.owner.copy() if len(old) > 1 or old[0].removed else self.owner
        total, samples = sum(len(state) for state in old), self.recent.samples()
        thin = [s for s in self.immutable if len(old) == 1 and s is old[0] and should_compact(s, self.policy)]

        def merged(by_ranges: ByRanges) -> ImmutableSegment:
            made = _compacted(thin[0], owner) if thin else None
            made = made or self.build(
                merge_conjunctions([state.living(owner) for state in old]), by_ranges, samples
            )
            assert len(made.slots) >= len(made.unconditional)  # slots are computed here, in the background
            return made

        if total <= self.policy.background_size:
            self.replace(old, merged(in_two_threads))
            return
        self.merge = SegmentMerge(_background().submit(merged, single_threaded), old)

    def _finish_merge(self) -> None:
        if self.merge is None or not self.is_merged:
            return
        merge, self.merge = self.merge, None
        if (error := merge.future.exception()) is None:
            self.replace(merge.old, merge.future.result())
            return
        warn(f"merging filters failed, and is put off: {error!r}", RuntimeWarning, stacklevel=5)
        self._postponed = _RETRY  # the old segments go on matching
        for state in self.mutable:  # removals that had to wait for the merge
            if state in merge.old and state.removed:
                slots = state.segment.slots
                state.segment.remove(slots[self.owner[slots] != state.number])
                state.removed = 0

    def replace(self, old: Sequence[AnyState], segment: ImmutableSegment) -> None:
        """Put a segment in the place of others; slots that were removed meanwhile stay removed."""
        numbers = [state.number for state in old]
        taken = [state for state in self.mutable if state in old]
        self._drop(old)
        if segment.size or len(segment.unconditional):
            alive = np.isin(self.owner[segment.slots], numbers)
            self._install(segment, segment.slots[alive], removed=int((~alive).sum()), has_all=True)
            self.immutable.sort(key=len, reverse=True)
        for state in taken:  # a mutable segment also holds conjunctions that can never match
            slots = state.segment.slots
            self.owner[slots[self.owner[slots] == state.number]] = NEVER

    def freeze(self) -> None:
        """Replace every mutable segment by an immutable one: for saving."""
        for state in list(self.mutable):
            self.replace([state], self.build(state.living(self.owner)))

    def _trial(
        self, conjunctions: Conjunctions, weight: float
    ) -> tuple[ImmutableSegment, NDArray[np.float64]]:
        """A segment built from half of the sampled events, and its counters per event on the other half."""
        samples = self.recent.samples()
        segment = self.build(conjunctions, samples=samples[::2], weight=weight)
        counters, events = new_counters().astype(np.float64), 0
        for sample in samples[1::2] or samples:
            count = sample.events.count
            some = group_events(*sample, len(self.names.attributes), 0, count)
            buffer = np.empty(segment.buffer_size(count), np.int64)
            owners = Owners(np.empty(0, np.int32), np.int32(0))
            counters += segment.match(segment.encode(*sample), some, owners, buffer).counters
            events += count
        return segment, counters / max(1, events)

    # -- migration -------------------------------------------------------------------------------

    def _migrate_some(self) -> bool:
        """Migrate a batch, or see whether a segment should migrate; False if none does."""
        if self.migration is not None and not self.migration.is_among(self.immutable, self.mutable):
            self.migration = None
        if self.migration is None:
            found = due_for_migration(self.immutable, self.mutable, self.policy)
            migration = None if found is None else Migration(*found, self.owner)
            self.migration = migration if migration is not None and self._pays_off(migration) else None
        if self.migration is None:
            return False
        source, target = self.migration.source, self.migration.target
        conjunctions = self.migration.next_batch(self.owner, self.policy.migrate_size)
        slots = distinct(conjunctions.slot)
        if not self._extend(target, conjunctions.by_key(), whatever_it_costs=True):
            source.keeps_apart, self.migration = True, None  # too many have no access test
            return False
        source.removed += len(slots)
        self.migration.advance()
        if self.migration.is_done:
            self.immutable.remove(source)
            self.migration = None
        return True

    def _pays_off(self, migration: Migration) -> bool:
        """Would the segment cost little in the mutable one?"""
        source, sample, policy = migration.source, migration.sample(), self.policy
        placement = migration.target.segment.place(sample.by_key(), self.recent.samples)
        scale = len(source) / max(1, sample.size)
        source.keeps_apart = (
            placement is None or scale * placement.cost > policy.cost_factor * policy.costs.encode
        )
        return not source.keeps_apart

    def _check(self) -> None:
        self.wait()
        owned = distinct(self.owner[self.owner > 0])
        assert (self.owner > 0).sum() == self.count
        assert len({state.number for state in self.all}) == len(self.all)
        for state in self.all:
            state.segment._check()
            assert state.removed == (self.owner[state.segment.slots] != state.number).sum()
        assert set(owned.tolist()) <= {NEVER, *(state.number for state in self.all)}, "each slot has an owner"


class Migration:
    """An immutable segment on its way into a mutable one, in batches that nobody has to wait for.

    After each batch all is consistent: the slots that were moved belong to the mutable segment.
    """

    def __init__(self, source: ImmutableState, target: MutableState, owner: NDArray[np.int32]) -> None:
        self.source, self.target = source, target
        chosen, self._unconditional = source.segment.owned(Owners(owner, np.int32(source.number)))
        slots = source.segment.conjunction_slots[chosen]
        order = np.argsort(slots, kind="stable")
        self._chosen, self._slots = chosen[order], slots[order]
        self._at = self._next = 0

    @property
    def is_done(self) -> bool:
        return self._at == len(self._chosen) and not len(self._unconditional)

    def is_among(self, immutable: list[ImmutableState], mutable: list[MutableState]) -> bool:
        """Are both still in use?"""
        return self.source in immutable and self.target in mutable

    def sample(self) -> Conjunctions:
        """Some of the conjunctions, evenly taken."""
        step = max(1, len(self._chosen) // _SAMPLED)
        return self.source.segment.extract(self._chosen[::step])

    def next_batch(self, owner: NDArray[np.int32], most: int) -> Conjunctions:
        """The next conjunctions whose slots are in use, about `most`; a slot comes with all it has."""
        last = min(self._at + most, len(self._slots))
        if last < len(self._slots):
            last = int(np.searchsorted(self._slots, self._slots[last], "left"))
            if last <= self._at:  # one slot has more than that
                last = int(np.searchsorted(self._slots, self._slots[self._at], "right"))
        here = slice(self._at, last)
        alive = owner[self._slots[here]] == self.source.number
        unconditional = self._unconditional[owner[self._unconditional] == self.source.number]
        self._next = last
        return with_unconditional(self.source.segment.extract(self._chosen[here][alive]), unconditional)

    def advance(self) -> None:
        """The last batch is in the mutable segment now."""
        self._at, self._unconditional = self._next, self._unconditional[:0]


def _compacted(state: ImmutableState, owner: NDArray[np.int32]) -> ImmutableSegment | None:
    """A segment without the slots it has lost; None if it is better rebuilt."""
    kept, unconditional = state.segment.owned(Owners(owner, np.int32(state.number)))
    return None if is_hollow(state.segment, kept) else compacted(state.segment, kept, unconditional)


def _slots_of(batches: list[Conjunctions]) -> NDArray[np.int32]:
    return distinct(np.concatenate([conjunctions.slot for conjunctions in batches]))


_BACKGROUND: list[ThreadPoolExecutor] = []


def _background() -> ThreadPoolExecutor:
    """One thread for all indexes of a process."""
    if not _BACKGROUND:
        _BACKGROUND.append(ThreadPoolExecutor(1, "tocsin-merge"))
    return _BACKGROUND[0]

"""The default index: segments of conjunctions, each conjunction on one access path.

    add ─► waiting ─(maintain)─► mutable segment ─► immutable segment ─► larger one     segments/lifecycle.py
    match ─► maintain, then in every segment: candidates by access path, verified       segments/immutable.py
    remove ─► entries of the slot stay in immutable segments but are ignored; the mutable one deletes them

Access paths depend on what events are like. A sample of recent events is kept; a segment that costs clearly
more than it would if it were built today is rebuilt, in the background.

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

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import accumulate, pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from tocsin.compiled import is_compiling
from tocsin.match._kernels.candidates import match_each
from tocsin.match.base import MatchIndex
from tocsin.match.segments.base import SegmentMatches, group_events
from tocsin.match.segments.files import open_segment, read_version, write_segment, write_version
from tocsin.match.segments.immutable import PATHS
from tocsin.match.segments.lifecycle import Segments
from tocsin.match.segments.merge_policy import ImmutableState, MergePolicy
from tocsin.match.single import SingleMatcher
from tocsin.model.columns import Index, Mask, Rows, distinct
from tocsin.model.expressions.tree import is_expression
from tocsin.model.one_row import OneEvent, OneRow, one_row, together
from tocsin.model.schema import Type
from tocsin.predicate.conjunctions import Names
from tocsin.predicate.deferred import DeferredFilters
from tocsin.predicate.events import Events, events_of, with_times
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.plain import PlainFilter
from tocsin.predicate.single import SingleCoder

__all__ = ["Auto", "MergePolicy"]

_FIRST = 256  # the first single events are all sampled
_SAMPLED = 256  # later, one of so many is
_TOGETHER = 16  # sampled events are entered into the sample so many at once
_MANY = 10_000  # fewer filters are matched by interpreted kernels
_FEW = 1000  # a batch of at most so many rows may be matched row by row, if compiling would take longer
_ROW_SECONDS = 1e-4  # what one row is then expected to take


class Auto(MatchIndex):
    """Segments by size; `threads` share the events of a batch."""

    takes_deferred = True
    takes_plain = True

    def __init__(self, policy: MergePolicy | None = None, *, threads: int = 1) -> None:
        self.policy = policy or MergePolicy()
        self.threads = threads
        self._segments = Segments(self.policy, Names())
        self._events = 0  # matched so far, after the first batch, and
        self._seconds = 0.0  # how long that took
        self._is_warm = False
        self._sampled: Events | None = None  # a first batch that is in the sample already
        self._pool: ThreadPoolExecutor | None = None
        self._workers = 0
        self._single = SingleMatcher(self._segments)
        self._coder: SingleCoder | None = None
        self._singles = 0  # single events so far
        self._named = 0  # attributes when `_expressions` was listed
        self._expressions: list[str] = []
        self._single_rows: list[OneEvent | OneRow] = []  # of them, to be sampled
        self._is_undersampled = True  # all of them are, as long as the sample is small

    # -- filters and events ------------------------------------------------------------------------

    def add(self, slots: Index, filters: FlatFilters | DeferredFilters) -> None:
        if len(slots):
            self._segments.add(np.asarray(slots, np.int64), filters)

    def add_plain(self, slot: int, filter: PlainFilter) -> None:
        self._segments.add_plain(slot, filter)

    def remove(self, slots: Index) -> None:
        self._segments.remove(np.asarray(slots, np.int64))

    def match(self, rows: Rows) -> Index:
        if self._is_better_singly(len(rows)) and (singly := self._match_singly(rows)) is not None:
            return singly
        events = self._maintained(rows)
        found = self._verified_candidates(events)  # by segment: candidates by access path, then their tests
        return _deduplicated(found)

    def match_one(self, event: dict[str, Any], types: Mapping[str, Type] | None = None) -> Index | None:
        """As `MatchIndex.match_one`. Some events are sampled, and now and then maintenance takes place."""
        coder, segments = self._coder, self._segments
        if coder is None or coder.types is not types:
            coder = self._coder = SingleCoder(segments.names, types, self._single.event)
        if not coder.code(event):
            return None
        self._singles += 1
        if (
            not self._singles % _SAMPLED
            or self._is_undersampled
            or (segments.waiting and segments.must_build)
        ):
            return self._match_sampled(event, coder)
        found = self._single.match()
        return self._with_plain(found, event) if segments.plain.count else found

    def _match_sampled(self, event: dict[str, Any], coder: SingleCoder) -> Index | None:
        """Match a coded event, measure how long that takes, and sample it."""
        segments = self._segments
        self._single_rows.append(one_row(event.copy(), coder.types))
        enough = _FIRST if self._is_undersampled else _TOGETHER
        if len(self._single_rows) >= enough or segments.must_build or segments.is_merged:
            self._sample_singles(enough)
            segments.maintain(for_singles=True)
            if not coder.code(event):  # new filters may name other attributes
                return None
        began = perf_counter()
        found = self._single.match()
        if segments.plain.count:
            found = self._with_plain(found, event)
        if self._is_warm:
            self._events += 1
            self._seconds += perf_counter() - began
        self._is_warm = True
        return found

    def maintain(self, events: Events | None = None) -> None:
        """Install a finished merge, build waiting filters, start a merge that is due; `match` calls it.

        Waiting filters are built for the events of the sample; if there are none yet, for `events`.
        """
        recent = self._segments.recent
        if events is not None and not recent:
            recent.add(events, self._segments.names.attributes.find(events.names))
            self._sampled = events
        self._segments.maintain()

    @property
    def expressions(self) -> Sequence[str]:
        names = self._segments.names.attributes
        if len(names) != self._named:
            self._named, self._expressions = len(names), [name for name in names if is_expression(name)]
        return self._expressions

    def supports(self, filters: FlatFilters | DeferredFilters) -> Mask:
        return np.ones(filters.count, np.bool_)

    def wait(self) -> None:
        """Wait until nothing is being built: for measurements and for saving."""
        self._segments.wait()

    def stats(self) -> dict[str, Any]:
        """Subscriptions, bytes, conjunctions by path, and cost per event: expected, and measured so far."""
        self.maintain()
        states = self._segments.all
        paths = dict.fromkeys((*PATHS, "mutable", "unconditional"), 0)
        candidates = dict.fromkeys(("lists", "pairs", "unindexed", "bits", "values", "mutable"), 0.0)
        for state in states:
            paths["unconditional"] += len(state.segment.unconditional)
            for path, count in state.segment.paths.items():
                paths[path] += count
            for path, each in state.segment.candidates(state.counters / max(1, state.events)).items():
                candidates[path] += each
        costly = sorted((c for state in states for c in state.segment.costly), key=lambda c: -c[1])
        owner = self._segments.owner
        return {
            "index": "auto",
            "subscriptions": self._segments.count,
            "bytes": sum(state.segment.nbytes for state in states) + owner.nbytes,
            "segments": [len(state) for state in states],
            "removed": sum(state.removed for state in states),
            "paths": paths,
            "expected_us_per_event": sum(state.segment.expected_cost for state in states) / 1000,
            "measured_us_per_event": 1e6 * self._seconds / self._events if self._events else None,
            "candidates_per_event": candidates,
            "slowest": [
                {"slot": slot, "expected_ns_per_event": cost} for slot, cost in costly if owner[slot]
            ][:10],
        }

    # -- matching --------------------------------------------------------------------------------

    def _is_better_singly(self, rows: int) -> bool:
        """Whether the kernels of batches are not compiled yet, and so few rows are not worth it."""
        if self._segments.count < _MANY or rows > _FEW:
            return False
        return not match_each.pays(_ROW_SECONDS * rows)

    def _match_singly(self, rows: Rows) -> Index | None:
        """Match the rows of a batch one by one, by far fewer kernels; None if one of them is not plain."""
        types = None if rows.sparse else {name: vector.type for name, vector in rows.columns}
        found = []
        for number, row in enumerate(rows.to_dicts()):
            slots = self.match_one(row, types)
            if slots is None:
                return None
            found.append((slots << 32) | number)
        return np.concatenate(found) if found else np.empty(0, np.int64)

    def _with_plain(self, found: Index, event: dict[str, Any]) -> Index:
        """What was found, and the plain filters that match."""
        more = self._segments.plain.match(event, self._segments.owner)
        return np.sort(np.concatenate([found, np.array(more, np.int64)])) if more else found

    def _sample_singles(self, enough: int) -> None:
        """Enter single events into the sample, many together; the first one of all at once."""
        rows, recent = self._single_rows, self._segments.recent
        if rows and (not recent or len(rows) >= enough):
            events = events_of(together(rows))
            recent.add(events, self._segments.names.attributes.find(events.names))
            self._single_rows = []
        self._is_undersampled = len(recent) < self.policy.min_sample

    def _verified_candidates(self, events: Events) -> list[SegmentMatches]:
        """Candidates of every segment, verified while they are in the cache; threads share the events."""
        begun, segments = perf_counter(), self._segments
        states, numbers = segments.all, segments.names.attributes.find(events.names)
        dimensions = {id(d): d for d in (state.segment.dimensions for state in states)}
        encoded = {own: d.encode(events, numbers) for own, d in dimensions.items()}
        shares = self.threads if events.count >= 2 * self.threads else 1
        cuts = np.linspace(0, events.count, shares + 1).astype(int).tolist()
        buffers = [ThreadBuffers([s.segment.buffer_size(z - a) for a, z in pairwise(cuts)]) for s in states]

        def match_share(share: int) -> list[SegmentMatches]:
            some = group_events(events, numbers, len(segments.names.attributes), *cuts[share : share + 2])
            found = []
            for state, buffer in zip(states, buffers, strict=True):
                codes, owners = encoded[id(state.segment.dimensions)], state.owners(segments.owner)
                found.append(state.segment.match(codes, some, owners, buffer.of(share)))
            return found

        found = match_share(0) if shares == 1 else self._in_threads(match_share, buffers, shares)
        for state, own in zip(states, found, strict=True):
            state.counters += own.counters
            state.events += events.count
        if self._sampled is not events:
            segments.recent.add(events, numbers)
        self._sampled = None
        if self._is_warm:  # the first match may have to load compiled code
            self._events += events.count
            self._seconds += perf_counter() - begun
            segments.ns_per_event = 1e9 * self._seconds / max(1, self._events)
        self._is_warm = is_compiling() and (self._is_warm or bool(states))
        return found

    def _maintained(self, rows: Rows) -> Events:
        """The rows as events, after maintenance, which they may be sampled for."""
        events = events_of(rows)
        self.maintain(events)
        return self._with_times(events) if rows.sparse and self._segments.names.timed else events

    def _with_times(self, events: Events) -> Events:
        """The events, with the times that texts hold of attributes that filters compare with times."""
        names = self._segments.names
        number = names.attributes.find(events.names)
        timed = with_times(events, np.isin(number, np.array(sorted(names.timed), np.int64)))
        if self._sampled is events:
            self._sampled = timed
        return timed

    def _in_threads(
        self, run: Callable[[int], list[SegmentMatches]], buffers: list[ThreadBuffers], shares: int
    ) -> list[SegmentMatches]:
        """What run(0), run(1), ... find by segment, put together; the first one runs in this thread."""
        if self._workers < shares - 1:
            self._pool, self._workers = ThreadPoolExecutor(shares - 1), shares - 1
        others: list[Future[list[SegmentMatches]]] = []
        try:
            for share in range(1, shares):
                assert self._pool is not None
                others.append(self._pool.submit(run, share))
            by_share = [run(0)]
        finally:
            wait(others)  # even after an error, no thread goes on reading
        by_share += [other.result() for other in others]
        out = []
        for buffer, *found in zip(buffers, *by_share, strict=True):
            unique = buffer.compact([own.unique[0] for own in found])
            unique += [matches for own in found for matches in own.unique[1:]]
            repeated = np.concatenate([own.repeated for own in found])
            out.append(SegmentMatches(unique, repeated, np.sum([own.counters for own in found], axis=0)))
        return out

    # -- on disk ---------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> int:
        """Write this state as the next version of a folder, and return its number.

        Segments that are there already are not written again.
        """
        root, segments = Path(folder), self._segments
        self.wait()
        segments.freeze()
        for state in segments.immutable:
            if state.name is None or not (root / "segments" / state.name).is_dir():
                state.name = write_segment(root, state.segment)
        content = {
            "segments": [{"name": s.name, "number": s.number, "dead": s.removed} for s in segments.immutable],
            "attributes": list(segments.names.attributes),
            "patterns": list(segments.names.patterns),
            "count": segments.count,
            "next": segments.next_number,
        }
        return write_version(root, content, segments.owner)

    @classmethod
    def open(cls, folder: str | Path, version: int | None = None, **options: Any) -> Auto:
        """The index of a version (the newest, if None), its segments mapped, not read."""
        root = Path(folder)
        _, content, owner = read_version(root, version)
        index = cls(**options)
        patterns = [(kind, text) for kind, text in content["patterns"]]
        segments = index._segments = Segments(index.policy, Names(content["attributes"], patterns))
        index._single = SingleMatcher(segments)
        segments.owner, segments.count, segments.next_number = owner, content["count"], content["next"]
        for entry in content["segments"]:
            segment = open_segment(root, entry["name"])
            state = ImmutableState(segment, entry["number"], entry["name"], entry["dead"])
            segments.immutable.append(state)
            segments.names.find_timed(segment.dimensions.key)
        return index

    def _check(self) -> None:
        self._segments._check()


class ThreadBuffers:
    """One array for what several threads find: each writes its part, and `compact` closes the gaps.

    >>> buffers = ThreadBuffers([4, 4])
    >>> buffers.of(0)[:2], buffers.of(1)[:3] = (1, 2), (5, 6, 7)
    >>> buffers.compact([buffers.of(0)[:2], buffers.of(1)[:3]])
    [array([1, 2, 6, 7, 5])]
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._start = [0, *accumulate(sizes)]
        self._all: Index = np.empty(self._start[-1], np.int64)

    def of(self, thread: int) -> Index:
        return self._all[self._start[thread] : self._start[thread + 1]]

    def compact(self, found: Sequence[Index]) -> list[Index]:
        """What was found, as one array, in any order; as several if a thread had to enlarge its buffer."""
        counts = [len(own) for own in found]
        for thread, own in enumerate(found):
            if len(own) and own.ctypes.data != self.of(thread).ctypes.data:
                return list(found)
        total, first, last = sum(counts), 0, len(counts) - 1
        while first < last:
            gap = self._start[first] + counts[first]
            moved = min(self._start[first + 1] - gap, counts[last])
            end = self._start[last] + counts[last]
            self._all[gap : gap + moved] = self._all[end - moved : end]
            counts[first] += moved
            counts[last] -= moved
            if counts[last] == 0:
                last -= 1
            else:
                first += 1
        return [self._all[:total]]


def _deduplicated(found: Sequence[SegmentMatches]) -> Index:
    """Matches of all segments; those that may repeat occur once."""
    out = [matches for own in found for matches in own.unique if len(matches)]
    repeated = [own.repeated for own in found if len(own.repeated)]
    if repeated:
        out.append(distinct(np.concatenate(repeated)))
    if len(out) == 1:
        return out[0]
    return np.concatenate(out) if out else np.empty(0, np.int64)

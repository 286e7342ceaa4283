"""The streams room: joins of two streams in memory that is bounded by time, by a budget, or by both.

    events ─► family: kept rows ─► pairs ─► joined rows ─► matching index ─► Deltas       by signature

Subscriptions of one signature (streams, key, window, budget, policy) are a family (`stream_family.py`): they
share rows, budget and counts. The joined rows are events of a virtual relation (`enrich/virtual.py`), which a
match room filters, so 100,000 subscriptions of one signature cost what filters over a stream cost.

A pair is emitted once, +1, at the seq of its later event, to subscriptions that were there when its older
event came. Nothing is taken back, and there is no content, as for filters over streams.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.enrich.virtual import used_columns, virtual_plan, virtual_plans
from tocsin.errors import SubscriptionError, UsageError
from tocsin.language.algebra import And, Query, TableRef, atoms
from tocsin.language.shape import Plan, Shape
from tocsin.limits.join_keys import NEVER, is_exact, key_hashes
from tocsin.limits.scores import score_of
from tocsin.limits.stream_family import StreamFamily, read_family, write_family
from tocsin.limits.stream_spec import DEFAULT_POLICY, StreamJoinSpec, with_ends
from tocsin.match.base import MatchIndex
from tocsin.match.index import Auto
from tocsin.match.room import MatchRoom
from tocsin.model.columns import Index, Rows, longer
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.model.schema import Type
from tocsin.predicate.compile import flatten
from tocsin.predicate.evaluate import Facts
from tocsin.room import Room
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = ["LEAST_MEMORY", "StreamJoinReport", "StreamJoins", "explain_join"]

_DAY = 86_400_000_000


def explain_join(
    family: StreamFamily, plan: Plan, place: int, event: Rows, now: int
) -> tuple[bool, tuple[str, ...]]:
    """Whether pairs of an event that comes now, on the side of `place`, satisfy the plan's conditions."""
    other, alias = family.rows.buffers[1 - place], plan.query.tables[1 - place].alias
    key, timing = family.spec.keys[place], family.spec.timing
    if other is None or not other.count:
        return False, (f"{alias}: no event is kept",)
    hashes, valid = key_hashes(key, tuple(event.vectors(name)[0] for name in key.columns))
    if not valid[0]:
        return False, ("its join key is NULL",)
    time = now
    if timing.clock == "event":
        column = timing.columns[place] if timing.columns is not None else family.time_columns[place]
        vector = event.vectors(column)[0] if column else None
        if vector is None or not vector.valid[0]:
            return False, ("its event time is NULL",)
        time = int(vector.values[0]) * (_DAY if vector.type is Type.DATE else 1)
    code, times = family.rows.keys.find(hashes), np.array([time], np.int64)
    kept = np.empty(0, np.int64)
    if code[0] >= 0:
        _, kept = family.rows.look_up(place, code, times, NEVER)
    columns_of = {}
    for name, (side, own) in family.columns.items():
        if side == place:
            columns_of[name] = event.vectors(own)[0].take(np.zeros(len(kept), np.int64))
        else:
            columns_of[name] = other.take(own, kept)
    passing = int(
        Facts(Rows(list(columns_of.items()), len(kept))).matches(virtual_plan(plan).filters[0]).sum()
    )
    hashed = "" if is_exact(key) else " (by a hash of the key)"
    notes = [
        f"{alias}: {_count(len(kept), 'event')} kept that it joins{hashed}, {passing} of these pairs satisfy "
        "the conditions"
    ]
    missed = 0 if code[0] < 0 else family.rows.missed_by(place, code, times)
    if missed:
        about = "" if family.rows.dropped.weight == 1 else "about "
        notes.append(f"{alias}: {about}{_count(missed, 'event')} dropped that it would join")
    return passing > 0, tuple(notes)


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


LEAST_MEMORY = 1 << 16
"""Bytes; counters alone take some thousand."""

_LEAST_OF_MODELS = 1 << 19  # those of HEEB take 160 KB, and more by key


@dataclass(frozen=True)
class StreamJoinReport:
    """What a join of streams keeps, and what its limits cost a subscription.

    `rows`, `bytes`, `late` and `evicted` are of all subscriptions that share the buffer. `exact`: `missed` is
    not an estimate.
    """

    rows: int
    bytes: int
    budget: str | None
    produced: int
    missed: int
    share: float
    exact: bool
    late: int
    evicted: int
    policy: str | None
    model: str | None
    alpha: float | None


@dataclass
class _Members:
    """By slot: the family's number, since which seq it reads, how much it was sent; counts when it began."""

    family: NDArray[np.int32]
    since: Index
    emitted: Index
    missed: Index
    produced: Index

    @classmethod
    def none(cls) -> _Members:
        zeros = [np.zeros(0, np.int64) for _ in range(4)]
        return cls(np.zeros(0, np.int32), *zeros)

    def reserve(self, top: int) -> None:
        if top > len(self.family):
            size = max(64, top, 2 * len(self.family))
            self.family = longer(self.family, size, -1)
            for name in ("since", "emitted", "missed", "produced"):
                setattr(self, name, longer(getattr(self, name), size))


class StreamJoins(Room):
    """Joins of two streams; `make_index` makes the matching indexes of a signature."""

    name = "streams"
    shapes = (Shape.STREAMJOIN,)

    def __init__(self, make_index: Callable[[], MatchIndex] = Auto, *, shares: int = 1) -> None:
        self._make_index, self._shares = make_index, shares
        self._filters = MatchRoom(make_index)
        self._families: dict[str, StreamFamily] = {}
        self._names: list[str] = []  # of families, some of them gone
        self._members = _Members.none()
        self._emitted: list[Index] = []  # slots, of the step that is not final yet
        self._last_seq = 0
        self._staged_seq = 0

    # -- registering -------------------------------------------------------------------------------

    def check_options(self, query: Query) -> None:
        _check_spec(StreamJoinSpec.of(query, self._shares), self._shares)

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        if isinstance(plans, FlatPlans):
            for query, mask in _by_ends(plans):
                some = plans.take(mask)
                self._add(slots[mask], query, virtual_plans(replace(some, query=query)), some.filters)
            return
        for slot, plan in zip(slots.tolist(), plans, strict=True):
            filters = tuple(flatten([form]) for form in plan.filters)
            self._add(np.array([slot], np.int64), plan.query, [virtual_plan(plan)], filters)

    def _add(self, slots: Index, query: Query, made: Sequence[Plan] | FlatPlans, filters: Any) -> None:
        spec = StreamJoinSpec.of(query, self._shares)
        name = str(spec)
        fresh = name not in self._families
        family = StreamFamily(name, spec, self._make_index) if fresh else self._families[name]
        self._filters.add(slots, _renamed(made, name))
        for side, flat in zip(family.sides, filters, strict=True):
            side.add(slots, flat)
        for column in used_columns(made):
            place, _, own = column.partition(".")
            family.columns[column] = int(place), own
        if fresh:
            self._families[name] = family
            self._names += [name] if name not in self._names else []
        family.count += len(slots)
        family.mixed |= _is_mixed(family, query)
        self._members.reserve(int(slots.max(initial=-1)) + 1)
        members, counts = self._members, family.counts
        members.family[slots] = self._names.index(name)
        members.since[slots], members.emitted[slots] = self._last_seq, 0
        members.missed[slots], members.produced[slots] = counts.missing, counts.produced

    def remove(self, slots: Index) -> None:
        self._filters.remove(slots)
        numbers = self._members.family[slots]
        for number in np.unique(numbers).tolist():
            family, mine = self._families[self._names[number]], slots[numbers == number]
            for side in family.sides:
                side.remove(mine)
            family.count -= len(mine)
            if not family.count:
                del self._families[family.name]
        self._members.family[slots] = -1
        self._filters.drop_relations(self._families)

    def drop_relations(self, catalog: Collection[str]) -> None:
        self._filters.drop_relations(self._families)

    def reads(self, stream: str) -> bool:
        return any(stream in family.spec.streams for family in self._families.values())

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        self._staged_seq = int(step.seq[-1]) if len(step.seq) else self._last_seq
        parts = []
        for family in self._families.values():
            first, second = family.spec.streams
            if first in step.events or second in step.events:
                parts.append(self._deltas(family, step))
        return Deltas.concat(parts) if parts else NO_DELTAS

    def _deltas(self, family: StreamFamily, step: Step) -> Deltas:
        batches = tuple(step.events.get(name) for name in family.spec.streams)
        joined = family.join((batches[0], batches[1]), step.now)
        if joined is None:
            return NO_DELTAS
        batch = next(batch for batch in batches if batch is not None)
        zeros, numbers = np.zeros(len(joined.rows), np.uint8), np.arange(len(joined.rows))
        events = replace(batch, op=zeros, seq=joined.seq, rows=joined.rows, given=None, origin=numbers)
        found = self._filters.deltas(Step({}, step.seq, {}, {family.name: events}))
        seen = joined.since[found.row] > self._members.since[found.subscription]
        found = found if seen.all() else found.take(seen)
        self._emitted.append(found.subscription)
        return found

    def commit(self) -> None:
        self._last_seq = max(self._last_seq, self._staged_seq)
        for slots in self._emitted:
            np.add.at(self._members.emitted, slots, 1)
        self._emitted.clear()
        for family in self._families.values():
            family.commit()

    def rollback(self) -> None:
        self._emitted.clear()
        for family in self._families.values():
            family.rollback()

    def content(self, slot: int, step: Step) -> Rows:
        """Nothing: a pair is emitted once."""
        return Rows((), 0)

    def explain_event(self, plan: Plan, place: int, event: Rows, step: Step) -> tuple[bool, tuple[str, ...]]:
        family = self._families.get(str(StreamJoinSpec.of(plan.query, self._shares)))
        if family is None:
            return False, ("no events were kept yet",)
        return explain_join(family, plan, place, event, step.now)

    # -- reports -----------------------------------------------------------------------------------

    def report(self, slot: int) -> StreamJoinReport:
        members = self._members
        family = self._families[self._names[members.family[slot]]]
        produced, counts = int(members.emitted[slot]), family.counts
        missing = counts.missing - int(members.missed[slot])
        pairs = counts.produced - int(members.produced[slot])
        counted = family.is_exact and produced == pairs and not members.missed[slot] and not family.mixed
        exact = counted or not family.rows.evicted
        if pairs > produced:
            missing = round(missing * produced / pairs)
        known = _stats(family)
        same = {
            name: known[name] for name in ("rows", "bytes", "budget", "late", "evicted", "policy", "model")
        }
        share = _share(produced, missing)
        return StreamJoinReport(
            **same, alpha=known["alpha"], produced=produced, missed=missing, share=share, exact=exact
        )

    def stats(self) -> dict[str, Any]:
        return {name: _stats(family) for name, family in self._families.items()}

    # -- on disk -----------------------------------------------------------------------------------

    def saved(self, ids: Index) -> dict[str, Any]:
        slots = np.flatnonzero(self._members.family[: len(ids)] >= 0)
        members = {name: values[slots] for name, values in vars(self._members).items() if name != "family"}
        out = {"members": pa.table({"id": ids[slots], **members})}
        for number, (name, family) in enumerate(self._families.items()):
            out |= {f"{number}/{part}": table for part, table in write_family(name, family).items()}
        return out

    def restore(
        self, tables: Mapping[str, Any], find: Callable[[Index], NDArray[np.int32]], last_seq: int
    ) -> None:
        self._last_seq = last_seq
        for name in tables:
            number, _, part = name.partition("/")
            if part == "family":
                read_family({n.partition("/")[2]: t for n, t in tables.items() if n.startswith(f"{number}/")},
                            self._families)  # fmt: skip
        if "members" in tables:
            saved = tables["members"]
            slots = find(np.asarray(saved["id"]))
            there = slots >= 0
            for name in saved.column_names[1:]:
                getattr(self._members, name)[slots[there]] = np.asarray(saved[name])[there]

    def _check(self) -> None:
        self._filters._check()
        for number, name in enumerate(self._names):
            count = self._families[name].count if name in self._families else 0
            assert count == (self._members.family == number).sum()
        for family in self._families.values():
            family._check()


def _by_ends(plans: FlatPlans) -> Iterator[tuple[Query, NDArray[np.bool_]]]:
    """The plans of a template by the ends of their bands."""
    ends = [end for band in plans.bands for end in band]
    if not any(end is not None for end in ends):
        yield plans.query, np.ones(len(plans), np.bool_)
        return
    columns = [np.zeros(len(plans)) if end is None else end for end in ends]
    keys = np.array(list(zip(*(column.tolist() for column in columns), strict=True)), object)
    distinct = dict.fromkeys(map(tuple, keys.tolist()))
    for key in distinct:
        mask = np.logical_and.reduce([column == value for column, value in zip(columns, key, strict=True)])
        values = [None if end is None else value for end, value in zip(ends, key, strict=True)]
        yield with_ends(plans.query, list(zip(values[::2], values[1::2], strict=True))), mask


def _renamed(made: Sequence[Plan] | FlatPlans, name: str) -> Sequence[Plan] | FlatPlans:
    """Filters over the virtual relation of a family: not only of its signature."""

    def renamed(query: Query) -> Query:
        return replace(query, tables=(TableRef(name, name),))

    if isinstance(made, FlatPlans):
        return replace(made, query=renamed(made.query))
    return [replace(plan, query=renamed(plan.query)) for plan in made]


def _check_spec(spec: StreamJoinSpec, shares: int) -> None:
    """Raise SubscriptionError for what no family can do."""
    budget = spec.budget
    if budget is None:
        return
    least = 1 if budget.rows else _LEAST_OF_MODELS if spec.policy == DEFAULT_POLICY else LEAST_MEMORY
    if budget.amount < least:
        enough = f"{least * shares} rows" if budget.rows else f"{least * shares >> 10} KB"
        fact = f"memory of {budget} is too little for counters and models"
        if shares > 1:
            fact = f"memory is divided by {shares} shards, and {budget} for each is too little"
        more = "" if budget.rows else ", or a number of rows"
        raise SubscriptionError(fact, hint=f"give {enough} or more{more}", option="memory")
    try:
        score_of(spec.policy)
    except UsageError as error:
        fact = f"policy {spec.policy!r} is not for joins of streams"
        raise SubscriptionError(fact, error.hint, option="policy") from None


def _is_mixed(family: StreamFamily, query: Query) -> bool:
    """Whether pairs of equal keys may be none of a subscription: then what is missed is an estimate."""
    where = query.where
    parts = where.args if isinstance(where, And) else (where,)
    across = any(len({atom.column.relation for atom in atoms(part)}) > 1 for part in parts)
    return across or (family.count > 1 and any(side.conditional for side in family.sides))


def _share(produced: int, missed: int) -> float:
    return produced / (produced + missed) if produced + missed else 1.0


def _stats(family: StreamFamily) -> dict[str, Any]:
    rows, score, counts, budget = family.rows, family.rows.score, family.counts, family.spec.budget
    models = getattr(score, "models", ())
    names = dict.fromkeys(str(getattr(m, "name", "") or type(m).__name__).lower() for m in models)
    return {
        "subscriptions": family.count,
        "rows": len(rows),
        "keys": len(rows.keys),
        "bytes": rows.nbytes,
        "budget": None if budget is None else str(budget),
        "events": counts.events,
        "wanted": counts.wanted,
        "produced": counts.produced,
        "missed": counts.missing,
        "share": _share(counts.produced, counts.missing),
        "exact": family.is_exact or not rows.evicted,
        "late": counts.late,
        "evicted": rows.evicted,
        "policy": family.spec.policy or None,
        "model": ", ".join(names) or None,
        "alpha": getattr(score, "alpha_in_use", None),
    }

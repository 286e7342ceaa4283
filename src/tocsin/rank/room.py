"""The rank room of the engine: top-k, extremes, aggregates and distinct values over one table.

`RankRoom` sorts subscriptions into families. A family holds subscriptions of one query that differ only in
the ranges and values they select (and in k), and answers all of them with one structure (`split.py`):

    filter ─► ranges of attributes ─► the subscription's range, or its box of ranges   risk BETWEEN 20 AND 60,
          │                                                                            name > 'M'
          ├─► values of columns ─► a partition of the family's rows                    sector = 'tech'
          └─► anything else ─► the family's condition: rows that fail are ignored      name LIKE '%x%'

                         one range that differs             several: boxes.py
    top-k, MIN, MAX      topk.py        TopkFamily, ...     BoxTopkFamily, BoxExtremeFamily
    MIN, MAX of a window recent.py      RecentExtremeFamily BoxExtremeFamily
    COUNT, SUM, AVG      aggregates.py  AggregateFamily     BoxAggregateFamily
    both in one query    combined.py    CombinedFamily: one component for each, joined
    DISTINCT             distinct.py    DistinctFamily      BoxDistinctFamily

Of several ranges the one that differs is searched by, if the others are the same for many subscriptions that
come together: those are part of the condition. A later subscription joins their family if it fits, whatever
the order in which its ranges are written. Numbers are searched by their codes, texts by labels in their order
(`text_axis.py`), which the room assigns again where they are exhausted (`_relabel`).

A subscription that fits no family (a top-k of more than 128 rows), or whose family would be the 65th with a
condition, is answered by `RankScan` (`scan.py`). All results are equal to the scan's.

What happens to a subscription:

    add       `add` only notes the plan; the next step, or call of `contents`, places it (`_place_waiting`)
    step      `deltas` collects the deltas of each family of a changed table (`RangeFamily.deltas`)
    expire,   the roster calls `remove`, which drops the slot from its family (`RangeFamily.remove`), and
    remove    families without members. The room emits nothing; on expiry the roster has read the content
              before, and emits it as -1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.language.algebra import Query
from tocsin.language.rewrite import NormalForm
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows, longer
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.predicate.verify import selections
from tocsin.rank.aggregates import AggregateFamily
from tocsin.rank.boxes import BoxAggregateFamily, BoxDistinctFamily, BoxExtremeFamily, BoxTopkFamily
from tocsin.rank.combined import CombinedFamily
from tocsin.rank.distinct import DistinctFamily
from tocsin.rank.family import FilteredRows, NotIndexable, RangeEnds, RangeFamily, RowSource
from tocsin.rank.partitioned import LabelsExhausted, PartitionedRows, PointRows
from tocsin.rank.recent import Overgrown, RecentExtremeFamily
from tocsin.rank.scan import RankScan, check_sums, content_of, explain_row
from tocsin.rank.split import (
    ALL_ROWS,
    SimilarPlans,
    SplitFilter,
    conjoined,
    group_similar,
    literals_of,
    read_ranges,
    searched_attribute,
    split_filter,
)
from tocsin.rank.topk import ExtremeFamily, TopkFamily
from tocsin.room import Room
from tocsin.store.plans import FlatPlans, PendingPlans
from tocsin.store.step import Step
from tocsin.store.windows import WindowStore

__all__ = ["RankRoom"]

_MAX_CONDITIONAL = 64  # families with a condition: each costs an evaluation of every changed row
_MAX_K = 128  # rows of a top-k: the work of painting grows with its square, that of a scan does not


class _Unplaced(IntEnum):
    """Instead of the number of a family, which is positive."""

    SCANNED = 0  # answered by the scan
    WAITING = -1  # not in use, or added since the last step
    RETRY = -2  # was answered by the scan for want of families, and gets another chance
    NEVER = -3  # its filter holds for no row, so its answer never changes


class _FamilyKey(NamedTuple):
    """What the subscriptions of one family share; ranges differ, and k where each has one range."""

    source: RowSource
    shape: Shape
    items: Any
    order: Any
    limit: int | None

    @classmethod
    def of(cls, source: RowSource, query: Query, shape: Shape) -> _FamilyKey:
        limit = query.limit if isinstance(source, PointRows) else None
        return cls(source, shape, query.items, query.order, limit)


_SourceKey = tuple[str, str | tuple[str, ...] | None, tuple[str, ...], NormalForm]
"""Table, attribute or attributes, columns that partition the rows, condition."""


class _Arrivals(NamedTuple):
    """Subscriptions of one query that enter a family."""

    slots: Index
    ends: RangeEnds
    query: Query


class RankRoom(Room):
    """Families by number; by slot the number of its family."""

    name = "rank"
    shapes = (Shape.EXTREME, Shape.AGGREGATE, Shape.DISTINCT, Shape.TOPK)

    def __init__(self) -> None:
        self._plans = PendingPlans()  # of all subscriptions, and which of them wait to be placed
        self._scan = RankScan()  # answers those without a family
        self._numbers: dict[_FamilyKey, int] = {}
        self._families: dict[int, RangeFamily] = {}
        self._sources: dict[_SourceKey, PartitionedRows | PointRows] = {}  # shared by families
        self._family_of: NDArray[np.int32] = np.full(16, _Unplaced.WAITING, np.int32)  # by slot
        self._next = 1
        self._rejected = False  # has a family been rejected for want of families?
        self._retries = False  # do subscriptions get another chance?
        self._at_ends: set[tuple[str, str | None]] = set()  # attributes with rows at the codes of open ends
        self._overgrown: set[_FamilyKey] = set()  # of windows, that are answered as tables
        self._dissolved: list[Index] = []  # members of families that met such a row, in the scan for a step

    # -- registering and removing ------------------------------------------------------------------

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        self._plans.add(slots, plans)
        top = int(slots.max(initial=-1)) + 1
        if top > len(self._family_of):
            length = max(top, 2 * len(self._family_of))
            self._family_of = longer(self._family_of, length, _Unplaced.WAITING)

    def remove(self, slots: Index) -> None:
        """Drop expired and cancelled subscriptions from their families, and families without members."""
        self._plans.remove(slots)
        numbers = self._family_of[slots]
        for number in np.unique(numbers).tolist():
            mine = slots[numbers == number]
            if number == _Unplaced.SCANNED:
                self._scan.remove(mine)
            elif number > 0:
                self._families[number].remove(mine)
        self._family_of[slots] = _Unplaced.WAITING
        self._numbers = {key: n for key, n in self._numbers.items() if len(self._families[n])}
        self._families = {n: self._families[n] for n in self._numbers.values()}
        self._overgrown &= self._numbers.keys()
        used = {key.source for key in self._numbers}
        self._sources = {key: source for key, source in self._sources.items() if source in used}
        if self._rejected and self._count_conditional() <= _MAX_CONDITIONAL // 2:
            self._rejected = False
            again = np.flatnonzero(self._family_of == _Unplaced.SCANNED)
            self._scan.remove(again)
            self._family_of[again] = _Unplaced.RETRY
            self._retries = True

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        """Each family of a changed table applies the step and emits its deltas; the scan does the rest."""
        self._place_waiting(step)
        parts = []
        for key, number in list(self._numbers.items()):
            if key.source.table in step.changed:
                try:
                    parts.append(self._family_deltas(number, step))
                except NotIndexable:
                    self._dissolve(key, number)
        if len(self._scan):
            parts.append(self._scan.deltas(step))
        parts = [part for part in parts if len(part)]
        return Deltas.concat(parts) if len(parts) < 2 else Deltas.concat(parts).ordered()

    def _family_deltas(self, number: int, step: Step) -> Deltas:
        """Deltas of one family; if its source runs out of labels, relabel it and try again."""
        try:
            try:
                return self._families[number].deltas(step)
            except LabelsExhausted as exhausted:
                self._relabel(exhausted.source, step)
                return self._families[number].deltas(step)
        except Overgrown:
            self._replace_recent(number, step)
            return self._families[number].deltas(step)

    def check_answers(self, slots: Index, plans: Sequence[Plan] | FlatPlans, step: Step) -> None:
        check_sums(self, slots, plans, step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, slot, step)

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(slot, self._plans[slot], step)

    def contents(self, slots: Index, step: Step) -> Deltas:
        """One pass over the table for each family."""
        self._place_waiting(step)
        numbers, parts = self._family_of[slots], []
        for number in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == number)
            found = self._family_contents(number, slots[mine], step) if number in self._families else None
            if found is None:
                scanned = super().contents(slots[mine], step)
                parts.append(replace(scanned, subscription=mine[scanned.subscription]))
            else:
                owner, rows = found
                at = np.arange(len(rows))
                parts.append(Deltas.of(np.zeros(len(rows), np.int64), mine[owner], 1, rows, at))
        contents = Deltas.concat(parts)
        return contents.take(np.argsort(contents.subscription, kind="stable"))

    def _family_contents(self, number: int, slots: Index, step: Step) -> tuple[Index, Rows] | None:
        """Answers of members of a family; None if the scan has to compute them."""
        try:
            try:
                return self._families[number].contents(step, slots)
            except LabelsExhausted as exhausted:
                self._relabel(exhausted.source, step)
                return self._families[number].contents(step, slots)
        except NotIndexable:
            return None

    # -- placing subscriptions in families ---------------------------------------------------------

    def _place_waiting(self, step: Step) -> None:
        """Place the subscriptions that wait in families, and those that get another chance."""
        for slots, plans in self._plans.to_place():
            if isinstance(plans, FlatPlans):
                self._place_template(slots, plans, step)
            else:
                self._place(slots, plans, step)
        for slots in self._dissolved:
            again = slots[self._family_of[slots] == _Unplaced.SCANNED]
            self._scan.remove(again)
            self._family_of[again], self._retries = _Unplaced.RETRY, True
        self._dissolved = []
        if not self._retries:
            return
        self._retries = False
        again = np.flatnonzero(self._family_of == _Unplaced.RETRY)
        self._place(again, [self._plans[slot] for slot in again.tolist()], step)

    def _place_template(self, slots: Index, plans: FlatPlans, step: Step) -> None:
        """Plans of one template: by column where filters are similar; the others one by one."""
        if not len(slots):
            return
        query, shape, table = plans.query, plans.shape, plans.query.tables[0].name
        if _has_family(query):
            types = {f.name: f.type for f in step.tables[table].schema.fields}
            found = selections(plans.filters[0])
            self._family_of[slots[plans.never | found.never]] = _Unplaced.NEVER
            plain = found.exact & ~plans.never & ~found.never
            for number, name in enumerate(found.names):
                mine = np.flatnonzero(plain & (found.attribute == number))
                if len(mine) and types[name] is not Type.STRING and (table, name) not in self._at_ends:
                    key = _FamilyKey.of(FilteredRows(table, name, ALL_ROWS), query, shape)
                    ends = RangeEnds(found.low[mine], found.high[mine])
                    self._enter(key, _Arrivals(slots[mine], ends, query), step)
            left = np.flatnonzero(self._family_of[slots] == _Unplaced.WAITING)
            for group in group_similar(plans, left, _MAX_CONDITIONAL):
                first = plans.plan(int(group.plans[0]))

                def form_of(n: int) -> NormalForm:
                    return plans.plan(n).filters[0]

                self._place_group(replace(first, query=query), group, slots, form_of, step)
        rest = np.flatnonzero(self._family_of[slots] == _Unplaced.WAITING)
        self._place(slots[rest], [plans.plan(n) for n in rest.tolist()], step)

    def _place(self, slots: Index, plans: Sequence[Plan], step: Step) -> None:
        """One by one: split each filter into ranges, values of columns, and a condition; then in groups."""
        split: dict[int, SplitFilter] = {}
        groups: dict[Any, list[int]] = {}
        for i, plan in enumerate(plans):
            query = plan.query
            if plan.never:
                self._family_of[slots[i]] = _Unplaced.NEVER
            elif not _has_family(query):
                self._leave_to_scan(slots[[i]])
            else:
                split[i] = part = split_filter(plan.filters[0])
                alike = query.tables[0].name, plan.shape, query.items, query.order, query.limit
                groups.setdefault((alike, *map(tuple, part[:2]), part.condition), []).append(i)
        for mine in groups.values():
            ranges = [split[i].ranges for i in mine]
            group = self._as_group(np.array(mine), ranges, [split[i] for i in mine], slots)
            if len(group.plans):
                self._place_group(plans[mine[0]], group, slots, lambda n: plans[n].filters[0], step)

    def _as_group(
        self, mine: Index, ranges: Sequence[dict[str, NormalForm]], split: Sequence[SplitFilter], slots: Index
    ) -> SimilarPlans:
        """Filters that were split alike; those that hold for no row are left out."""
        names, texts = tuple(ranges[0]), {}
        low, high = np.zeros((2, len(mine), len(names)), np.int64)
        never = np.zeros(len(mine), np.bool_)
        for at, name in enumerate(names):
            found = read_ranges(forms[name] for forms in ranges)
            low[:, at], high[:, at] = found.low, found.high
            never |= found.never
            if found.texts is not None:
                texts[name] = found.texts
        self._family_of[slots[mine[never]]] = _Unplaced.NEVER
        values = {name: [part.values[name] for part in split] for name in split[0].values}
        group = SimilarPlans(mine, names, low, high, values, split[0].condition, texts)
        return group.take(np.flatnonzero(~never))

    def _place_group(
        self,
        plan: Plan,
        group: SimilarPlans,
        slots: Index,
        form_of: Callable[[int], NormalForm],
        step: Step,
    ) -> None:
        """Similar plans, `plan` one of them; by one range if only that differs, else as boxes."""
        query = plan.query
        boxed = len(group.attributes) > 1 or self._reaches_ends(group, query)
        for part, attribute in self._searched(plan, group, form_of):
            low, high = part.low, part.high
            name: str | tuple[str, ...] | None = part.attributes
            if attribute is not None or not boxed:
                at = attribute or 0
                name = part.attributes[at] if part.attributes else None
                low, high = np.zeros((2, len(part.plans)), np.int64)  # without a range all rows are at 0
                if name is not None:
                    low, high = part.low[:, at], part.high[:, at]
            source = self._source(query.tables[0].name, name, part)
            ends = RangeEnds(low, high, list(part.values.values()), part.texts)
            arrivals = _Arrivals(slots[part.plans], ends, query)
            self._enter(_FamilyKey.of(source, query, plan.shape), arrivals, step)

    def _searched(
        self, plan: Plan, group: SimilarPlans, form_of: Callable[[int], NormalForm]
    ) -> list[tuple[SimilarPlans, int | None]]:
        """Parts of a group, each with the attribute to search by; its other ranges are in the condition.

        None: search by all of them. A few plans join a family that is there already.
        """
        width = len(group.attributes)
        if width < 2 or self._reaches_ends(group, plan.query):
            return [(group, None)]

        def fixed(part: SimilarPlans, at: int) -> SimilarPlans:
            form = form_of(int(part.plans[0]))
            others = (literals_of(form, name) for n, name in enumerate(part.attributes) if n != at)
            condition = conjoined(part.condition, (literal for some in others for literal in some))
            return part._replace(condition=condition)

        found = searched_attribute(group)
        if found is not None and self._count_conditional() + len(found[1]) <= _MAX_CONDITIONAL // 2:
            return [(fixed(group.take(some), found[0]), found[0]) for some in found[1]]
        if len(group.plans) > 1:
            return [(group, None)]
        for at in range(width):
            part = fixed(group, at)
            source = self._known_source(plan.query.tables[0].name, group.attributes[at], part)
            if source is not None and _FamilyKey.of(source, plan.query, plan.shape) in self._numbers:
                return [(part, at)]
        return [(group, None)]

    def _reaches_ends(self, group: SimilarPlans, query: Query) -> bool:
        """Whether rows at the codes of open ends are known, which only boxes can represent."""
        return any((query.tables[0].name, name) in self._at_ends for name in group.attributes)

    def _known_source(
        self, table: str, name: str | tuple[str, ...] | None, part: SimilarPlans
    ) -> RowSource | None:
        columns = tuple(part.values)
        if not columns and not isinstance(name, tuple) and name not in part.texts:
            return FilteredRows(table, name, part.condition)
        return self._sources.get((table, name, columns, part.condition))

    def _source(self, table: str, name: str | tuple[str, ...] | None, part: SimilarPlans) -> RowSource:
        """Rows by one attribute, or points of several; partitioned by the values of columns."""
        source = self._known_source(table, name, part)
        if source is None:
            columns, condition = tuple(part.values), part.condition
            made = (
                PointRows(table, name, columns, condition, texts=part.texts)
                if isinstance(name, tuple)
                else PartitionedRows(table, name, columns, condition, is_text=name in part.texts)
            )
            self._sources[table, name, columns, condition] = source = made
        return source

    def _enter(self, key: _FamilyKey, arrivals: _Arrivals, step: Step) -> None:
        """Enter subscriptions into the family of a key, which is created if there is none."""
        slots, ends, query = arrivals
        try:
            more_rows = key.source.register(slots, ends, query.limit)
        except NotIndexable:
            self._leave_to_scan(slots)
            return
        if more_rows:
            for number in self._families_of(key.source):
                self._families[number].invalidate()
        if key not in self._numbers:
            if not key.source.condition.always and self._count_conditional() >= _MAX_CONDITIONAL:
                self._rejected = True
                self._leave_to_scan(slots)
                return
            self._numbers[key], self._next = self._next, self._next + 1
            self._families[self._numbers[key]] = self._new_family(key, query, step)
        number = self._numbers[key]
        self._family_of[slots] = number
        try:
            low, high = key.source.ranges(slots, ends.low, ends.high)
        except LabelsExhausted as exhausted:
            self._relabel(exhausted.source, step)
            return
        self._families[number].add(slots, low, high, query)

    def _new_family(self, key: _FamilyKey, query: Query, step: Step) -> RangeFamily:
        """The family that answers queries of this shape."""
        source, store = key.source, step.tables[key.source.table]
        primary_key = store.schema.key
        recent = isinstance(store, WindowStore) and key not in self._overgrown
        extremes = [aggregate.function in ("MIN", "MAX") for aggregate in query.aggregates]
        if any(extremes) and len(extremes) > 1:
            return CombinedFamily(source, query, primary_key, recent)
        if isinstance(source, PointRows):
            if key.shape is Shape.TOPK:
                return BoxTopkFamily(source, query, primary_key)
            if not extremes:
                return BoxDistinctFamily(source, query)
            return (
                BoxExtremeFamily(source, query, primary_key)
                if any(extremes)
                else BoxAggregateFamily(source, query)
            )
        if key.shape is Shape.TOPK:
            return TopkFamily(source, query, primary_key)
        if not extremes:
            return DistinctFamily(source, query)
        if not any(extremes):
            return AggregateFamily(source, query)
        if recent and RecentExtremeFamily.takes(query):
            return RecentExtremeFamily(source, query)
        return ExtremeFamily(source, query, primary_key)

    def _families_of(self, source: RowSource) -> dict[int, _FamilyKey]:
        return {n: key for key, n in self._numbers.items() if key.source is source}

    def _relabel(self, source: PartitionedRows | PointRows, step: Step) -> None:
        """Assign new labels to the rows of a source, and rebuild its families with them."""
        families = self._families_of(source)
        source.relabel(step, np.flatnonzero(np.isin(self._family_of, list(families))))
        for number, key in families.items():
            query = self._families[number].query
            family = self._families[number] = self._new_family(key, query, step)
            slots = np.flatnonzero(self._family_of == number)
            low, high = source.ranges(slots)
            limit = source.limits(slots)
            for k in np.unique(limit).tolist():
                some = limit == k
                family.add(slots[some], low[some], high[some], replace(query, limit=k or None))

    def _replace_recent(self, number: int, step: Step) -> None:
        """Answer the members of a family over a window as those of a family over a table."""
        key = next(key for key, n in self._numbers.items() if n == number)
        family = self._families[number]
        assert isinstance(family, RecentExtremeFamily | CombinedFamily)
        self._overgrown.add(key)
        slots = np.flatnonzero(self._family_of == number)
        low, high = family.ranges(slots)
        self._families[number] = self._new_family(key, family.query, step)
        self._families[number].add(slots, low, high, family.query)

    def _count_conditional(self) -> int:
        """Families with a condition; of others there are only as many as there are distinct queries."""
        return sum(not key.source.condition.always for key in self._numbers)

    def _leave_to_scan(self, slots: Index) -> None:
        self._scan.add(slots, [self._plans[slot] for slot in slots.tolist()])
        self._family_of[slots] = _Unplaced.SCANNED

    def _dissolve(self, key: _FamilyKey, number: int) -> None:
        """A row arrived that the family cannot represent: its members are boxes from the next step on."""
        del self._numbers[key], self._families[number]
        slots = np.flatnonzero(self._family_of == number)
        self._leave_to_scan(slots)
        self._at_ends.add((key.source.table, key.source.attribute))
        self._dissolved.append(slots)

    # -- statistics and invariants -----------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        return {
            "index": "families",
            "subscriptions": len(self._plans),
            "waiting": self._plans.waiting,
            "scanned": len(self._scan),
            "families": [family.stats() for family in self._families.values()],
        }

    def _check(self) -> None:
        """Every slot is in one family, in the scan or waiting; no family is empty."""
        self._plans._check()
        self._scan._check()
        for source in self._sources.values():
            source._check()
        for number, family in self._families.items():
            family._check()
            assert len(family) == (self._family_of == number).sum() > 0
        assert set(self._numbers.values()) == set(self._families)
        placed = int((self._family_of != _Unplaced.WAITING).sum())
        assert placed + self._plans.waiting == len(self._plans)


def _has_family(query: Query) -> bool:
    """Whether there is a family for such queries."""
    return query.limit is None or 0 < query.limit <= _MAX_K

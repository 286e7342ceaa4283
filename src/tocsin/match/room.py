"""The match room: filter subscriptions, one matching index per stream or table.

    changed rows, -1 and +1 ─► index.match ─► (slot, row) ─► signs, seqs, projections ─► Deltas
    events, +1              ─┘

A change of a table is a row that leaves and a row that enters; both are matched like events, and equal
projections of one change cancel. An event of a stream is a row that enters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import SubscriptionError
from tocsin.language.algebra import Column, Query
from tocsin.language.shape import Plan, Shape
from tocsin.match._kernels.ordering import rows_and_slots, short_keys
from tocsin.match.base import MatchIndex, pack, unpack
from tocsin.match.index import Auto
from tocsin.match.nested import NestedAttributes
from tocsin.match.watch import AttributeWatch
from tocsin.model.columns import Index, Rows, distinct, longer
from tocsin.model.delta import NO_DELTAS, Deltas
from tocsin.model.one_row import OneEvent, one_row
from tocsin.model.paths import is_inside
from tocsin.model.schema import SIMPLE, Type, is_nested
from tocsin.predicate.compile import flatten
from tocsin.predicate.deferred import DeferredFilters
from tocsin.predicate.evaluate import Facts
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.plain import PlainFilter, PlainTemplate
from tocsin.room import FilterRoom
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step

__all__ = ["MatchRoom", "in_order"]

_MANY_CONTENTS = 64  # contents that are computed together
_ROWS_AT_ONCE = 4096  # of a table, for contents
_MOST_TEMPLATES = 10_000  # of plain filters, that are remembered
_ROW_BITS = 7  # of the rows that are sorted together: row and slot then fit into 32 bits

Shown = tuple[tuple[str, str], ...]  # (name in the answer, column); empty: the whole event


class _Filters(NamedTuple):
    """Filters of one relation that show the same columns."""

    relation: str
    shown: Shown
    slots: Index
    filters: Any  # FlatFilters, or DeferredFilters


class MatchRoom(FilterRoom):
    """All filters; `make_index` makes the matching index of a relation.

    Filters come by the million, so the room keeps no plans: `plan_of` finds the plan of a slot.
    """

    name = "match"
    shapes = (Shape.FILTER,)
    row_decides = True

    def __init__(
        self, make_index: Callable[[], MatchIndex] = Auto, plan_of: Callable[[int], Plan] | None = None
    ) -> None:
        self._make_index, self._plan_of = make_index, plan_of
        self._indexes: dict[str, MatchIndex] = {}
        self.watches: dict[str, AttributeWatch] = {}  # of relations that have an index
        self._nested: dict[str, NestedAttributes] = {}  # of open streams
        self._nested_of: dict[int, list[str]] = {}  # by slot: the attributes inside events that it uses
        self._plain: dict[PlainTemplate, tuple[int, int]] = {}  # `_plain_group` of templates
        self._relations: list[str] = []
        self._shown: list[Shown] = []
        self._relation_of: NDArray[np.int16] = np.empty(0, np.int16)  # by slot; -1: none
        self._shown_of: NDArray[np.int32] = np.empty(0, np.int32)

    # -- registering -------------------------------------------------------------------------------

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        groups = list(_grouped(slots, plans))
        for n, group in enumerate(groups):
            index = self._index(group.relation)
            if not index.takes_deferred:
                groups[n] = group._replace(filters=group.filters.flat())
            _reject_unsupported(index, groups[n].filters)
        for group in groups:
            self._add(group)

    def _add(self, group: _Filters) -> None:
        if group.relation not in self._relations:
            self._relations.append(group.relation)
        if group.shown not in self._shown:
            self._shown.append(group.shown)
        top = int(group.slots.max(initial=-1)) + 1
        if top > len(self._relation_of):
            size = max(64, top, 2 * len(self._relation_of))
            self._relation_of = longer(self._relation_of, size, -1)
            self._shown_of = longer(self._shown_of, size)
        self._use_nested(group)
        self._index(group.relation).add(group.slots, group.filters)
        watch = self.watches[group.relation]
        watch.add(group.filters)
        watch.shown.update(name for _, name in group.shown)
        self._relation_of[group.slots] = self._relations.index(group.relation)
        self._shown_of[group.slots] = self._shown.index(group.shown)

    def _use_nested(self, group: _Filters) -> None:
        """Count the attributes inside events that filters use, and that they show."""
        shown = [old for _, old in group.shown if is_inside(old)]
        if not shown and not any(map(is_inside, _names(group.filters))):
            return
        nested = self._nested.setdefault(group.relation, NestedAttributes(self._make_index))
        own = _inside_names(group.filters.flat())
        for n, slot in enumerate(group.slots.tolist()):
            names = {*own.get(n, ()), *shown}
            if names:
                self._nested_of[slot] = nested.add(names)

    def add_plain(self, slot: int, filter: PlainFilter) -> bool:
        template = filter.template
        index = self._index(template.stream)
        if not index.takes_plain:
            return False
        known = self._plain.get(template)
        if known is None:
            known = self._plain[template] = self._plain_group(template, filter)
        if slot >= len(self._relation_of):
            size = max(64, slot + 1, 2 * len(self._relation_of))
            self._relation_of = longer(self._relation_of, size, -1)
            self._shown_of = longer(self._shown_of, size)
        index.add_plain(slot, filter)
        self._relation_of[slot], self._shown_of[slot] = known
        return True

    def _plain_group(self, template: PlainTemplate, filter: PlainFilter) -> tuple[int, int]:
        """The numbers of a template's relation and of the columns it shows."""
        if len(self._plain) >= _MOST_TEMPLATES:
            self._plain.clear()
        shown = _shown(template.template.query)
        if template.stream not in self._relations:
            self._relations.append(template.stream)
        if shown not in self._shown:
            self._shown.append(shown)
        self.watches[template.stream].add_plain((name, is_text) for name, _, _, is_text in filter.tests)
        self.watches[template.stream].shown.update(name for _, name in shown)
        return self._relations.index(template.stream), self._shown.index(shown)

    def discard_attribute(self, stream: str, name: str) -> None:
        """No filter of an open stream uses the attribute any more."""
        self.watches[stream].discard(name)
        self._plain.clear()  # so that it is counted in again

    def remove(self, slots: Index) -> None:
        which = self._relation_of[slots]
        if self._nested_of:
            for slot, number in zip(slots.tolist(), which.tolist(), strict=True):
                if slot in self._nested_of:  # other relations may have no nested attributes at all
                    self._nested[self._relations[number]].remove(self._nested_of.pop(slot))
        for number in distinct(which).tolist():
            self._indexes[self._relations[number]].remove(slots[which == number])
        self._relation_of[slots] = -1

    def drop_relations(self, catalog: Collection[str]) -> None:
        for name in [name for name in self._indexes if name not in catalog]:
            if not self._indexes[name].stats()["subscriptions"]:
                del self._indexes[name], self.watches[name]
                self._nested.pop(name, None)

    # -- answers -----------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        parts = []
        for name, changed in step.changed.items():
            if name in self._indexes:
                signed = changed.signed()
                rows = self._extended(name, step.tables[name].rows.take(signed.slot))
                slot, row = unpack(self._indexes[name].match(rows))
                seq = step.seq[signed.position[row]]
                parts.append(self._deltas(seq, slot, signed.sign[row], rows, row).consolidate())
        for name, events in step.events.items():
            if name in self._indexes:
                row, slot = in_order(
                    self._indexes[name].match(self._extended(name, events.rows)), len(events)
                )
                if events.rows.sparse:
                    self.watches[name].see_rows(events.rows)
                parts.append(self._deltas(np.asarray(events.seq)[row], slot, 1, events.rows, row))
        return Deltas.concat(parts) if parts else NO_DELTAS

    def deltas_of_one(
        self,
        stream: str,
        seq: int,
        event: dict[str, Any],
        types: Mapping[str, Type] | None,
        ids: Index,
        subscribers: NDArray[np.object_] | None,
    ) -> Deltas | None:
        index = self._indexes.get(stream)
        nested = self._nested.get(stream)
        if nested and types is not None:
            computed = nested.computed(event)
            if computed is None:
                return None
            event, types = computed, nested.types(types)
        elif nested:
            inside = nested.attributes(event)
            event = {n: v for n, v in event.items() if v.__class__ in SIMPLE or not is_nested(v)}
            event.update(inside)
        slots = None if index is None else index.match_one(event, types)
        if slots is None:
            return None
        if types is None:
            self.watches[stream].see(event)
        if not len(slots):
            return NO_DELTAS
        row = one_row(event.copy(), types)
        if len(self._shown) == 1:
            names = None if subscribers is None else subscribers[slots]
            return Deltas.of_one_event(seq, ids[slots], _project(row, self._shown[0]), names)
        zeros = np.zeros(len(slots), np.int64)
        return self._deltas(zeros + seq, slots, 1, row, zeros).named(ids, subscribers)

    def content(self, slot: int, step: Step) -> Rows:
        """The rows of a table that match now; a stream has no content."""
        assert self._plan_of is not None
        plan = self._plan_of(slot)
        store = step.tables.get(plan.query.tables[0].name)
        if store is None:
            return Rows((), 0)
        alive = store.alive()
        found = alive[Facts(store.rows.take(alive)).matches(plan.filters[0])]
        return _project(store.rows.take(found), _shown(plan.query))

    def contents(self, slots: Index, step: Step) -> Deltas:
        """Rows of a table are matched by its index if many are wanted; plans are made of few only."""
        if len(slots) < _MANY_CONTENTS:
            return super().contents(slots, step)
        place = np.full(len(self._relation_of), -1, np.int64)
        place[slots] = np.arange(len(slots))
        parts = []
        for number in distinct(self._relation_of[slots]).tolist():
            name = self._relations[number]
            if (store := step.tables.get(name)) is None:
                continue
            alive = store.alive()
            for start in range(0, len(alive), _ROWS_AT_ONCE):
                rows = store.rows.take(alive[start : start + _ROWS_AT_ONCE])
                slot, row = unpack(self._indexes[name].match(self._extended(name, rows)))
                wanted = place[slot] >= 0
                found = self._deltas(np.zeros(wanted.sum(), np.int64), slot[wanted], 1, rows, row[wanted])
                found = replace(found, subscription=place[slot[wanted]])
                parts.append(found.take(np.lexsort((row[wanted], found.subscription))))
        if not parts:
            return NO_DELTAS
        contents = Deltas.concat(parts)
        return contents.take(np.argsort(contents.subscription, kind="stable"))

    def backfill(
        self, slots: Index, plans: Sequence[Plan] | FlatPlans, past: Sequence[tuple[Index, Rows]]
    ) -> Deltas:
        parts = []
        for group in _grouped(slots, plans):
            index = self._make_index()
            index.add(np.arange(group.filters.count), group.filters.flat())
            nested = NestedAttributes(self._make_index)
            nested.add(_names(group.filters))
            for seq, rows in past:
                number, row = unpack(index.match(nested.extended(rows)))
                row, slot = in_order(pack(group.slots[number], row), len(rows))
                parts.append(self._deltas(seq[row], slot, 1, rows, row))
        return Deltas.concat(parts)

    def stats(self) -> dict[str, Any]:
        return {name: index.stats() for name, index in self._indexes.items()}

    def _extended(self, stream: str, rows: Rows) -> Rows:
        """Events with the attributes inside them that filters use."""
        nested = self._nested.get(stream)
        return nested.extended(rows) if nested else rows

    def _index(self, relation: str) -> MatchIndex:
        if relation not in self._indexes:
            self._indexes[relation] = self._make_index()
            self.watches[relation] = AttributeWatch()
        return self._indexes[relation]

    def _deltas(self, seq: Index, slot: Index, sign: Any, rows: Rows, row: Index) -> Deltas:
        if len(self._shown) == 1:
            used, source = [0], np.zeros(len(slot), np.int32)
        else:
            which = self._shown_of[slot]
            there = np.bincount(which, minlength=len(self._shown)) > 0
            used, source = np.flatnonzero(there).tolist(), (np.cumsum(there) - 1).astype(np.int32)[which]
        signs = np.ones(len(slot), np.int8) if isinstance(sign, int) else sign
        sources = tuple(_project(rows, self._shown[number]) for number in used)
        return Deltas(seq, slot, signs, source, row, sources)

    def _check(self) -> None:
        for name, index in self._indexes.items():
            index._check()
            number = self._relations.index(name) if name in self._relations else -2
            assert index.stats()["subscriptions"] == (self._relation_of == number).sum()


def _grouped(slots: Index, plans: Sequence[Plan] | FlatPlans) -> Iterator[_Filters]:
    """Plans as flat filters, by relation and columns shown; a template's are one group already."""
    if isinstance(plans, FlatPlans):
        yield _Filters(plans.query.tables[0].name, _shown(plans.query), slots, plans.first_filters)
        return
    groups: dict[tuple[str, Shown], list[int]] = {}
    for n, plan in enumerate(plans):
        groups.setdefault((plan.query.tables[0].name, _shown(plan.query)), []).append(n)
    for (relation, shown), mine in groups.items():
        yield _Filters(relation, shown, slots[mine], flatten(plans[n].filters[0] for n in mine))


def in_order(packed: Index, rows: int) -> tuple[Index, Index]:
    """Rows and slots of packed pairs, by row, then slot; there are `rows` rows.

    >>> [a.tolist() for a in in_order(pack(np.array([7, 3, 5]), np.array([1, 1, 0])), 2)]
    [[0, 1, 1], [5, 3, 7]]
    """
    if len(packed) < 2:
        return packed & 0xFFFFFFFF, packed >> 32
    slot_bits = int(packed.max(initial=0) >> 32).bit_length()
    row_bits = min(32 - slot_bits, _ROW_BITS)
    start = np.zeros((rows >> row_bits) + 3, np.int64)
    keys = short_keys(packed, slot_bits, row_bits, start)
    for first, last in pairwise(start[:-1].tolist()):
        keys[first:last].sort()
    row, slot = rows_and_slots(keys, slot_bits, row_bits, start)
    return row, slot


def _reject_unsupported(index: MatchIndex, filters: Any) -> None:
    supported = index.supports(filters)
    if not supported.all():
        which = f" of filter {int(np.argmin(supported))}" if filters.count > 1 else ""
        raise SubscriptionError(
            f"the index {index.stats()['index']!r} does not support the condition{which}: it takes no "
            f"{index.unsupported}",
            hint="the default index takes every condition: Rooms(match=Auto)",
        )


def _shown(query: Query) -> Shown:
    """The columns that a filter's answer shows of a row."""
    return tuple((i.name, i.expression.name) for i in query.items if isinstance(i.expression, Column))


def _project(rows: Rows, shown: Shown) -> Rows:
    if shown:
        return rows.project(dict(shown))
    return rows.visible() if isinstance(rows, OneEvent) else rows


def _names(filters: FlatFilters | DeferredFilters) -> Iterable[str]:
    """The attributes that filters name; deferred ones use nothing inside events."""
    return filters.names if isinstance(filters, FlatFilters) else ()


def _inside_names(flat: FlatFilters) -> dict[int, list[str]]:
    """The attributes inside events that each filter names."""
    inside = np.array([is_inside(name) for name in flat.names], np.bool_)
    owner, attribute = np.repeat(flat.owner, flat.sizes).astype(np.int64), flat.attribute[flat.dim]
    pairs = distinct(((owner << 32) | attribute)[inside[attribute]])
    found: dict[int, list[str]] = {}
    for filter, name in zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True):
        found.setdefault(filter, []).append(flat.names[name])
    return found

"""All subscriptions of one signature: their groups, and what has to be verified.

filter of a table ─► one range (`predicate/verify.py`) ─► a group, by the attributes of all tables
                 └─► the whole filter, where the range does not say all ─► verified row by row
condition between tables ─► verified on joined rows, columns named by place: `0.price`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.join.groups import Attributes, BandGroup, EqualityGroup, PairGroup
from tocsin.join.members import Homes, Matches, Tuples
from tocsin.join.multiway import TupleGroup, Walk, walk
from tocsin.join.probe import band_holds
from tocsin.join.shared import OrderSpec, SharedOrders, SharedTable
from tocsin.join.signature import Signature, band_range, band_ranges, places_of
from tocsin.language.algebra import Atom, Band, Column, Not, atoms
from tocsin.language.rewrite import Literal, NormalForm
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Mask, Rows, combine_codes
from tocsin.predicate.compile import flatten
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.verify import PairVerifier, selections
from tocsin.store.plans import FlatPlans
from tocsin.store.step import Step
from tocsin.store.tables import Signed

__all__ = ["Family", "signed_rows"]


class _Laid(NamedTuple):
    """Subscriptions in columns: a filter by table, whether they can never match, ends by band."""

    filters: Sequence[FlatFilters]
    never: Mask
    band_low: Index
    band_high: Index


class _Coming(NamedTuple):
    """Members of a group to be: ranges by place, then by band."""

    slots: Index
    low: Index
    high: Index


class Family:
    """Subscriptions of one signature by slot; `plans` has the plan of each."""

    def __init__(self, signature: Signature, plans: Mapping[int, Plan], homes: Homes) -> None:
        self.signature = signature
        self.groups: dict[Attributes, PairGroup | TupleGroup] = {}
        self._plans, self._homes = plans, homes
        self._numbers: dict[Attributes, int] = {}  # of groups, also of those that have gone
        self._filters = [PairVerifier() for _ in signature.tables]
        self._residuals = PairVerifier()
        self._columns: dict[tuple[int, str], None] = {}  # that residuals have spoken of
        self._count = self._never = 0

    def __len__(self) -> int:
        return self._count

    # -- coming and going --------------------------------------------------------------------------

    def add(self, batches: Sequence[tuple[Index, Sequence[Plan] | FlatPlans]]) -> None:
        """Take subscriptions in, all at once: structures take many far better than many times a few."""
        by: dict[Attributes, list[_Coming]] = {}
        for slots, plans in batches:
            self._homes.group[slots] = -1
            self._count += len(slots)
            laid = self._flat(plans) if isinstance(plans, FlatPlans) else self._single(slots, plans)
            for attributes, coming in self._selecting(slots, *laid):
                by.setdefault(attributes, []).append(coming)
        self._never = self._count - sum(len(group.members) for group in self.groups.values())
        for attributes, parts in by.items():
            if attributes not in self.groups:
                self.groups[attributes] = self._new_group(attributes)
            slots, low, high = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
            self._homes.group[slots] = self._numbers.setdefault(attributes, len(self._numbers))
            self._homes.number[slots] = self.groups[attributes].add(slots, low, high)
            self._never -= len(slots)

    def _single(self, slots: Index, plans: Sequence[Plan]) -> _Laid:
        """Plans one by one; filters are laid flat table by table."""
        filters = [flatten(plan.filters[place] for plan in plans) for place in range(len(self._filters))]
        ends = np.array([self._band_ranges(plan) for plan in plans], np.int64)  # by plan, end and band
        self._add_residuals(slots, plans)
        return _Laid(filters, np.array([plan.never for plan in plans]), ends[:, 0].T, ends[:, 1].T)

    def _flat(self, plans: FlatPlans) -> _Laid:
        """Plans of a template."""
        bands = [join for join in plans.query.joins if isinstance(join, Band)]
        both = zip(bands, plans.bands, self.signature.bands, strict=True)
        ranges = [band_ranges(band, ends, edge.double, len(plans)) for band, ends, edge in both]
        none = np.empty((0, len(plans)), np.int64)
        low, high = (np.stack(part) for part in zip(*ranges, strict=True)) if ranges else (none, none)
        return _Laid(plans.filters, plans.never, low, high)

    def _selecting(
        self, slots: Index, filters: Sequence[FlatFilters], never: Mask, band_low: Index, band_high: Index
    ) -> Iterator[tuple[Attributes, _Coming]]:
        """Who selects by which attributes; what ranges do not say is kept for verification."""
        found = [selections(flat, by_share=True) for flat in filters]
        for own, flat, chosen in zip(self._filters, filters, found, strict=True):
            if (inexact := ~chosen.exact).any():
                own.add(slots[inexact], flat if inexact.all() else flat.take(inexact))
        low = np.concatenate([np.stack([s.low for s in found]), band_low])
        high = np.concatenate([np.stack([s.high for s in found]), band_high])
        code = combine_codes([s.attribute + 1 for s in found], len(slots))
        code[np.logical_or.reduce([never, *(s.never for s in found), (low > high).any(axis=0)])] = -1
        for mine in _runs(code):
            attributes = tuple(s.names[a] if (a := int(s.attribute[mine[0]])) >= 0 else None for s in found)
            yield attributes, _Coming(slots[mine], low[:, mine], high[:, mine])

    def remove(self, slots: Index) -> bool:
        """Let subscriptions go; whether groups have gone with them."""
        there, names = self._homes.group[slots], list(self._numbers)
        self._count -= len(slots)
        self._never -= int((there < 0).sum())
        emptied = False
        for mine in _runs(there):
            attributes = names[there[mine[0]]]
            self.groups[attributes].remove(self._homes.number[slots[mine]].astype(np.int64))
            if not len(self.groups[attributes].members):
                del self.groups[attributes]
                emptied = True
        for filters in (*self._filters, self._residuals):
            filters.remove(slots)
        return emptied

    def _new_group(self, attributes: Attributes) -> PairGroup | TupleGroup:
        if len(self.signature.tables) > 2:
            return TupleGroup(self.signature, attributes)
        return (EqualityGroup if self.signature.edges else BandGroup)(self.signature, attributes)

    def _band_ranges(self, plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
        both = list(zip(_bands(plan), self.signature.bands, strict=True))
        ranges = [band_range(band, edge.double) for band, edge in both]
        return tuple(low for low, _ in ranges), tuple(high for _, high in ranges)

    def _add_residuals(self, slots: Index, plans: Sequence[Plan]) -> None:
        has = [i for i, plan in enumerate(plans) if plan.residual is not None]
        if has:
            forms = [_by_place(plans[i]) for i in has]
            for form in forms:
                for atom in atoms(form.predicate):
                    place, name = atom.column.name.split(".", 1)
                    self._columns[int(place), name] = None
            self._residuals.add(slots[has], flatten(forms))

    def orders(self) -> Iterator[OrderSpec]:
        """What is needed of the tables."""
        return (spec for group in self.groups.values() for spec in group.orders())

    # -- steps -------------------------------------------------------------------------------------

    def matches(self, step: Step, shared: SharedOrders) -> Iterator[Matches]:
        """Who gets or loses which joined rows of two tables in a step; of more, see `walks`."""
        tables = self.signature.tables
        if not self.groups or len(tables) > 2 or not any(name in step.changed for name in tables):
            return
        seen = [shared.table(name, step) for name in tables]
        for origin, name in enumerate(tables):
            if name in step.changed:
                for found in self._matches(origin, step, seen):
                    yield self._verified(found, origin, seen).compact()

    def walks(self, table: str) -> Iterator[Walk]:
        """For joins of more tables: the ways from a table on."""
        several = [group for group in self.groups.values() if isinstance(group, TupleGroup)]
        if several:
            for origin, name in enumerate(self.signature.tables):
                if name == table:
                    yield walk(self.signature, origin, several)

    def selecting(self, tuples: Tuples, step: Step, shared: SharedOrders) -> Iterator[Matches]:
        """Who selects which of the joined rows that a walk has led to."""
        seen = [shared.table(name, step) for name in self.signature.tables]
        for group in self.groups.values():
            if isinstance(group, TupleGroup):
                for found in group.match(tuples, seen):
                    yield self._verified(found, None, seen).compact()

    def _matches(self, origin: int, step: Step, seen: Sequence[SharedTable]) -> Iterator[Matches]:
        signed = signed_rows(step, self.signature.tables[origin])

        def verify(place: int, slots: Index, rows: Index) -> Mask | None:
            return self._filters[place].verify(seen[place].store.rows, slots, rows)

        def unbounded(slot: int, band: int, left: Index, right: Index) -> Mask:
            edge, which = self.signature.bands[band], _bands(self._plans[slot])[band]
            a, b = (
                seen[place].store.rows.vectors(key.columns[0])[0].take(rows)
                for place, key, rows in zip(edge.places, edge.keys, (left, right), strict=True)
            )
            return band_holds(which, a, b)

        for group in self.groups.values():
            if isinstance(group, PairGroup):
                yield from group.find(origin, signed, seen, verify, unbounded)

    def _verified(self, found: Matches, done: int | None, seen: Sequence[SharedTable]) -> Matches:
        """What filters and conditions between tables leave; those at the place `done` were asked before."""
        for place, filters in enumerate(self._filters):
            if place != done and len(found.slot):
                rows = found.tuples.rows[place]
                found = found.take(filters.verify(seen[place].store.rows, found.slot, rows[found.tuple]))
        if self._columns and len(found.slot):
            joined = _joined(self._columns, found.tuples, seen)
            found = found.take(self._residuals.verify(joined, found.slot, found.tuple))
        return found

    # -- looking at it -----------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        groups = [
            {"attributes": ["any" if a is None else a for a in attributes], **group.stats()}
            for attributes, group in self.groups.items()
        ]
        return {"signature": str(self.signature), "subscriptions": len(self), "groups": groups}

    def _check(self) -> None:
        for group in self.groups.values():
            group._check()
            slots = group.members.slot[group.members.numbers()]
            assert np.array_equal(self._homes.number[slots], group.members.numbers())
        assert sum(len(group.members) for group in self.groups.values()) == self._count - self._never


def signed_rows(step: Step, table: str) -> Signed:
    """The rows of a table that come and go in a step."""
    return step.once(("signed", table), step.changed[table].signed)


def _bands(plan: Plan) -> list[Band]:
    return [join for join in plan.query.joins if isinstance(join, Band)]


def _runs(codes: NDArray[Any]) -> list[Index]:
    """Places of equal codes, code by code; negative codes are left out."""
    if len(codes) and codes[0] >= 0 and np.all(codes == codes[0]):
        return [np.arange(len(codes))]
    order = np.argsort(codes, kind="stable")
    order = order[np.searchsorted(codes[order], 0) :]
    return [run for run in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(run)]


def _joined(columns: Any, tuples: Tuples, seen: Sequence[SharedTable]) -> Rows:
    """Columns of joined rows, named by place."""
    found = [
        (f"{place}.{name}", seen[place].store.rows.vectors(name)[0].take(tuples.rows[place]))
        for place, name in columns
    ]
    return Rows(found, len(tuples.sign))


def _by_place(plan: Plan) -> NormalForm:
    """The residual with its columns named by place."""
    assert plan.residual is not None
    places = places_of(plan.query)

    def renamed(literal: Literal) -> Literal:
        if isinstance(literal, Not):
            return Not(_renamed(literal.arg, places))
        return _renamed(literal, places)

    groups = tuple(tuple(renamed(literal) for literal in group) for group in plan.residual.groups)
    return NormalForm(plan.residual.kind, groups)


def _renamed(atom: Any, places: dict[str, int]) -> Atom:
    column = atom.column
    named: Atom = replace(atom, column=Column(f"{places[column.relation]}.{column.name}", column.type))
    return named

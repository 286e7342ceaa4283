"""All subscriptions of one signature: their groups, and what has to be verified.

filter of a table ─► one range (`selections.py`) ─► a group, by the attributes of all tables
                 └─► the whole filter, where the range does not say all ─► verified row by row
condition between tables ─► verified on joined rows, columns named by place: `0.price`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tocsin.join.groups import Attributes, BandGroup, EqualityGroup, PairGroup
from tocsin.join.members import Matches, Tuples
from tocsin.join.multiway import TupleGroup, joined_tuples
from tocsin.join.probe import band_holds
from tocsin.join.selections import Selections, selections
from tocsin.join.shared import OrderSpec, SharedOrders, SharedTable
from tocsin.join.signature import Signature, band_range, places_of
from tocsin.language.algebra import Atom, Band, Column, Not, atoms
from tocsin.language.rewrite import Literal, NormalForm
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Mask, Rows
from tocsin.predicate.compile import flatten
from tocsin.predicate.pairs import PairFilters
from tocsin.store.step import Step

__all__ = ["Family"]


class Family:
    """Subscriptions of one signature by slot."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.groups: dict[Attributes, PairGroup | TupleGroup] = {}
        self._group_of: dict[int, Attributes | None] = {}  # None: it can never match
        self._filters = [PairFilters() for _ in signature.tables]
        self._residuals = PairFilters()
        self._columns: dict[tuple[int, str], None] = {}  # that residuals have spoken of
        self._bands: dict[int, tuple[Band, ...]] = {}

    def __len__(self) -> int:
        return len(self._group_of)

    # -- coming and going --------------------------------------------------------------------------

    def add(self, slots: Sequence[int], plans: Sequence[Plan]) -> None:
        """Take subscriptions in, all at once: filters are laid flat table by table."""
        number = np.array(slots, np.int64)
        found: list[Selections] = []
        for place, filters in enumerate(self._filters):
            flat = flatten(plan.filters[place] for plan in plans)
            found.append(selections(flat))
            if (inexact := ~found[-1].exact).any():
                filters.add(number[inexact], flat.take(inexact))
        low, high = (np.stack([getattr(s, end) for s in found]) for end in ("low", "high"))
        never = np.logical_or.reduce([s.never for s in found]) | np.array([p.never for p in plans])
        if self.signature.bands:
            ranges = np.array([self._band_ranges(s, p) for s, p in zip(slots, plans, strict=True)], np.int64)
            low = np.concatenate([low, ranges[:, 0].T])
            high = np.concatenate([high, ranges[:, 1].T])
        never |= (low > high).any(axis=0)
        self._add_residuals(number, plans)
        by: dict[Attributes, list[int]] = {}
        for i, attributes in enumerate(zip(*(s.attribute for s in found), strict=True)):
            if never[i]:
                self._group_of[slots[i]] = None
            else:
                self._group_of[slots[i]] = attributes
                by.setdefault(attributes, []).append(i)
        for attributes, mine in by.items():
            if attributes not in self.groups:
                self.groups[attributes] = self._new_group(attributes)
            self.groups[attributes].add(number[mine].tolist(), low[:, mine], high[:, mine])

    def remove(self, slots: Sequence[int]) -> bool:
        """Let subscriptions go; whether groups have gone with them."""
        by: dict[Attributes, list[int]] = {}
        for slot in slots:
            self._bands.pop(slot, None)
            attributes = self._group_of.pop(slot)
            if attributes is not None:
                by.setdefault(attributes, []).append(slot)
        for attributes, mine in by.items():
            self.groups[attributes].remove(mine)
            if not len(self.groups[attributes].members):
                del self.groups[attributes]
        gone = np.array(slots, np.int64)
        for filters in (*self._filters, self._residuals):
            filters.remove(gone)
        return any(attributes not in self.groups for attributes in by)

    def _new_group(self, attributes: Attributes) -> PairGroup | TupleGroup:
        if len(self.signature.tables) > 2:
            return TupleGroup(self.signature, attributes)
        return (EqualityGroup if self.signature.edges else BandGroup)(self.signature, attributes)

    def _band_ranges(self, slot: int, plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...]]:
        bands = tuple(join for join in plan.query.joins if isinstance(join, Band))
        self._bands[slot] = bands
        both = zip(bands, self.signature.bands, strict=True)
        low, high = zip(*(band_range(band, edge.double) for band, edge in both), strict=True)
        return low, high

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
        """Who gets or loses which joined rows in a step."""
        tables = self.signature.tables
        if not self.groups or not any(name in step.changed for name in tables):
            return
        seen = [shared.table(name, step) for name in tables]
        for origin, name in enumerate(tables):
            if name in step.changed:
                for found in self._matches(origin, step, seen):
                    yield self._verified(found, None if len(tables) > 2 else origin, seen)

    def _matches(self, origin: int, step: Step, seen: Sequence[SharedTable]) -> Iterator[Matches]:
        table = self.signature.tables[origin]
        signed = step.once(("signed", table), step.changed[table].signed)

        def verify(place: int, slots: Index, rows: Index) -> Mask | None:
            return self._filters[place].hold(seen[place].store.rows, slots, rows)

        def unbounded(slot: int, band: int, left: Index, right: Index) -> Mask:
            edge, which = self.signature.bands[band], self._bands[slot][band]
            a, b = (
                seen[place].store.rows.vectors(key.columns[0])[0].take(rows)
                for place, key, rows in zip(edge.places, edge.keys, (left, right), strict=True)
            )
            return band_holds(which, a, b)

        several = [group for group in self.groups.values() if isinstance(group, TupleGroup)]
        if several:
            tuples = joined_tuples(self.signature, several, origin, signed, seen, step)
            if len(tuples.sign):
                yield from (group.match(tuples, seen) for group in several)
        for group in self.groups.values():
            if isinstance(group, PairGroup):
                yield group.find(origin, signed, seen, verify, unbounded)

    def _verified(self, found: Matches, done: int | None, seen: Sequence[SharedTable]) -> Matches:
        """What filters and conditions between tables leave; those at the place `done` were asked before."""
        for place, filters in enumerate(self._filters):
            if place != done and len(found.slot):
                rows = found.tuples.rows[place]
                found = found.take(filters.hold(seen[place].store.rows, found.slot, rows[found.tuple]))
        if self._columns and len(found.slot):
            joined = _joined(self._columns, found.tuples, seen)
            found = found.take(self._residuals.hold(joined, found.slot, found.tuple))
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
        assert sum(len(group.members) for group in self.groups.values()) == sum(
            attributes is not None for attributes in self._group_of.values()
        )


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

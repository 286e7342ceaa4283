"""All subscriptions of one signature: their groups, and the verification of what ranges do not express.

    filter of a table ─► one range (`predicate/verify.py`) ─► a group, by the attributes of all tables
                     └─► the whole filter, where the range is not equivalent ─► verified row by row
    condition between tables ─► verified on joined rows, with columns named by place: `0.price`

A step, for joins of two tables: each group finds candidates, the family verifies the filters of the changed
table on them, the group joins them with the other table, the family verifies everything else on the matches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tocsin.join._kernels.matches import CandidatePairs, differences
from tocsin.join.groups import (
    Attributes,
    BandGroup,
    EqualityGroup,
    JoinGroup,
    PairGroup,
    Probe,
    SlotDirectory,
)
from tocsin.join.matches import Matches, Tuples
from tocsin.join.multiway import JoinPath, TupleGroup, join_path
from tocsin.join.scan import band_holds
from tocsin.join.signature import BandEdge, Signature, band_range, band_ranges, places_of
from tocsin.join.tables import JoinTable, JoinTables, OrderSpec
from tocsin.language.algebra import JOINT, Atom, Band, Column, Not, atoms, with_column
from tocsin.language.rewrite import Literal, NormalForm
from tocsin.language.shape import Plan
from tocsin.model.columns import Index, Mask, Rows, Vector, combine_codes
from tocsin.model.expressions.derived import expression_of, read_by
from tocsin.model.expressions.tree import is_expression
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.compile import flatten
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.verify import PairVerifier, selections
from tocsin.store.plans import FlatPlans

__all__ = ["JoinFamily", "PairFamily", "TupleFamily"]

G = TypeVar("G", bound=JoinGroup)


class _PlanColumns(NamedTuple):
    """Subscriptions in columns: a filter by table, whether they can never match, ends by band."""

    filters: Sequence[FlatFilters]
    never: Mask
    band_low: Index
    band_high: Index


class _NewMembers(NamedTuple):
    """Members to add to a group: ranges by place, then by band."""

    slots: Index
    low: Index
    high: Index


class JoinFamily(ABC, Generic[G]):
    """Subscriptions of one signature by slot; `plans` has the plan of each."""

    def __init__(self, signature: Signature, plans: Mapping[int, Plan], directory: SlotDirectory) -> None:
        self.signature = signature
        self.groups: dict[Attributes, G] = {}
        self._plans, self._directory = plans, directory
        self._numbers: dict[Attributes, int] = {}  # of groups, also of removed ones
        self._filters = [PairVerifier() for _ in signature.tables]
        self._residuals = PairVerifier()
        self._columns: dict[tuple[int, str], None] = {}  # that residuals read
        self._computed: dict[str, None] = {}  # expressions over several tables, of residuals
        self._count = self._never = 0

    def __len__(self) -> int:
        return self._count

    @abstractmethod
    def _new_group(self, attributes: Attributes) -> G:
        """An empty group."""

    # -- subscriptions -----------------------------------------------------------------------------

    def add(self, batches: Sequence[tuple[Index, Sequence[Plan] | FlatPlans]]) -> None:
        """Add subscriptions all at once: structures add many far faster than one by one."""
        by: dict[Attributes, list[_NewMembers]] = {}
        for slots, plans in batches:
            self._directory.group[slots] = -1
            self._count += len(slots)
            if isinstance(plans, FlatPlans):
                columns = self._template_columns(plans)
            else:
                columns = self._plan_columns(slots, plans)
            for attributes, members in self._by_attributes(slots, columns):
                by.setdefault(attributes, []).append(members)
        self._never = self._count - sum(len(group.members) for group in self.groups.values())
        for attributes, parts in by.items():
            if attributes not in self.groups:
                self.groups[attributes] = self._new_group(attributes)
            slots, low, high = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
            self._directory.group[slots] = self._numbers.setdefault(attributes, len(self._numbers))
            self._directory.number[slots] = self.groups[attributes].add(slots, low, high)
            self._never -= len(slots)

    def _plan_columns(self, slots: Index, plans: Sequence[Plan]) -> _PlanColumns:
        """Columns of separate plans."""
        filters = [flatten(plan.filters[place] for plan in plans) for place in range(len(self._filters))]
        ends = np.array([self._band_ranges(plan) for plan in plans], np.int64)  # by plan, end and band
        self._add_residuals(slots, plans)
        return _PlanColumns(filters, np.array([plan.never for plan in plans]), ends[:, 0].T, ends[:, 1].T)

    def _template_columns(self, plans: FlatPlans) -> _PlanColumns:
        """Columns of the plans of a template."""
        bands = [join for join in plans.query.joins if isinstance(join, Band)]
        both = zip(bands, plans.bands, self.signature.bands, strict=True)
        ranges = [band_ranges(band, ends, edge.double, len(plans)) for band, ends, edge in both]
        none = np.empty((0, len(plans)), np.int64)
        low, high = (np.stack(part) for part in zip(*ranges, strict=True)) if ranges else (none, none)
        return _PlanColumns(plans.filters, plans.never, low, high)

    def _by_attributes(self, slots: Index, columns: _PlanColumns) -> Iterator[tuple[Attributes, _NewMembers]]:
        """Members by the attributes they select by; filters that ranges do not express are kept."""
        found = [selections(flat, by_share=True) for flat in columns.filters]
        for own, flat, chosen in zip(self._filters, columns.filters, found, strict=True):
            if (inexact := ~chosen.exact).any():
                own.add(slots[inexact], flat if inexact.all() else flat.take(inexact))
        low = np.concatenate([np.stack([s.low for s in found]), columns.band_low])
        high = np.concatenate([np.stack([s.high for s in found]), columns.band_high])
        code = combine_codes([s.attribute + 1 for s in found], len(slots))
        never = [columns.never, *(s.never for s in found), (low > high).any(axis=0)]
        code[np.logical_or.reduce(never)] = -1
        for mine in _runs(code):
            attributes = tuple(s.names[a] if (a := int(s.attribute[mine[0]])) >= 0 else None for s in found)
            yield attributes, _NewMembers(slots[mine], low[:, mine], high[:, mine])

    def remove(self, slots: Index) -> bool:
        """Remove subscriptions; whether groups became empty and were dropped."""
        group, names = self._directory.group[slots], list(self._numbers)
        self._count -= len(slots)
        self._never -= int((group < 0).sum())
        emptied = False
        for mine in _runs(group):
            attributes = names[group[mine[0]]]
            self.groups[attributes].remove(self._directory.number[slots[mine]].astype(np.int64))
            if not len(self.groups[attributes].members):
                del self.groups[attributes]
                emptied = True
        for filters in (*self._filters, self._residuals):
            filters.remove(slots)
        return emptied

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
                    if is_expression(atom.column.name):
                        self._computed[atom.column.name] = None
                    for read in read_by(atom.column.name):
                        place, name = read.split(".", 1)
                        self._columns[int(place), name] = None
            self._residuals.add(slots[has], flatten(forms))

    def orders(self) -> Iterator[OrderSpec]:
        """The orders of tables that it reads."""
        return (spec for group in self.groups.values() for spec in group.orders())

    # -- steps -------------------------------------------------------------------------------------

    def _verified(self, found: Matches, done: int | None, tables: Sequence[JoinTable]) -> Matches:
        """Matches that satisfy filters and conditions between tables; place `done` is verified already."""
        for place, filters in enumerate(self._filters):
            if place != done and len(found.slot):
                rows = found.tuples.rows[place]
                found = found.take(filters.verify(tables[place].store.rows, found.slot, rows[found.tuple]))
        if self._columns and len(found.slot):
            joined = _joined(self._columns, self._computed, found.tuples, tables)
            found = found.take(self._residuals.verify(joined, found.slot, found.tuple))
        return found.compact()

    # -- inspection --------------------------------------------------------------------------------

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
            assert np.array_equal(self._directory.number[slots], group.members.numbers())
        assert sum(len(group.members) for group in self.groups.values()) == self._count - self._never


class PairFamily(JoinFamily[PairGroup]):
    """Joins of two tables."""

    def _new_group(self, attributes: Attributes) -> PairGroup:
        return (EqualityGroup if self.signature.edges else BandGroup)(self.signature, attributes)

    def matches(self, changed: Collection[str], tables: JoinTables) -> Iterator[Matches]:
        """Matches of a step that changes some tables."""
        names = self.signature.tables
        if not self.groups or not any(name in changed for name in names):
            return
        seen = [tables[name] for name in names]
        for origin, name in enumerate(names):
            if name in changed:
                for group in self.groups.values():
                    yield from self._matches_of(group, group.probe(origin, seen), seen)

    def _matches_of(self, group: PairGroup, probe: Probe, tables: Sequence[JoinTable]) -> Iterator[Matches]:
        """Candidates, verified; joined, verified."""
        own, rows = self._filters[probe.origin], tables[probe.origin].store.rows
        for pairs in group.candidates(probe):
            holds = own.verify(rows, group.members.slot[pairs.query], probe.rows[pairs.change])
            if not holds.all():
                pairs = CandidatePairs(pairs.query[holds], pairs.change[holds])
            for found in group.join(probe, pairs):
                if self.signature.bands:
                    found = self._in_bands(found, group, tables)
                found = self._verified(found, probe.origin, tables)
                if len(found.slot):
                    yield found

    def _in_bands(self, found: Matches, group: PairGroup, tables: Sequence[JoinTable]) -> Matches:
        """Matches in the bands that the group did not join by; where differences exceed int64, in all."""
        holds: Mask | None = None
        at = found.tuple
        for number, band in enumerate(self.signature.bands):
            off, valid = _differences(band, found.tuples, tables)
            beyond = (off == LEAST) | (off == GREATEST) if not band.double else np.zeros(len(off), np.bool_)
            if number == 0 and not self.signature.edges and not beyond.any():
                continue
            query = self._directory.number[found.slot]
            low, high = (ends[2 + number][query] for ends in (group.members.low, group.members.high))
            mine = valid[at] & (low <= off[at]) & (off[at] <= high)
            unbounded = np.flatnonzero(beyond[at] & valid[at])
            for slot in np.unique(found.slot[unbounded]).tolist():
                own = unbounded[found.slot[unbounded] == slot]
                vectors = _band_columns(band, found.tuples.take(at[own]), tables)
                mine[own] = band_holds(_bands(self._plans[slot])[number], *vectors)
            holds = mine if holds is None else holds & mine
        return found if holds is None else found.take(holds)


class TupleFamily(JoinFamily[TupleGroup]):
    """Joins of three tables and more."""

    def _new_group(self, attributes: Attributes) -> TupleGroup:
        return TupleGroup(self.signature, attributes)

    def paths(self, table: str) -> Iterator[JoinPath]:
        """Paths from a changed table through the join tree."""
        if self.groups:
            for origin, name in enumerate(self.signature.tables):
                if name == table:
                    yield join_path(self.signature, origin, list(self.groups.values()))

    def select(self, tuples: Tuples, tables: JoinTables) -> Iterator[Matches]:
        """Matches of the joined rows at the end of a path."""
        seen = [tables[name] for name in self.signature.tables]
        for group in self.groups.values():
            for found in group.candidates(tuples, seen):
                found = self._verified(found, None, seen)
                if len(found.slot):
                    yield found


def _band_columns(band: BandEdge, tuples: Tuples, tables: Sequence[JoinTable]) -> tuple[Vector, Vector]:
    """The two columns that a band subtracts."""
    left, right = (
        tables[place].store.rows.vectors(key.columns[0])[0].take(tuples.rows[place])
        for place, key in zip(band.places, band.keys, strict=True)
    )
    return left, right


def _differences(band: BandEdge, tuples: Tuples, tables: Sequence[JoinTable]) -> tuple[Index, Mask]:
    """Left - right of joined rows, as codes, and where neither is NULL."""
    sides = [tables[place].codes(key) for place, key in zip(band.places, band.keys, strict=True)]
    left, right = (tuples.rows[place] for place in band.places)
    out = np.empty(len(left), np.int64)
    differences(band.double, sides[0].code[left], sides[1].code[right], out)
    return out, sides[0].valid[left] & sides[1].valid[right]


def _bands(plan: Plan) -> list[Band]:
    return [join for join in plan.query.joins if isinstance(join, Band)]


def _runs(codes: NDArray[Any]) -> list[Index]:
    """Indexes of equal codes, code by code, without negative codes."""
    if len(codes) and codes[0] >= 0 and np.all(codes == codes[0]):
        return [np.arange(len(codes))]
    order = np.argsort(codes, kind="stable")
    order = order[np.searchsorted(codes[order], 0) :]
    return [run for run in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(run)]


def _joined(columns: Any, computed: Iterable[str], tuples: Tuples, tables: Sequence[JoinTable]) -> Rows:
    """Columns of joined rows, named by place; and what is computed from them."""
    found = [
        (f"{place}.{name}", tables[place].store.rows.vectors(name)[0].take(tuples.rows[place]))
        for place, name in columns
    ]
    rows = Rows(found, len(tuples.sign))
    more = [(name, rows.vectors(name)[0]) for name in computed]
    return Rows([*found, *more], len(tuples.sign)) if more else rows


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
    if column.relation == JOINT:
        name = expression_of(column.name).renamed(
            [f"{places[part.relation]}.{part.name}" for part in column.parts]
        )
        return with_column(atom, Column(name, column.type))
    return with_column(atom, Column(f"{places[column.relation]}.{column.name}", column.type))

"""The join room: subscriptions of one signature share their work; each changed row takes the cheapest plan.

    subscriptions ─► family, by signature ─► group, by attributes ─► ranges in the indexes of its strategy
    changed rows  ─► orders of the tables ─► candidates ─► joined rows ─► verified ─► Deltas

Equality joins of two tables take the cheapest plan for each changed row (`plan_choice.py`), band joins use
hot groups of differences (`groups.py`), joins of more tables extend joined rows table by table
(`multiway.py`). The family verifies whatever a subscription says beyond ranges (`family.py`). Results are
those of the scan (`scan.py`).

`add` and `remove` only record subscriptions; families are updated when the next step begins, all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.join.family import PairFamily, TupleFamily
from tocsin.join.groups import SlotDirectory
from tocsin.join.matches import Matches, Projection, Tuples
from tocsin.join.multiway import joined_tuples
from tocsin.join.scan import content_of, explain_row
from tocsin.join.signature import Signature
from tocsin.join.tables import JoinTables, NeededOrders
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, Rows
from tocsin.model.delta import NO_DELTAS, Deltas, netted
from tocsin.room import Room
from tocsin.store.plans import FlatPlans, PendingPlans
from tocsin.store.step import Step

__all__ = ["JoinRoom"]


class JoinRoom(Room):
    """Joins by slot; the cost of a change hardly depends on their number."""

    name = "join"
    shapes = (Shape.JOIN, Shape.BAND, Shape.MULTIWAY)

    def __init__(self) -> None:
        self._plans = PendingPlans()  # all plans; those not placed yet are in no family
        self._removed: list[Index] = []  # slots that are still in a family
        self._pairs: dict[Signature, PairFamily] = {}  # joins of two tables
        self._multiway: dict[Signature, TupleFamily] = {}  # joins of more tables
        self._numbers: dict[Signature, int] = {}  # of families, also of dropped ones
        self._directory = SlotDirectory()
        self._projections: dict[Projection, int] = {}
        self.share(JoinTables())

    def share(self, tables: JoinTables) -> None:
        self._tables = tables
        tables.users.append(self._needed_orders)

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        self._plans.add(slots, plans)

    def remove(self, slots: Index) -> None:
        in_family = self._plans.is_placed(slots)
        self._plans.remove(slots)
        if in_family.any():
            self._removed.append(slots[in_family])

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(self._plans[slot], step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, place, slot, step)

    def deltas(self, step: Step) -> Deltas:
        if not len(self._plans) and not self._removed:
            return NO_DELTAS
        try:
            self.maintain(step)
            found: dict[Signature, list[Matches]] = {}
            for signature, family in self._pairs.items():
                found[signature] = list(family.matches(step.changed, self._tables))
            if self._multiway:
                found.update(self._multiway_matches(step))
            parts = [
                self._deltas(Matches.concat(matches), signature.tables, step)
                for signature, matches in found.items()
                if matches
            ]
            return step.settled(Deltas.concat(parts))
        except BaseException:
            self._tables.clear()  # orders may contain half of the step
            raise
        finally:
            self._tables.end()

    def maintain(self, step: Step) -> None:
        """Bring families up to date with subscriptions, and tables with the step."""
        self._update_families()
        self._tables.begin(step)

    def settle(self, step: Step) -> None:
        """Take the rows that the last step left dead out of the orders, before they are needed."""
        try:
            self._tables.begin(step)
        finally:
            self._tables.end()

    def _deltas(self, found: Matches, tables: Sequence[str], step: Step) -> Deltas:
        """Deltas of matches, one source of rows per projection.

        Rows of each projection are emitted once; the -old +new of an update cancel where they are equal, so
        that a subscription that neither gains nor loses a row receives nothing. That takes a comparison of
        whole rows, needed only where one change both deletes and inserts joined rows.
        """
        parts, projections = [], list(self._projections)
        which = self._directory.projection[found.slot] if len(projections) > 1 else np.zeros(1, np.int32)
        mixed = _with_both_signs(found.tuples, len(step.seq))
        for number in np.flatnonzero(np.bincount(which)).tolist():
            mine = found if len(projections) == 1 else found.take(which == number)
            used = np.zeros(len(found.tuples.sign), np.bool_)
            used[mine.tuple] = True
            if used.all():
                tuples, row = found.tuples, mine.tuple
            else:
                tuples, row = found.tuples.take(used), (np.cumsum(used) - 1)[mine.tuple]
            columns = [
                (name, step.tables[tables[place]].rows.vectors(column)[0].take(tuples.rows[place]))
                for place, column, name in projections[number].items
            ]
            rows = Rows(columns, len(tuples.sign))
            deltas = Deltas.of(step.seq[tuples.position][row], mine.slot, tuples.sign[row], rows, row)
            if (both := mixed[tuples.position][row]).any():
                some = np.flatnonzero(both)
                code = rows.codes()[deltas.row[some]]
                left = netted([deltas.seq[some], deltas.subscription[some], code], deltas.sign[some])
                deltas = deltas.take(np.concatenate([np.flatnonzero(~both), some[left]]))
            parts.append(deltas)
        return Deltas.concat(parts)

    def _multiway_matches(self, step: Step) -> dict[Signature, list[Matches]]:
        """Matches of joins of three tables and more, by signature: all paths from a changed table at once."""
        found: dict[Signature, list[Matches]] = {}
        for table in step.changed:
            owners = {id(path): (path, f) for f in self._multiway.values() for path in f.paths(table)}
            paths = [path for path, _ in owners.values()]
            for path, tuples in joined_tuples(paths, table, self._tables) if paths else ():
                family = owners[id(path)][1]
                found.setdefault(family.signature, []).extend(family.select(tuples, self._tables))
        return found

    # -- subscriptions -----------------------------------------------------------------------------

    def _update_families(self) -> None:
        """Apply recorded additions and removals."""
        if self._removed:
            self._remove_from_families()
        if self._plans.waiting:
            self._add_to_families(list(self._plans.to_place()))

    def _add_to_families(self, recorded: Sequence[tuple[Index, Sequence[Plan] | FlatPlans]]) -> None:
        known: dict[Any, Signature] = {}  # texts that differ in literals share a signature
        by: dict[Signature, list[tuple[Index, Sequence[Plan] | FlatPlans]]] = {}
        single: dict[Signature, list[tuple[int, Plan]]] = {}
        for slots, plans in recorded:
            self._directory.reserve(slots)
            if isinstance(plans, FlatPlans):
                self._directory.projection[slots] = self._projection(plans.query)
                by.setdefault(_signature(plans.query, known), []).append((slots, plans))
                continue
            for slot, plan in zip(slots.tolist(), plans, strict=True):
                single.setdefault(_signature(plan.query, known), []).append((slot, plan))
                self._directory.projection[slot] = self._projection(plan.query)
        for signature, members in single.items():
            own = np.array([slot for slot, _ in members], np.int64)
            by.setdefault(signature, []).append((own, [plan for _, plan in members]))
        families = self._families()
        for signature, batches in by.items():
            family = families[signature] if signature in families else self._new_family(signature)
            number = self._numbers.setdefault(signature, len(self._numbers))
            for slots, _ in batches:
                self._directory.family[slots] = number
            family.add(batches)

    def _families(self) -> dict[Signature, PairFamily | TupleFamily]:
        return {**self._pairs, **self._multiway}

    def _new_family(self, signature: Signature) -> PairFamily | TupleFamily:
        if len(signature.tables) == 2:
            self._pairs[signature] = PairFamily(signature, self._plans, self._directory)
            return self._pairs[signature]
        self._multiway[signature] = TupleFamily(signature, self._plans, self._directory)
        return self._multiway[signature]

    def _projection(self, query: Query) -> int:
        return self._projections.setdefault(Projection.of(query), len(self._projections))

    def _remove_from_families(self) -> None:
        removed, self._removed = np.concatenate(self._removed), []
        number, names = self._directory.family[removed], list(self._numbers)
        families, emptied = self._families(), False
        for n in np.unique(number).tolist():
            family = families[names[n]]
            emptied |= family.remove(removed[number == n])
            if not len(family):
                self._pairs.pop(names[n], None)
                self._multiway.pop(names[n], None)
                emptied = True
        if emptied:
            self._tables.trim()

    def _needed_orders(self) -> NeededOrders:
        needed: NeededOrders = {}
        for family in self._families().values():
            for table, key, attribute in family.orders():
                needed.setdefault(table, set()).add((key, attribute))
        return needed

    # -- inspection --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        self._update_families()
        return {
            "index": "shared",
            "subscriptions": len(self._plans),
            "signatures": [family.stats() for family in self._families().values()],
            "orders": self._tables.orders(),
        }

    def _check(self) -> None:
        self._update_families()
        self._plans._check()
        self._tables._check()
        for family in self._families().values():
            family._check()
        assert sum(map(len, self._families().values())) == len(self._plans)


def _signature(query: Query, known: dict[Any, Signature]) -> Signature:
    shape = (query.tables, query.joins)
    if shape not in known:
        known[shape] = Signature.of(query)
    return known[shape]


def _with_both_signs(tuples: Tuples, changes: int) -> Mask:
    """By position: does the change both delete and insert joined rows?"""
    deleting, inserting = np.zeros(changes, np.bool_), np.zeros(changes, np.bool_)
    deleting[tuples.position[tuples.sign < 0]] = True
    inserting[tuples.position[tuples.sign > 0]] = True
    return deleting & inserting

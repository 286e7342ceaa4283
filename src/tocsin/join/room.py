"""The join room of the engine: work shared by all subscriptions of a signature, routed row by row.

    subscriptions ─► family, by signature ─► group, by attributes ─► ranges in the structures of its kind
    changed rows  ─► orders of the tables ─► candidates ─► joined rows ─► verified ─► Deltas

Equality joins of two tables take the cheapest plan for each changed row (`router.py`), bands go by hot
groups of differences (`groups.py`), joins of more tables by joined rows (`multiway.py`). Whatever a
subscription says beyond ranges is verified on what they find. Results are those of the scan.

Subscriptions that come and go are only noted; structures follow when the next step begins, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tocsin.join.deltas import Projection, deltas_of
from tocsin.join.family import Family, signed_rows
from tocsin.join.keys import KeySpec
from tocsin.join.members import Homes, Matches
from tocsin.join.multiway import joined_tuples
from tocsin.join.scan import content_of, explain_row
from tocsin.join.shared import SharedOrders
from tocsin.join.signature import Signature
from tocsin.language.algebra import Query
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Rows
from tocsin.model.delta import Deltas
from tocsin.room import Room
from tocsin.store.plans import FlatPlans, PendingPlans
from tocsin.store.step import Step

__all__ = ["JoinRoom"]


class JoinRoom(Room):
    """Joins by slot; cost per change hardly depends on how many there are."""

    name = "join"
    shapes = (Shape.JOIN, Shape.BAND, Shape.MULTIWAY)

    def __init__(self) -> None:
        self._plans = PendingPlans()  # all of them; those that are in no family yet wait
        self._gone: list[Index] = []  # those that are in one still
        self._families: dict[Signature, Family] = {}
        self._numbers: dict[Signature, int] = {}  # of families, also of those that have gone
        self._homes = Homes()
        self._projections: dict[Projection, int] = {}
        self._shared = SharedOrders()

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        self._plans.add(slots, plans)

    def remove(self, slots: Index) -> None:
        in_family = self._plans.is_placed(slots)
        self._plans.remove(slots)
        if in_family.any():
            self._gone.append(slots[in_family])

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(self._plans[slot], step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, place, slot, step)

    def deltas(self, step: Step) -> Deltas:
        self._follow()
        try:
            self._shared.begin(step)
            return Deltas.concat(self._told(step))
        except BaseException:
            self._shared.forget()  # orders may have half of the step
            raise

    def _told(self, step: Step) -> Iterator[Deltas]:
        projections, through = list(self._projections), self._through_trees(step)
        for signature, family in self._families.items():
            several = through.pop(signature, [])
            parts = [found for found in (*family.matches(step, self._shared), *several) if len(found.slot)]
            if parts:
                found = Matches.concat(parts)
                yield deltas_of(found, signature.tables, self._homes.projection, projections, step)

    def _through_trees(self, step: Step) -> dict[Signature, list[Matches]]:
        """Matches of joins of three tables and more, by signature: all set out from a table at once."""
        found: dict[Signature, list[Matches]] = {}
        for table in step.changed:
            walks = {id(w): (w, family) for family in self._families.values() for w in family.walks(table)}
            if not walks:
                continue
            ways, signed = [w for w, _ in walks.values()], signed_rows(step, table)
            for one, tuples in joined_tuples(ways, table, signed, partial(self._shared.table, step=step)):
                family = walks[id(one)][1]
                matches = family.selecting(tuples, step, self._shared)
                found.setdefault(family.signature, []).extend(matches)
        return found

    # -- subscriptions -----------------------------------------------------------------------------

    def _follow(self) -> None:
        """Bring families up to date."""
        if self._gone:
            self._let_go()
        self._take_in()

    def _take_in(self) -> None:
        known: dict[Any, Signature] = {}  # texts that differ in literals share these
        by: dict[Signature, list[tuple[Index, Sequence[Plan] | FlatPlans]]] = {}
        single: dict[Signature, list[tuple[int, Plan]]] = {}
        for slots, plans in self._plans.to_place():
            self._homes.reach(slots)
            if isinstance(plans, FlatPlans):
                self._homes.projection[slots] = self._projection(plans.query)
                by.setdefault(_signature(plans.query, known), []).append((slots, plans))
                continue
            for slot, plan in zip(slots.tolist(), plans, strict=True):
                single.setdefault(_signature(plan.query, known), []).append((slot, plan))
                self._homes.projection[slot] = self._projection(plan.query)
        for signature, members in single.items():
            own = np.array([slot for slot, _ in members], np.int64)
            by.setdefault(signature, []).append((own, [plan for _, plan in members]))
        for signature, batches in by.items():
            if signature not in self._families:
                self._families[signature] = Family(signature, self._plans, self._homes)
            number = self._numbers.setdefault(signature, len(self._numbers))
            for slots, _ in batches:
                self._homes.family[slots] = number
            self._families[signature].add(batches)

    def _projection(self, query: Query) -> int:
        return self._projections.setdefault(Projection.of(query), len(self._projections))

    def _let_go(self) -> None:
        gone, self._gone = np.concatenate(self._gone), []
        number, names = self._homes.family[gone], list(self._numbers)
        emptied = False
        for n in np.unique(number).tolist():
            family = self._families[names[n]]
            emptied |= family.remove(gone[number == n])
            if not len(family):
                del self._families[names[n]]
                emptied = True
        if emptied:
            self._keep_orders()

    def _keep_orders(self) -> None:
        wanted: dict[str, set[tuple[KeySpec, str | None]]] = {}
        for family in self._families.values():
            for table, key, attribute in family.orders():
                wanted.setdefault(table, set()).add((key, attribute))
        self._shared.keep(wanted)

    # -- looking at it -----------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        self._follow()
        return {
            "index": "routed",
            "subscriptions": len(self._plans),
            "signatures": [family.stats() for family in self._families.values()],
            "orders": sum(len(table.orders) for table in self._shared.tables.values()),
        }

    def _check(self) -> None:
        self._follow()
        self._plans._check()
        self._shared._check()
        for family in self._families.values():
            family._check()
        assert sum(map(len, self._families.values())) == len(self._plans)


def _signature(query: Query, known: dict[Any, Signature]) -> Signature:
    shape = (query.tables, query.joins)
    if shape not in known:
        known[shape] = Signature.of(query)
    return known[shape]

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
from typing import Any

import numpy as np

from tocsin.join.base import JoinIndex
from tocsin.join.family import Family
from tocsin.join.keys import KeySpec
from tocsin.join.members import Matches
from tocsin.join.scan import Scan
from tocsin.join.shared import SharedOrders
from tocsin.join.signature import Signature
from tocsin.join.tell import Projection, deltas_of, in_order
from tocsin.language.shape import Plan
from tocsin.model.columns import Rows, longer
from tocsin.model.delta import Deltas
from tocsin.store.step import Step

__all__ = ["Routed"]


class Routed(JoinIndex):
    """Joins by slot; cost per change hardly depends on how many there are."""

    def __init__(self) -> None:
        self._plans = Scan()  # all of them, for contents
        self._fresh: dict[int, Plan] = {}  # those that are in no family yet
        self._gone: list[int] = []  # those that are in one still
        self._families: dict[Signature, Family] = {}
        self._family_of: dict[int, Signature] = {}
        self._projections: dict[Projection, int] = {}
        self._projection = np.zeros(16, np.int32)  # by slot
        self._shared = SharedOrders()

    def add(self, slots: Sequence[int], plans: Sequence[Plan]) -> None:
        self._plans.add(slots, plans)
        self._fresh.update(zip(slots, plans, strict=True))

    def remove(self, slots: Sequence[int]) -> None:
        self._plans.remove(slots)
        for slot in slots:
            if self._fresh.pop(slot, None) is None:
                self._gone.append(slot)

    def supports(self, plan: Plan) -> bool:
        return self._plans.supports(plan)

    def content(self, slot: int, step: Step) -> Rows:
        return self._plans.content(slot, step)

    def deltas(self, step: Step) -> Deltas:
        self._follow()
        try:
            self._shared.begin(step)
            return in_order(Deltas.concat(self._told(step)))
        except BaseException:
            self._shared.forget()  # orders may have half of the step
            raise

    def _told(self, step: Step) -> Iterator[Deltas]:
        projections = list(self._projections)
        for signature, family in self._families.items():
            parts = [found for found in family.matches(step, self._shared) if len(found.slot)]
            if parts:
                found = Matches.concat(parts)
                yield deltas_of(found, signature.tables, self._projection, projections, step)

    # -- subscriptions -----------------------------------------------------------------------------

    def _follow(self) -> None:
        """Bring families up to date."""
        if self._gone:
            self._let_go()
        if self._fresh:
            self._take_in()

    def _take_in(self) -> None:
        fresh, self._fresh = self._fresh, {}
        top = max(fresh) + 1
        if top > len(self._projection):
            self._projection = longer(self._projection, max(top, 2 * len(self._projection)))
        known: dict[Any, Signature] = {}  # texts that differ in literals share these
        by: dict[Signature, list[int]] = {}
        for slot, plan in fresh.items():
            query = plan.query
            shape = (query.tables, query.joins)
            signature = known.get(shape)
            if signature is None:
                signature = known[shape] = Signature.of(query)
            by.setdefault(signature, []).append(slot)
            self._family_of[slot] = signature
            projection = Projection.of(query)
            self._projection[slot] = self._projections.setdefault(projection, len(self._projections))
        for signature, slots in by.items():
            if signature not in self._families:
                self._families[signature] = Family(signature)
            self._families[signature].add(slots, [fresh[slot] for slot in slots])

    def _let_go(self) -> None:
        gone, self._gone = self._gone, []
        by: dict[Signature, list[int]] = {}
        for slot in gone:
            by.setdefault(self._family_of.pop(slot), []).append(slot)
        emptied = False
        for signature, slots in by.items():
            emptied |= self._families[signature].remove(slots)
            if not len(self._families[signature]):
                del self._families[signature]
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
            "subscriptions": len(self._family_of),
            "signatures": [family.stats() for family in self._families.values()],
            "orders": sum(len(table.orders) for table in self._shared.tables.values()),
        }

    def _check(self) -> None:
        self._follow()
        self._plans._check()
        self._shared._check()
        for family in self._families.values():
            family._check()
        assert sum(map(len, self._families.values())) == len(self._family_of)

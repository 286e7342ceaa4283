"""The room of semi-joins: EXISTS, NOT EXISTS, IN and NOT IN of all subscriptions together.

    a row of the outer table changes ─► subscriptions whose conditions on it hold      a matching index
    a row of an inner table changes  ─► sets of partners, keys with a first partner    partners.py
                                        or without one now ─► rows of the outer table with these keys
    both ─► pairs (subscription, row) ─► partners before and within the step ─► enters, leaves, when

Subscriptions are found by indexes: over the conditions on the outer table, over the filters of sets, and by
set. Bands have no key that partners share; subscriptions with bands are evaluated by the scan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.join.signature import KeySpec
from tocsin.join.tables import JoinTables, NeededOrders
from tocsin.language.algebra import Item
from tocsin.language.shape import Plan, Shape
from tocsin.match.base import unpack
from tocsin.match.index import Auto
from tocsin.match.nested import match_computed
from tocsin.model.columns import Index, Mask, Rows, distinct, longer
from tocsin.model.delta import NO_DELTAS, Deltas, order_of
from tocsin.model.runs import runs
from tocsin.predicate.compile import flatten
from tocsin.predicate.verify import PairVerifier
from tocsin.room import Room
from tocsin.semi.conditions import Partnership, partnerships
from tocsin.semi.keyed import codes_by_row
from tocsin.semi.partners import PartnerKey, PartnerSets, distinct_pairs, rows_of_keys
from tocsin.semi.scan import SemiScan, explain_semi, projected, semi_content
from tocsin.semi.sweep import Crossings, crossings, lifetimes
from tocsin.store.plans import FlatPlans, PlanTable
from tocsin.store.step import Step

__all__ = ["SemiRoom"]

_FEW_USERS = 16  # of a set, which are tried one by one


class _Form(NamedTuple):
    """What subscriptions of a family have in common: the outer table; keys and signs of the conditions."""

    table: str
    conditions: tuple[tuple[KeySpec | None, bool], ...]  # the outer key, negated


class _Family:
    """Subscriptions of one form: their sets of partners by condition, and the users of each set."""

    def __init__(self, form: _Form) -> None:
        self.form = form
        count = len(form.conditions)
        self.sets: dict[int, tuple[int, ...]] = {}  # by slot
        self.users: list[dict[int, dict[int, None]]] = [{} for _ in range(count)]  # by set: slots
        self.own = [PairVerifier() for _ in range(count)]  # conditions on rows that can have partners
        self.index = Auto()  # over the conditions on the outer table
        self.filters = PairVerifier()
        self._column: Index = np.zeros((count, 0), np.int64)  # sets by slot

    def add(self, slots: Sequence[int], plans: Sequence[Plan], sets: Sequence[tuple[int, ...]]) -> None:
        own = np.array(slots, np.int64)
        filters = flatten([plan.filters[0] for plan in plans])
        self.index.add(own, filters)
        self.filters.add(own, filters)
        for n in range(len(self.own)):
            forms = [partnerships(plan)[n].own for plan in plans]
            limited = [i for i, form in enumerate(forms) if not form.always]
            if limited:
                self.own[n].add(own[limited], flatten([forms[i] for i in limited]))
        top = int(own.max()) + 1
        if top > self._column.shape[1]:
            wider = np.zeros((len(self.own), max(64, top, 2 * self._column.shape[1])), np.int64)
            wider[:, : self._column.shape[1]] = self._column
            self._column = wider
        for slot, mine in zip(slots, sets, strict=True):
            self.sets[slot] = mine
            self._column[:, slot] = mine
            for n, number in enumerate(mine):
                self.users[n].setdefault(number, {})[slot] = None

    def remove(self, slot: int) -> tuple[int, ...]:
        """Remove a subscription; the sets it used."""
        one, mine = np.array([slot]), self.sets.pop(slot)
        self.index.remove(one)
        for verifier in (self.filters, *self.own):
            verifier.remove(one)
        for n, number in enumerate(mine):
            users = self.users[n][number]
            del users[slot]
            if not users:
                del self.users[n][number]
        return mine

    def of(self, condition: int, slots: Index) -> Index:
        """The sets of subscriptions, of one condition."""
        found: Index = self._column[condition, slots]
        return found

    def affected(self, condition: int, sets: Index, keys: Index, tables: JoinTables) -> tuple[Index, Index]:
        """Pairs (slot, outer row) that a change of these sets at these keys may concern."""
        table = self.form.table
        number, row = rows_of_keys(table, self.form.conditions[condition][0], keys, tables)
        rows = tables[table].store.rows
        slots, found = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        of_set = sets[number]
        used, which = np.unique(sets, return_inverse=True)
        own = [np.fromiter(self.users[condition].get(s, ()), np.int64) for s in used.tolist()]
        size = np.array([len(mine) for mine in own])
        begin, many = np.cumsum(size) - size, size[which] > _FEW_USERS
        single = np.flatnonzero(~many[number])
        if len(single):
            of = which[number[single]]
            slot = np.concatenate(own)[runs(begin[of], size[of])[1]]
            pair = np.repeat(row[single], size[of])
            holds = self.filters.verify(rows, slot, pair)
            slots.append(slot[holds])
            found.append(pair[holds])
        several = np.flatnonzero(many[number])
        if len(several):
            distinct_rows = distinct(row[several])
            slot, at = unpack(match_computed(self.index, rows.take(distinct_rows)))
            wanted = of_set[several] * len(rows) + row[several]
            matched = self.of(condition, slot) * len(rows) + distinct_rows[at]
            keep = np.isin(matched, wanted)
            slots.append(slot[keep])
            found.append(distinct_rows[at[keep]])
        return np.concatenate(slots), np.concatenate(found)


class SemiRoom(Room):
    """Semi-joins by slot."""

    name = "semi"
    shapes = (Shape.SEMIJOIN,)

    def __init__(self) -> None:
        self._plans = PlanTable(keep=True)
        self._waiting: dict[int, Plan] = {}
        self._families: dict[_Form, _Family] = {}
        self._family: dict[int, _Family] = {}  # by slot; those with bands have none
        self._sets = PartnerSets()
        self.share(JoinTables())
        self._scan = SemiScan()
        self._shown: dict[tuple[tuple[Item, ...], str], int] = {}  # columns of answers, numbered
        self._shown_by: Index = np.zeros(64, np.int64)  # by slot

    def share(self, tables: JoinTables) -> None:
        self._tables = tables
        tables.users.append(self._needed_orders)

    def add(self, slots: Index, plans: Sequence[Plan] | FlatPlans) -> None:
        assert not isinstance(plans, FlatPlans), "templates with subqueries are filled one by one"
        self._plans.add(slots, plans)
        for slot, plan in zip(slots.tolist(), plans, strict=True):
            if any(one.bands for one in partnerships(plan)):
                self._scan.add(np.array([slot]), [plan])
            else:
                self._waiting[slot] = plan

    def remove(self, slots: Index) -> None:
        self._plans.remove(slots)
        emptied = False
        for slot in slots.tolist():
            if slot in self._waiting:
                del self._waiting[slot]
            elif slot not in self._family:
                self._scan.remove(np.array([slot]))
            else:
                family = self._family.pop(slot)
                for number in family.remove(slot):
                    self._sets.release(number)
                if not family.sets:
                    del self._families[family.form]
                    emptied = True
        if emptied:
            self._tables.trim()
        if not self._family and not self._waiting:
            self._shown.clear()

    def _needed_orders(self) -> NeededOrders:
        needed = self._sets.needed_orders()
        for form in self._families:
            needed.setdefault(form.table, set()).update((key, None) for key, _ in form.conditions)
        return needed

    def content(self, slot: int, step: Step) -> Rows:
        return semi_content(self._plans[slot], step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_semi(plan, place, slot, step)

    def drop_relations(self, catalog: Collection[str]) -> None:
        self._sets.drop_tables(catalog)

    # -- steps -------------------------------------------------------------------------------------

    def deltas(self, step: Step) -> Deltas:
        self._place()
        parts = [self._scan.deltas(step)] if len(self._scan) else []
        if self._families:
            try:
                self._tables.begin(step)
                parts += self._found(step)
            except BaseException:
                self._tables.clear()  # orders may contain half of the step
                raise
            finally:
                self._tables.end()
        found = Deltas.concat(parts)
        return step.settled(found) if len(found) else NO_DELTAS

    def _found(self, step: Step) -> Iterator[Deltas]:
        sets, keys = self._sets.touched(step, self._tables)
        if len(sets):
            changes = self._sets.existences(sets, keys, self._tables).changes
            crossed = distinct(changes.owner)
            sets, keys = sets[crossed], keys[crossed]
        for family in self._families.values():
            slots, rows = self._pairs(family, sets, keys, step)
            if len(slots):
                found = self._crossings(family, slots, rows, step)
                if len(found.at):
                    yield from self._deltas(slots, rows, found, step)

    def _pairs(self, family: _Family, sets: Index, keys: Index, step: Step) -> tuple[Index, Index]:
        """The pairs (subscription, outer row) whose place in answers may change."""
        table = family.form.table
        slots, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        if table in step.changed:
            changed = step.changed[table].signed().slot
            slot, row = unpack(match_computed(family.index, step.tables[table].rows.take(changed)))
            slots.append(slot)
            rows.append(changed[row])
        for n, users in enumerate(family.users):
            mine = np.array([number in users for number in sets.tolist()], np.bool_)
            if mine.any():
                slot, row = family.affected(n, sets[mine], keys[mine], self._tables)
                slots.append(slot)
                rows.append(row)
        return distinct_pairs(np.concatenate(slots), np.concatenate(rows))

    def _crossings(self, family: _Family, slots: Index, rows: Index, step: Step) -> Crossings:
        """When pairs enter and leave answers."""
        store, count = step.tables[family.form.table], len(slots)
        start, *events = lifetimes(np.arange(count), store.born[rows], store.died[rows], count)
        all_events = [events]
        for n, (key, negated) in enumerate(family.form.conditions):
            codes = codes_by_row(self._tables[family.form.table], key)
            can = codes.valid[rows] & family.own[n].verify(store.rows, slots, rows)
            some = np.flatnonzero(can)
            before, *changes = self._partner_times(family.of(n, slots[some]), codes.code[rows[some]])
            has = np.zeros(count, np.bool_)
            has[some] = before
            start = start + (has != negated)
            sign = changes[2] if not negated else -changes[2]
            all_events.append([some[changes[0]], changes[1], sign])
        owner, at, change = (np.concatenate(part) for part in zip(*all_events, strict=True))
        return crossings(start, 1 + len(family.form.conditions), owner, at, change)

    def _partner_times(self, sets: Index, keys: Index) -> tuple[Mask, Index, Index, Index]:
        """By pair: whether there is a partner before the step; and (pair, position, sign) of changes."""
        order = order_of([sets, keys])
        fresh = np.ones(len(order), np.bool_)
        first, second = sets[order], keys[order]
        fresh[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        owner = np.empty(len(order), np.int64)
        owner[order] = np.cumsum(fresh) - 1
        found = self._sets.existences(first[fresh], second[fresh], self._tables)
        changes, count = found.changes, int(fresh.sum())
        by = np.argsort(changes.owner, kind="stable")
        each = np.bincount(changes.owner, minlength=count)
        pair, place = runs((np.cumsum(each) - each)[owner], each[owner])
        at = by[place]
        return found.before[owner], pair, changes.at[at], changes.sign[at].astype(np.int64)

    def _deltas(self, slots: Index, rows: Index, found: Crossings, step: Step) -> Iterator[Deltas]:
        """Deltas of the pairs that enter or leave, by the columns that their answers show."""
        slot, row = slots[found.owner], rows[found.owner]
        shown = self._shown_by[slot]
        for form in np.flatnonzero(np.bincount(shown)).tolist():
            mine = np.flatnonzero(shown == form)
            used, at = np.unique(row[mine], return_inverse=True)
            answer = projected(self._plans[int(slot[mine[0]])], used, step)
            deltas = Deltas.of(step.seq[found.at[mine]], slot[mine], found.sign[mine], answer, at)
            sign = found.sign[mine]
            both = bool((sign > 0).any() and (sign < 0).any())
            yield deltas.consolidate() if both else deltas

    # -- subscriptions -----------------------------------------------------------------------------

    def _place(self) -> None:
        """Enter what was added since the last step into families, all at once."""
        waiting, self._waiting = self._waiting, {}
        by: dict[_Form, list[tuple[int, Plan, tuple[Partnership, ...]]]] = {}
        for slot, plan in waiting.items():
            conditions = partnerships(plan)
            form = _Form(plan.query.tables[0].name, tuple((c.keys[0], c.negated) for c in conditions))
            by.setdefault(form, []).append((slot, plan, conditions))
        for form, members in by.items():
            family = self._families.setdefault(form, _Family(form))
            sets = [tuple(self._set_of(plan, one) for one in conditions) for _, plan, conditions in members]
            family.add([slot for slot, _, _ in members], [plan for _, plan, _ in members], sets)
            self._family.update((slot, family) for slot, _, _ in members)
            self._number_shown([(slot, plan) for slot, plan, _ in members])
        self._sets.place()

    def _number_shown(self, members: Sequence[tuple[int, Plan]]) -> None:
        """Subscriptions that show the same columns have one number."""
        top = max(slot for slot, _ in members) + 1
        if top > len(self._shown_by):
            self._shown_by = longer(self._shown_by, max(top, 2 * len(self._shown_by)))
        for slot, plan in members:
            key = plan.query.items, plan.query.tables[0].alias
            self._shown_by[slot] = self._shown.setdefault(key, len(self._shown))

    def _set_of(self, plan: Plan, one: Partnership) -> int:
        table = plan.query.tables[one.place].name
        return self._sets.use(PartnerKey(table, one.keys[1], one.filter))

    # -- inspection --------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        self._place()
        return {
            "index": "shared",
            "subscriptions": len(self._plans),
            "families": len(self._families),
            "one_by_one": len(self._scan),
            "orders": self._tables.orders(),
            **self._sets.stats(),
        }

    def _check(self) -> None:
        self._place()
        self._plans._check()
        self._sets._check()
        self._tables._check()
        self._scan._check()
        assert len(self._family) + len(self._scan) == len(self._plans)
        for family in self._families.values():
            family.index._check()
            assert family.index.stats()["subscriptions"] == len(family.sets)
            for slot, mine in family.sets.items():
                assert tuple(family._column[:, slot].tolist()) == mine
                assert all(slot in family.users[n][number] for n, number in enumerate(mine))

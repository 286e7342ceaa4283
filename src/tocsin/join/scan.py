"""The plain way to join: each subscription joins the changed rows with the other tables.

The delta of a join is, table by table, the changed rows of that table joined with all the
others. Where a query names one table twice, places before the changed one are read as of
after the change, places behind it as of before it, so that no pair is emitted twice:

    d(R x R)  =  dR x R(before)  +  R(after) x dR

Since every version of a row knows when it lived (`store/tables.py`), a whole batch goes
through at once: join first, then keep the pairs that were alive at the change's position.

Candidates: with equalities, the rows of a table in order of its join key, probed by binary search; sorted
once per step and key if the table changes in it, else once until it changes. With bands alone, every pair.
The smallest table comes next. Verification: the bands. Keys compare exactly and across types: 1 joins 1.0, a
date joins its midnight, NaN joins NaN; NULL joins nothing.

O(subscriptions x (changed rows + join results)) plus one sort per changed table and join key.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tocsin.language.algebra import JOINT, Band, Column, Equal, atoms, joint_name
from tocsin.language.shape import Plan, Shape
from tocsin.model.columns import Index, Mask, Rows, Vector, column_codes, double_codes
from tocsin.model.delta import Deltas
from tocsin.model.schema import Type
from tocsin.predicate.codes import LEAST, interval
from tocsin.predicate.evaluate import Facts
from tocsin.room import ScanRoom
from tocsin.store.step import Step
from tocsin.store.tables import FOREVER, TableStore

__all__ = ["JoinKeyOrder", "JoinScan", "all_pairs", "band_holds", "content_of", "explain_row", "joined_rows"]


_DAY = 86_400_000_000
_PAIRS_AT_ONCE = 1 << 22


class PartialJoin(NamedTuple):
    """Joined so far: the slot in each table (by its place in FROM), and the change it comes from."""

    slots: dict[int, Index]
    position: Index
    sign: NDArray[np.int8]

    def take(self, index: Index | Mask) -> PartialJoin:
        return PartialJoin(
            {t: s[index] for t, s in self.slots.items()}, self.position[index], self.sign[index]
        )


class JoinScan(ScanRoom):
    """Joins each plan by itself."""

    name = "join"
    shapes = (Shape.JOIN, Shape.BAND, Shape.MULTIWAY)

    def __init__(self) -> None:
        super().__init__()
        self._orders = _KeptOrders()

    def remove(self, slots: Index) -> None:
        super().remove(slots)
        self._orders = _KeptOrders()

    def deltas(self, step: Step) -> Deltas:
        self._orders.lend(step)
        found = Deltas.concat(self._deltas(slot, plan, step) for slot, plan in self._plans.items())
        self._orders.keep(step)
        return found.consolidate()

    def content(self, slot: int, step: Step) -> Rows:
        return content_of(self._plans[slot], step)

    def explain(self, plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
        return explain_row(plan, place, slot, step)

    def _deltas(self, slot: int, plan: Plan, step: Step) -> Deltas:
        parts = []
        for place, table in enumerate(plan.query.tables):
            if table.name in step.changed:
                signed = step.changed[table.name].signed()
                mine = _selected(plan, place, step)[signed.slot]
                if mine.any():
                    start = PartialJoin({place: signed.slot[mine]}, signed.position[mine], signed.sign[mine])
                    parts.append(_joined(plan, start, place, step))
        if not any(len(part.sign) for part in parts):
            return Deltas.none()
        places = range(len(plan.query.tables))
        whole = PartialJoin(
            {place: np.concatenate([part.slots[place] for part in parts]) for place in places},
            np.concatenate([part.position for part in parts]),
            np.concatenate([part.sign for part in parts]),
        )
        whole = whole.take(_residual(plan, whole, step))
        rows = _projected(plan, whole, step)
        return Deltas.of(step.seq[whole.position], slot, whole.sign, rows, np.arange(len(whole.sign)))


_ORDER = "key order"  # of what a step computes once


class _KeptOrders:
    """Orders of tables by join keys, as long as these do not change."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[TableStore, int, JoinKeyOrder]] = {}  # with the table's commits

    def lend(self, step: Step) -> None:
        """A step need not make those of tables that have not changed since."""
        for key, (store, commits, order) in self._known.items():
            table = key[1]
            if table not in step.changed and step.tables.get(table) is store and store.commits == commits:
                step.memo.setdefault(key, order)

    def keep(self, step: Step) -> None:
        """Keep those that a step has made, of tables that it does not change."""
        for key, made in step.memo.items():
            if isinstance(made, JoinKeyOrder) and key[1] not in step.changed:
                store = step.tables[key[1]]
                self._known[key] = store, store.commits, made


def content_of(plan: Plan, step: Step) -> Rows:
    """The whole answer of a plan."""
    alive = step.tables[plan.query.tables[0].name].alive()
    alive = alive[_selected(plan, 0, step)[alive]]
    start = PartialJoin({0: alive}, np.full(len(alive), FOREVER), np.ones(len(alive), np.int8))
    return _answer(plan, _joined(plan, start, 0, step), step)


def joined_rows(plan: Plan, place: int, position: Index, step: Step) -> tuple[Index, Rows]:
    """The answer with each row of the table at `place`, at its position: the row's number, the joined row."""
    mine = np.flatnonzero(_selected(plan, place, step))
    start = PartialJoin({place: mine}, position[mine], np.ones(len(mine), np.int8))
    found = _joined(plan, start, place, step)
    found = found.take(_residual(plan, found, step))
    return found.slots[place], _projected(plan, found, step)


def _joined(plan: Plan, start: PartialJoin, origin: int, step: Step) -> PartialJoin:
    """Extend partial results from the changed table over the whole join tree."""
    partial, left = start, set(range(len(plan.query.tables))) - {origin}
    while left:
        place, conditions = _next_place(plan, partial, left, step)
        left.remove(place)
        if not len(partial.sign):  # nothing to extend: keep the shape of the result
            partial = partial._replace(slots={**partial.slots, place: np.empty(0, np.int64)})
            continue
        partial = _extended(plan, partial, place, conditions, step)
        partial = partial.take(_was_alive(plan, partial, place, origin, step))
    return partial


def _next_place(
    plan: Plan, partial: PartialJoin, left: set[int], step: Step
) -> tuple[int, list[Equal | Band]]:
    """The smallest table that joins with what is joined already, and by which conditions."""
    by_size = sorted(left, key=lambda place: (len(step.tables[plan.query.tables[place].name]), place))
    return next((p, found) for p in by_size if (found := _conditions(plan, partial.slots.keys(), p)))


def _conditions(plan: Plan, done: Any, place: int) -> list[Equal | Band]:
    """The join conditions between one table and those joined already."""
    aliases = {plan.query.tables[p].alias for p in done}
    mine = plan.query.tables[place].alias
    return [
        join
        for join in plan.query.joins
        if {join.left.relation, join.right.relation} <= aliases | {mine}
        and mine in (join.left.relation, join.right.relation)
    ]


def _extended(
    plan: Plan,
    partial: PartialJoin,
    place: int,
    conditions: list[Equal | Band],
    step: Step,
    everything: bool = False,
) -> PartialJoin:
    """Every partial result with every row of the next table that satisfies the join conditions.

    Rows must pass the subscription's conditions on that table too, unless `everything` is set.
    """
    table, mine = plan.query.tables[place].name, plan.query.tables[place].alias
    store = step.tables[table]
    selected = np.ones(len(store.rows), np.bool_) if everything else _selected(plan, place, step)
    equalities = [c for c in conditions if isinstance(c, Equal)]
    bands = [c for c in conditions if isinstance(c, Band)]
    if equalities:
        own = [e.left if e.left.relation == mine else e.right for e in equalities]
        other = [e.right if e.left.relation == mine else e.left for e in equalities]
        names = tuple(column.name for column in own)
        order = step.once(
            (_ORDER, table, names),
            lambda: JoinKeyOrder.of([store.rows.vectors(name)[0] for name in names], store.present()),
        )
        chunks: Any = [order.probe([_values(plan, partial, column, step) for column in other])]
    else:
        chunks = all_pairs(len(partial.sign), np.flatnonzero(selected & store.present()))
    found = []
    for probing, slot in chunks:
        keep = selected[slot]
        grown = partial.take(probing[keep])
        grown.slots[place] = slot[keep]
        found.append(grown.take(_bands_hold(plan, grown, bands, step)) if bands else grown)
    return found[0] if len(found) == 1 else _concat(found, [*partial.slots, place])


def _concat(parts: list[PartialJoin], places: list[int]) -> PartialJoin:
    empty = np.empty(0, np.int64)
    return PartialJoin(
        {p: np.concatenate([empty, *(part.slots[p] for part in parts)]) for p in places},
        np.concatenate([empty, *(part.position for part in parts)]),
        np.concatenate([empty.astype(np.int8), *(part.sign for part in parts)]),
    )


def _bands_hold(plan: Plan, partial: PartialJoin, bands: list[Band], step: Step) -> Mask:
    def holds(band: Band) -> Mask:
        return band_holds(
            band, _values(plan, partial, band.left, step), _values(plan, partial, band.right, step)
        )

    return np.logical_and.reduce([holds(band) for band in bands])


def _was_alive(plan: Plan, partial: PartialJoin, place: int, origin: int, step: Step) -> Mask:
    """Whether the row joined at `place` lived: after the change before the origin, before it behind."""
    store, slot, at = step.tables[plan.query.tables[place].name], partial.slots[place], partial.position
    born, died = store.born[slot], store.died[slot]
    return (born <= at) & (at < died) if place < origin else (born < at) & (at <= died)


def _selected(plan: Plan, place: int, step: Step) -> Mask:
    """Slots of a table that pass the subscription's own conditions on it."""
    return step.selected(plan.query.tables[place].name, plan.filters[place])


def _values(plan: Plan, partial: PartialJoin, column: Column, step: Step) -> Any:
    place = next(p for p, table in enumerate(plan.query.tables) if table.alias == column.relation)
    vector = step.tables[plan.query.tables[place].name].rows.vectors(column.name)[0]
    return vector.take(partial.slots[place])


def _residual(plan: Plan, partial: PartialJoin, step: Step) -> Mask:
    """Conditions that concern several tables at once, over the joined rows."""
    if plan.residual is None:
        return np.ones(len(partial.sign), np.bool_)
    used = dict.fromkeys(part for atom in atoms(plan.residual.predicate) for part in atom.column.parts)
    columns = [(_joined_name(column), _values(plan, partial, column, step)) for column in used]
    return Facts(Rows(columns, len(partial.sign)), name=_joined_name).matches(plan.residual)


def _joined_name(column: Column) -> str:
    return column.name if column.relation == JOINT else joint_name(column)


def _answer(plan: Plan, partial: PartialJoin, step: Step) -> Rows:
    return _projected(plan, partial.take(_residual(plan, partial, step)), step)


def _projected(plan: Plan, partial: PartialJoin, step: Step) -> Rows:
    columns = [
        (item.name, _values(plan, partial, item.expression, step))
        for item in plan.query.items
        if isinstance(item.expression, Column)
    ]
    return Rows(columns, len(partial.sign))


# -- explanations ----------------------------------------------------------------------------------


def explain_row(plan: Plan, place: int, slot: int, step: Step) -> tuple[bool, tuple[str, ...]]:
    """Whether joined rows of the answer have the row in `slot` at `place`; notes count partners by table."""
    notes = []
    for other, joined, passing in _partners(plan, place, slot, step):
        alias = plan.query.tables[other].alias
        notes.append(f"{alias}: {_count(joined, 'row')} joined, {passing} of them satisfy its conditions")
    results = len(_answer(plan, _joined(plan, _single(place, slot), place, step), step))
    notes.append(f"{_count(results, 'joined row')} in the answer because of it")
    return results > 0, tuple(notes)


def _partners(plan: Plan, place: int, slot: int, step: Step) -> Iterator[tuple[int, int, int]]:
    """From the row in `slot` through the join tree, table by table: (place, joined, passing its filter).

    A table joins with what passed so far; where nothing passes, the walk ends.
    """
    partial, left = _single(place, slot), set(range(len(plan.query.tables))) - {place}
    while left and len(partial.sign):
        other, conditions = _next_place(plan, partial, left, step)
        left.remove(other)
        partial = _extended(plan, partial, other, conditions, step, everything=True)
        partial = partial.take(_was_alive(plan, partial, other, place, step))
        passing = _selected(plan, other, step)[partial.slots[other]]
        yield other, len(passing), int(passing.sum())
        partial = partial.take(passing)


def _single(place: int, slot: int) -> PartialJoin:
    return PartialJoin({place: np.array([slot])}, np.array([FOREVER]), np.ones(1, np.int8))


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


# -- which rows of a table join given rows of another ------------------------------------------------


@dataclass(frozen=True)
class JoinKeyOrder:
    """Rows of a table in order of a (composite) join key.

    Column after column, the rank of the columns so far and the rank of the next one are a pair,
    and `pairs` knows the distinct pairs: their rank goes on. The last rank is the row's key.
    `sorted_keys[i]` is the key of row `order[i]`; rows with a NULL in the key are left out.
    """

    columns: tuple[KeyColumn, ...]
    pairs: tuple[Index, ...]
    order: Index
    sorted_keys: Index

    @classmethod
    def of(cls, vectors: Sequence[Vector], present: Mask) -> JoinKeyOrder:
        columns = tuple(KeyColumn.of(vector, present) for vector in vectors)
        key, pairs = np.where(present, 0, -1), []
        for column, vector in zip(columns, vectors, strict=True):
            pair = _pair(key, column, vector)
            pairs.append(np.unique(pair[pair >= 0]))
            key = _rank(pairs[-1], pair)
        rows = np.flatnonzero(key >= 0)
        order = rows[np.argsort(key[rows], kind="stable")]
        return cls(columns, tuple(pairs), order, key[order])

    def probe(self, vectors: Sequence[Vector]) -> tuple[Index, Index]:
        """All (probing row, row of the table) with equal keys."""
        key = np.zeros(len(vectors[0]), np.int64)
        for column, pairs, vector in zip(self.columns, self.pairs, vectors, strict=True):
            key = _rank(pairs, _pair(key, column, vector))
        low = np.searchsorted(self.sorted_keys, key, side="left")
        high = np.searchsorted(self.sorted_keys, key, side="right")
        count = np.where(key >= 0, high - low, 0)
        probing = np.repeat(np.arange(len(key)), count)
        within = np.arange(len(probing)) - np.repeat(np.cumsum(count) - count, count)
        return probing, self.order[np.repeat(low, count) + within]


@dataclass(frozen=True)
class KeyColumn:
    """The distinct values of one key column, to rank values of either side of a join in."""

    type: Type
    values: Any  # sorted codes, or distinct texts

    @classmethod
    def of(cls, vector: Vector, present: Mask) -> KeyColumn:
        here = vector.take(np.flatnonzero(present & vector.valid))
        if vector.type is Type.STRING:
            return cls(vector.type, pc.unique(pa.array(here.values, pa.string())))
        return cls(vector.type, np.unique(column_codes(here)))

    def __len__(self) -> int:
        return len(self.values)

    def rank(self, vector: Vector) -> Index:
        """The rank of each value, -1 where it is not among them or NULL."""
        if self.type is Type.STRING:
            found = pc.index_in(pa.array(vector.values, pa.string()), value_set=self.values)
            rank = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
            return np.where(vector.valid, rank, -1)
        codes, exact = _as_type(vector, self.type)
        return np.where(exact & vector.valid, _rank(self.values, codes), -1)


def _pair(key: Index, column: KeyColumn, vector: Vector) -> Index:
    rank = column.rank(vector)
    return np.where((rank >= 0) & (key >= 0), key * max(1, len(column)) + rank, -1)


def _rank(values: Index, wanted: Index) -> Index:
    """The place of each wanted value among sorted distinct ones, -1 where it is not there."""
    rank = np.searchsorted(values, wanted)
    inside = rank < len(values)
    inside[inside] = values[rank[inside]] == wanted[inside]
    return np.where(inside, rank, -1)


def _as_type(vector: Vector, type: Type) -> tuple[Index, Mask]:
    """Codes of the values as values of another type of the kind, and where that is exact."""
    every = np.ones(len(vector), np.bool_)
    if vector.type is type:
        return column_codes(vector), every
    if vector.type.is_decimal or type.is_decimal:
        return _as_decimal(vector, type)
    if type is Type.DOUBLE:
        near = vector.values.astype(np.float64)
        back, inside = _integers(near)
        return double_codes(near), inside & (back == vector.values)
    if type is Type.BIGINT:
        return _integers(vector.values)
    if type is Type.TIMESTAMP:
        return vector.values * _DAY, every
    return vector.values // _DAY, vector.values % _DAY == 0


def _as_decimal(vector: Vector, type: Type) -> tuple[Index, Mask]:
    """Numbers as values of another type, of which one is a DECIMAL: one by one, as exact fractions."""
    codes, exact = np.zeros(len(vector), np.int64), np.zeros(len(vector), np.bool_)
    for at, value in enumerate(vector.to_list()):
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            continue
        if type is Type.DOUBLE:
            near = float(value)
            codes[at], exact[at] = double_codes(np.array([near]))[0], Fraction(value) == Fraction(near)
            continue
        units = Fraction(value) * 10**type.scale
        if units.denominator == 1 and -(2**63) <= units < 2**63:
            codes[at], exact[at] = int(units), True
    return codes, exact


def _integers(values: NDArray[np.float64]) -> tuple[Index, Mask]:
    """Doubles as integers, and where they are integers; 2^63 and beyond are not int64."""
    inside = (values >= -(2.0**63)) & (values < 2.0**63)
    whole = np.where(inside, values, 0.0).astype(np.int64)
    return whole, inside & (whole.astype(np.float64) == values)


def all_pairs(left: int, right: Index) -> Any:
    """Every pair of a left row number and a right slot, in chunks of bounded size."""
    chunk = max(1, _PAIRS_AT_ONCE // max(1, len(right)))
    for start in range(0, left, chunk):
        count = min(chunk, left - start)
        yield np.repeat(np.arange(start, start + count), len(right)), np.tile(right, count)


def band_holds(band: Band, a: Vector, b: Vector) -> Mask:
    """Row by row, whether `low <= left - right <= high`; NULL on either side fails."""
    holds = a.valid & b.valid
    ends = [(">" if band.low_open else ">=", band.low), ("<" if band.high_open else "<=", band.high)]
    for op, end in ends:
        if end is not None:
            holds &= _compare(a, b, op, end)
    return holds


def _compare(a: Vector, b: Vector, op: str, end: int | float) -> Mask:
    """`a - b op end`: exact for integers and times (microseconds); IEEE where a double takes part.

    Equal values differ by 0, infinities too; NaN is above every number, so NaN - x is above
    and x - NaN below every end.
    """
    if a.type is Type.DOUBLE or b.type is Type.DOUBLE:
        x, y = a.values.astype(np.float64), b.values.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, x - y)
        codes = np.where(np.isnan(y) & ~np.isnan(x), LEAST, double_codes(difference))
        low, high = interval(Type.DOUBLE, op, end)
        return (codes >= low) & (codes <= high)
    i = a.values * _DAY if a.type is Type.DATE else a.values
    j = b.values * _DAY if b.type is Type.DATE else b.values
    codes = i - j
    if (((i ^ j) & (i ^ codes)) < 0).any():  # left int64: go on with integers without bound
        return np.asarray(_UNBOUNDED[op](i.astype(object) - j.astype(object), end), np.bool_)
    low, high = interval(Type.BIGINT, op, end)
    return (codes >= low) & (codes <= high)


_UNBOUNDED = {">": np.greater, ">=": np.greater_equal, "<": np.less, "<=": np.less_equal}

"""A family beside the scan: the same subscriptions and steps, the same deltas and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tocsin.errors import SumOverflow
from tocsin.language.ddl import parse_definitions
from tocsin.language.rewrite import NormalForm
from tocsin.language.shape import plan
from tocsin.language.sql import parse_query
from tocsin.model._kernels import are_ordered
from tocsin.model.change import ChangeBatch
from tocsin.model.delta import Deltas
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.rank.family import FilteredRows, RangeFamily
from tocsin.rank.scan import RankScan
from tocsin.reference import row_key
from tocsin.store.database import Database

__all__ = ["Beside", "scripts"]

TABLE = """CREATE TABLE t (k BIGINT, x BIGINT, n BIGINT, d DOUBLE, s STRING, b BOOLEAN, PRIMARY KEY (k))"""
REST = "k != 3"
_INTEGERS = st.sampled_from([None, 0, 1, -1, 2**53 + 1, 2**62, 2**62, 2**63 - 1, -(2**62), -(2**63)])
_TINY_AND_HUGE = [0.1, 1e308, -1e308, 1.7e308, 5e-324, -5e-324, 1e-300, 2.0**53, 1.0, -0.0]
_DOUBLES = (
    st.sampled_from([None, *_TINY_AND_HUGE])
    | st.sampled_from([None, *_TINY_AND_HUGE, float("nan"), float("inf"), float("-inf")])
    | st.floats(width=64)
)
_ROW = {
    "x": st.sampled_from([None, *range(8), *range(8)]),
    "n": _INTEGERS,
    "d": _DOUBLES,
    "s": st.none() | st.sampled_from(["", "a", "b", "aé"]),
    "b": st.none() | st.booleans(),
}
_KEY = st.integers(0, 7)
_WHOLE = st.tuples(st.just("upsert"), _KEY, st.fixed_dictionaries(_ROW))
_PART = st.tuples(
    st.sampled_from(["upsert", "update", "delete"]), _KEY, st.fixed_dictionaries({}, optional=_ROW)
)
_CHANGE = _WHOLE | _WHOLE | _PART
_END = st.none() | st.integers(-1, 8)
_ADD = st.tuples(st.just("add"), st.lists(st.tuples(_END, _END), min_size=1, max_size=6))
_REMOVE = st.tuples(st.just("remove"), st.integers(0, 99))
_STEP = st.tuples(
    st.sampled_from(["step", "step", "step", "lost"]), st.lists(_CHANGE, min_size=1, max_size=10)
)
scripts = st.tuples(_ADD, st.lists(_ADD | _REMOVE | _STEP | _STEP, min_size=1, max_size=9)).map(
    lambda drawn: [drawn[0], *drawn[1]]
)


class Beside:
    """`select` is the select list of all subscriptions; slots are assigned in no order."""

    def __init__(self, make: Callable[..., RangeFamily], select: str) -> None:
        self.database = Database()
        self.database.define(parse_definitions(TABLE), {})
        self.query = parse_query(f"SELECT {select} FROM t", self.database.catalog)
        self.scan = RankScan()
        self.family = make(FilteredRows("t", "x", self._filter(REST)), self.query)
        self.slots: list[int] = []

    def _filter(self, where: str) -> NormalForm:
        return plan(parse_query(f"SELECT k FROM t WHERE {where}", self.database.catalog)).filters[0]

    def run(self, script: Sequence[tuple[str, Any]]) -> None:
        """A script as drawn."""
        for what, drawn in script:
            if what == "add":
                self.add(drawn)
            elif what == "remove":
                if self.slots:
                    self.remove(self.slots.pop(drawn % len(self.slots)))
            else:
                self.step(drawn, keep=what == "step")
        self.family._check()

    def add(self, ends: Sequence[tuple[int | None, int | None]]) -> None:
        """Subscriptions to ranges, open where an end is None."""
        slots, low, high = [], [], []
        for a, z in ends:
            if a is not None and z is not None and a > z:
                a, z = z, a
            slot = (7 * (len(self.slots) + len(slots)) + 5) % 1009
            if slot in self.slots:
                continue
            above = "x >= -99" if a is None else f"x >= {a}"
            where = f"{above} AND {REST}" + ("" if z is None else f" AND x <= {z}")
            items = str(self.query).removeprefix("SELECT ").removesuffix(" FROM t")
            query = parse_query(f"SELECT {items} FROM t WHERE {where}", self.database.catalog)
            self.scan.add(np.array([slot]), [plan(query)])
            slots.append(slot)
            low.append(LEAST if a is None else a)
            high.append(GREATEST if z is None else z)
        if slots:
            self.slots += slots
            self.family.add(np.array(slots), np.array(low), np.array(high), self.query)
            assert len(self.family) == len(self.slots)

    def remove(self, slot: int) -> None:
        self.scan.remove(np.array([slot]))
        self.family.remove(np.array([slot]))

    def step(self, changes: Sequence[tuple[str, int, dict[str, Any]]], *, keep: bool) -> None:
        """Apply possible changes: both emit the same deltas. Commit the step, or roll it back."""
        ops, rows = [op for op, _, _ in changes], [{"k": key, **row} for _, key, row in changes]
        batch, bad = ChangeBatch.from_dicts(self.database.catalog["t"], rows, ops)
        step = self.database.stage({"t": batch.or_raise(bad)}, {})
        if step.changed:
            deltas, wanted = (
                _outcome(lambda room=room: room.deltas(step)) for room in (self.family, self.scan)
            )
            assert deltas == wanted
            keep = keep and not isinstance(deltas, tuple)
        if keep:
            self.database.commit()
        else:
            self.database.rollback()


def _outcome(work: Callable[[], Deltas]) -> Any:
    """Deltas as a bag, or what went wrong."""
    try:
        deltas = work()
    except SumOverflow as error:
        return error.slot, error.fact
    assert are_ordered(deltas.seq, deltas.subscription, deltas.sign)
    return Counter((d.seq, d.subscription, d.sign, row_key(d.row)) for d in deltas)

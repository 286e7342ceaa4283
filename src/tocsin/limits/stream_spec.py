"""What subscriptions must have in common to share one buffer: a join of two streams, without its conditions.

Two rows join if their keys are equal and `low <= t1 - t0 <= high`, by one of three clocks:

    arrival   window = '10 minutes'                     t: the engine's clock, which never goes back here
    event     a band on times, or a window with `late`  t: a TIMESTAMP or DATE column
    seq       memory alone                              t: the number of the event; any difference

A row of side 0 expires when the clock passes t0 + high, one of side 1 when it passes t1 - low. The clock of
event time is the latest time seen, minus `late`.

>>> from tocsin.language.algebra import Equal, Item, TableRef
>>> from tocsin.language.options import Options
>>> from tocsin.model.schema import Type
>>> k, l = Column("k", Type.BIGINT, "a"), Column("k", Type.BIGINT, "b")
>>> query = Query((Item(k, "k"),), (TableRef("s", "a", True), TableRef("t", "b", True)), (Equal(k, l),))
>>> print(StreamJoinSpec.of(replace(query, options=Options(window=60_000_000, memory=Budget(9, rows=True)))))
s, t: 0.k = 1.k; arrival within 1 minute; memory 9 rows, heeb
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tocsin.join.signature import KeySpec, Signature, places_of
from tocsin.language.algebra import Band, Column, Query
from tocsin.language.options import Budget, print_span
from tocsin.limits.join_keys import NEVER

__all__ = ["DEFAULT_POLICY", "JoinTiming", "StreamJoinSpec", "with_ends"]

DEFAULT_POLICY = "heeb"


class JoinTiming(NamedTuple):
    """Which differences of times join, in microseconds; an end of NEVER is open."""

    clock: str  # arrival, event, seq
    low: int = -NEVER
    high: int = NEVER
    late: int = 0
    columns: tuple[str, str] | None = None  # of event time, by place
    time: tuple[str, str] | None = None  # the option `time` by place, of a window over event time

    def reach(self, side: int) -> int:
        """How long after its time a row has partners."""
        return self.high if side == 0 else -self.low

    def __str__(self) -> str:
        if self.clock == "seq":
            return "any time"
        if self.columns is None:
            text = f"{self.clock} within {print_span(self.high)}"
        else:
            ends = ["" if abs(end) == NEVER else f"{end / 1e6:g} s" for end in (self.low, self.high)]
            text = f"{ends[0]} <= 1.{self.columns[1]} - 0.{self.columns[0]} <= {ends[1]}"
        return text + (f", late {print_span(self.late)}" if self.late else "")


class StreamJoinSpec(NamedTuple):
    """A join of two streams."""

    signature: Signature
    timing: JoinTiming
    bands: tuple[Band, ...]  # checked pair by pair; relations are places
    budget: Budget | None
    policy: str
    alpha: float | str | None

    @classmethod
    def of(cls, query: Query, shares: int = 1) -> StreamJoinSpec:
        """Of a query; it has one of so many shares of the budget."""
        options, signature = query.options, Signature.of(query)
        bands = [join for join in query.joins if isinstance(join, Band)]
        timing = _window(query)
        if timing is None:
            band = next((b for b in bands if b.bounds_time), next((b for b in bands if b.timed), None))
            timing = JoinTiming("seq") if band is None else _banded(query, band)
            bands = [other for other in bands if other is not band]
        budget = options.memory
        if budget is not None:
            budget = replace(budget, amount=budget.amount // shares)
        policy = (options.policy or DEFAULT_POLICY) if budget is not None else ""
        placed = tuple(_placed(band, query) for band in bands)
        return cls(signature, timing, placed, budget, policy, options.alpha)

    @property
    def streams(self) -> tuple[str, str]:
        return self.signature.tables[0], self.signature.tables[1]

    @property
    def keys(self) -> tuple[KeySpec, KeySpec]:
        return self.signature.edges[0].keys

    def __str__(self) -> str:
        edge = self.signature.edges[0]
        parts = [f"{', '.join(self.streams)}: {edge}", str(self.timing), *map(str, self.bands)]
        if self.budget is not None:
            alpha = "" if self.alpha is None else f", alpha {self.alpha!r}"
            parts.append(f"memory {self.budget}, {self.policy}{alpha}")
        return "; ".join(parts)


def with_ends(query: Query, ends: Sequence[tuple[float | None, float | None]]) -> Query:
    """The query of a template with the ends of its bands, in order."""
    left, joins = list(ends), []
    for join in query.joins:
        if isinstance(join, Band):
            low, high = left.pop(0)
            join = replace(join, low=low, high=high)
        joins.append(join)
    return replace(query, joins=tuple(joins))


def _window(query: Query) -> JoinTiming | None:
    span, options = query.options.window, query.options
    if span is None:
        return None
    if options.late is None and options.time is None:
        return JoinTiming("arrival", -span, span)
    names = [name.strip().replace("`", "") for name in (options.time or "").split(",") if name.strip()]
    bare, own = ", ".join(name for name in names if "." not in name), []
    for table in query.tables:
        mine = [n.partition(".")[2] for n in names if n.partition(".")[0].lower() == table.alias.lower()]
        own.append(", ".join(mine) or bare)
    return JoinTiming("event", -span, span, options.late or 0, None, (own[0], own[1]))


def _banded(query: Query, band: Band) -> JoinTiming:
    """The band as `low <= t1 - t0 <= high`."""
    places = places_of(query)
    low = -NEVER if band.low is None else math.floor(band.low) + 1 if band.low_open else math.ceil(band.low)
    high = (
        NEVER if band.high is None else math.ceil(band.high) - 1 if band.high_open else math.floor(band.high)
    )
    low, high = max(low, -NEVER), min(high, NEVER)
    columns = band.left, band.right
    if places[band.left.relation] == 0:
        low, high = -high, -low
    else:
        columns = band.right, band.left
    return JoinTiming("event", low, high, query.options.late or 0, (columns[0].name, columns[1].name))


def _placed(band: Band, query: Query) -> Band:
    places = places_of(query)

    def placed(column: Column) -> Column:
        return replace(column, relation=str(places[column.relation]))

    return replace(band, left=placed(band.left), right=placed(band.right))

"""Small joins drawn at random, and what is right for them, by brute force."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tocsin.join.strategies.base import JoinKind, Ranges

LEAST, MOST = -(2**63), 2**63 - 1
_codes = st.integers(-8, 8)


class Query(NamedTuple):
    """Ranges as a change in R sees them."""

    low: int
    high: int
    own_low: int
    own_high: int


@st.composite
def _range(draw: st.DrawFn, most: int = 8) -> tuple[int, int]:
    low = draw(_codes)
    high = low + draw(st.integers(0, most))
    open_ends = draw(st.sampled_from(["", "", "", "low", "high", "both"]))
    return (LEAST if open_ends in ("low", "both") else low), (MOST if open_ends in ("high", "both") else high)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    return Query(*draw(_range()), *draw(_range()))


rows = st.tuples(st.integers(-3, 3), _codes)  # key, value: few, so that there are ties and equal rows
spread = st.tuples(st.integers(-12, 12), _codes)


@st.composite
def many_queries(draw: st.DrawFn) -> list[Query]:
    """Sometimes more than are scanned without an order."""
    some = draw(st.lists(queries(), max_size=12))
    return some * draw(st.sampled_from([1, 1, 15]))


@dataclass
class Model:
    """Tables and queries as plain lists."""

    kind: JoinKind
    tables: tuple[dict[int, tuple[int, int]], dict[int, tuple[int, int]]] = field(
        default_factory=lambda: ({}, {})
    )
    queries: dict[int, Query] = field(default_factory=dict)

    def joins(self, side: int, key: int, value: int, query: Query) -> list[int]:
        """Rows of the other table that join a row, for one query."""
        low, high, own_low, own_high = query
        if self.kind is JoinKind.EQUALITY:
            if side == 1:
                low, high, own_low, own_high = own_low, own_high, low, high
            if not own_low <= value <= own_high:
                return []
            return [n for n, (k, v) in self.tables[1 - side].items() if k == key and low <= v <= high]
        sign = 1 if side == 0 else -1
        return [n for n, (k, _) in self.tables[1 - side].items() if low <= sign * (k - key) <= high]

    def affected(self, side: int, key: int, value: int) -> list[int]:
        return sorted(s for s, query in self.queries.items() if self.joins(side, key, value, query))

    def results(self, side: int, key: int, value: int) -> list[tuple[int, int]]:
        return sorted(
            (s, row) for s, query in self.queries.items() for row in self.joins(side, key, value, query)
        )


def as_ranges(drawn: list[Query]) -> Ranges:
    return Ranges(*np.array(drawn, np.int64).reshape(-1, 4).T.copy())

"""Columns of predicates: by column and row by row they make the same filters, and the same errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tocsin.language.predicates import OPERATORS, row_conditions
from tocsin.language.sql import parse_definitions
from tocsin.match.base import unpack
from tocsin.match.scan import Scan
from tocsin.model.change import ChangeBatch
from tocsin.model.schema import Stream
from tocsin.predicate.columnar import flat_predicates
from tocsin.reference import holds

OPEN, TYPED = (
    d
    for d in parse_definitions(
        "CREATE STREAM loose; CREATE STREAM hits (page STRING, ms BIGINT, load DOUBLE, bot BOOLEAN, day DATE)"
    )
    if isinstance(d, Stream)
)
NAMES = ["page", "ms", "load", "bot", "day", "none"]
NUMBERS = st.sampled_from([None, -1.0, 0.0, -0.0, 2.5, 3.0, 1e300, float("inf"), float("nan"), 2.0**63])
TEXTS = st.sampled_from(
    [None, "", "a", "ab", "b", "ä", "a%", "_", "\\", "(", "a+", "3", "2.5", "true", "2013-01-01"]
)
PREDICATES = st.fixed_dictionaries(
    {
        "attribute": st.sampled_from([*NAMES, None]),
        "op": st.sampled_from([*OPERATORS, *OPERATORS, "is", None]),
        "number": NUMBERS,
        "text": TEXTS,
        "high": NUMBERS,
        "high_text": TEXTS,
        "values": st.none() | st.lists(TEXTS, max_size=3),
    }
)
TYPE = pa.list_(
    pa.struct(
        [
            ("attribute", pa.string()),
            ("op", pa.string()),
            ("number", pa.float64()),
            ("text", pa.string()),
            ("high", pa.float64()),
            ("high_text", pa.string()),
            ("values", pa.list_(pa.string())),
        ]
    )
)
VALUES: dict[str, Any] = {
    "page": st.sampled_from(["", "a", "ab", "abc", "b", "ä", "a%"]),
    "ms": st.sampled_from([-1, 0, 3, 2**63 - 1, 2**53 + 1]),
    "load": st.sampled_from([-1.0, 0.0, 2.5, 1e300, float("inf"), float("nan")]),
    "bot": st.booleans(),
}
EVENTS = st.lists(st.fixed_dictionaries({}, optional=VALUES), max_size=6)


@given(
    st.sampled_from([OPEN, TYPED]),
    st.lists(st.none() | st.lists(st.none() | PREDICATES, max_size=3), max_size=8),
    EVENTS,
)
def test_by_column_as_by_row(relation: Stream, rows: list[Any], events: list[dict[str, Any]]) -> None:
    table = pa.table({"id": np.arange(len(rows)), "predicates": pa.array(rows, TYPE)})
    wrong: dict[int, str] = {}
    conditions = row_conditions(relation, table, wrong)
    filters, bad = flat_predicates(relation, table)
    assert bad == wrong
    filters._check()
    index = Scan()
    index.add(np.arange(len(rows)), filters)
    batch, faults = ChangeBatch.from_dicts(relation, events)
    assert not faults
    found = set(zip(*(part.tolist() for part in unpack(index.match(batch.rows))), strict=True))
    shown = batch.rows.to_dicts()
    assert found == {
        (i, e) for i, where in conditions.items() for e, row in enumerate(shown) if holds(where, row)
    }

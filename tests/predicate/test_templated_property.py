"""Templates filled by column: the same filters as the queries they stand for, row by row."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.language.bulk import expand_template
from tocsin.language.sql import parse_definitions, trace_query
from tocsin.language.template import Template
from tocsin.match.base import unpack
from tocsin.match.scan import Scan
from tocsin.model.change import ChangeBatch
from tocsin.model.schema import Stream
from tocsin.predicate.templated import flat_tables
from tocsin.reference import holds

CATALOG = {
    d.name: d
    for d in parse_definitions(
        "CREATE STREAM loose; CREATE STREAM hits (page STRING, ms BIGINT, load DOUBLE, bot BOOLEAN, day DATE)"
    )
    if isinstance(d, Stream)
}
CONDITIONS = [
    "ms > :i",
    "ms <= -:i",
    "ms = :x",
    "load != :i",
    "load BETWEEN :x AND :y",
    "load NOT BETWEEN :x AND 3",
    "NOT (ms BETWEEN 2.5 AND :i)",
    "page = :t",
    "page < :t",
    "NOT page >= :t",
    "page BETWEEN :t AND :u",
    "page BETWEEN 'a' AND :u",
    "NOT (page BETWEEN :u AND :t)",
    "page IN (:t, 'ab', :u)",
    "page NOT IN (:t, 'b')",
    "page LIKE :t",
    "page NOT LIKE :t",
    "page LIKE '%b_'",
    "page RLIKE 'a+$'",
    "NOT page RLIKE 'b'",
    "day >= :d",
    "day IN (:d, '2013-01-02')",
    "bot = :b",
    "bot IS NULL",
    "page IS NOT NULL",
    "ms IN (:i, 3)",
]
COLUMNS: dict[str, Any] = {
    "i": (pa.int64(), st.sampled_from([-3, 0, 2, 3, 2**53 + 1, -(2**63)])),
    "x": (pa.float64(), st.sampled_from([-3.0, -0.0, 2.5, 3.0, 1e18, float("nan"), float("inf")])),
    "y": (pa.float64(), st.sampled_from([-3.0, 0.0, 2.5, 3.0, 1e300, float("nan")])),
    "t": (pa.string(), st.sampled_from(["", "a", "ab", "a%", "%b", "%a%", "ä", "a\\\\b"])),
    "u": (pa.string(), st.sampled_from(["", "b", "abc"])),
    "d": (pa.date32(), st.sampled_from([date(2013, 1, 1), date(2013, 1, 2)])),
    "b": (pa.bool_(), st.booleans()),
}
EVENTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "page": st.sampled_from(["", "a", "ab", "abc", "b", "ä", "a%", "a\\b"]),
            "ms": st.sampled_from([-3, 0, 2, 3, 2**53 + 1, -(2**63)]),
            "load": st.sampled_from([-3.0, 0.0, 2.5, 3.0, 1e300, float("nan")]),
            "bot": st.booleans(),
            "day": st.sampled_from([date(2013, 1, 1), date(2013, 1, 2)]),
        },
    ),
    max_size=8,
)


@st.composite
def templates(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=4))
    text = parts[0]
    for part in parts[1:]:
        joint = draw(
            st.sampled_from(["{} AND {}", "{} OR {}", "NOT ({}) AND {}", "({}) AND {}", "NOT ({} OR {})"])
        )
        text = joint.format(text, part)
    return text


@pytest.mark.parametrize("stream", ["hits", "loose"])
def test_by_column_as_by_row(stream: str) -> None:
    @given(templates(), st.data(), EVENTS)
    def check(where: str, data: st.DataObject, events: list[dict[str, Any]]) -> None:
        text = f"SELECT * FROM {stream} WHERE {where}"
        count = data.draw(st.integers(1, 4))
        params = {"id": pa.array(range(count))}
        for name, (kind, values) in COLUMNS.items():
            if f":{name}" in where:
                params[name] = pa.array(
                    data.draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind
                )
        table = pa.table(params)
        bulk = expand_template(text, table, CATALOG)
        first = {
            n: next((v for v in table[n].to_pylist() if v is not None), None) for n in table.column_names
        }
        if None in first.values():
            return  # no row to trace by: all are slow
        template = Template.of(trace_query(text, CATALOG, first))
        found = flat_tables(template, {n: table[n].combine_chunks() for n in table.column_names}, count)
        assert found is not None
        filters, slow = found.filters[0], np.flatnonzero(found.slow)
        filters._check()
        index = Scan()
        index.add(np.arange(count), filters)
        batch, bad = ChangeBatch.from_dicts(CATALOG[stream], events)
        assert not bad
        pairs = set(zip(*(part.tolist() for part in unpack(index.match(batch.rows))), strict=True))
        rows = batch.rows.to_dicts()
        wrong = {row for row, _ in bulk.bad}
        assert wrong <= set(slow.tolist())
        queries = dict(zip(bulk.ids, bulk.queries, strict=True))
        assert pairs == {
            (i, e)
            for i, query in queries.items()
            if i not in slow
            for e, row in enumerate(rows)
            if holds(query.where, row)
        }

    check()

"""JSON objects read by Arrow at once are what they are when read one by one."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model.test_change import TABLE
from tocsin.model import change
from tocsin.model.change import ChangeBatch
from tocsin.model.json_rows import json_columns, json_given

FIELDS = TABLE.fields
PLAIN = [json.dumps({"k": n, "x": 0.5, "s": "a"}) for n in range(20)]

ODD = """{"k":1,"k":2}
    {"k":1.0} {"k":9223372036854775808} {"k":-0} {"k":1e2} {"k":1,"x":1e999} {"k":1,"x":NaN}
    {"k":1,"x":"NaN"} {"k":1,"x":-0.0} {"K":1} {"k":1,"s":"\\ud800"} {"k":1,"s":"\\u0000"} {"k":1}{"k":2} {}
    {"k":1,"s":7} {"k":1,"x":true} {"k":1,"x":[1]} {"k":1,"s":{"x":1}} {"k":01} {"k":1,} [] null 7 "{}" {{}}
    {"k":1,"d":"2013-1-31"} {"k":1,"d":"2013-02-31"} {"k":1,"w":"2013-01-31T05:00+01:00"} {"k":1,"w":5}
    {"k":1,"x":null,"s":null} {"k":null} {"k":1,"other":1} {'k':1} {"k":1}/*}*/ {"k":1,"s":"null"}
    {"k":1,"x":12345678901234567890123} {"k":1 } {"k":1, "s":"{"} \ufeff{}""".split()
SPACED = ["", "  ", ' {"k":1} ', '{"k":\n1}', '{"k":1}\n{"k":2}', '{"s":"a\tb"}', "\xa0{}"]
HUGE = '{"k":1,"x":' + "1" * 400 + "}"
odd = st.sampled_from([*ODD, *SPACED, HUGE])
rows = st.fixed_dictionaries(
    {"k": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "x": st.none() | st.floats(allow_nan=False) | st.integers(),
        "s": st.none() | st.text(max_size=4),
        "b": st.none() | st.booleans(),
        "d": st.none() | st.dates().map(str),
        "w": st.none() | st.datetimes().map(str),
    },
)
texts = st.lists(st.one_of(rows.map(json.dumps), st.none(), odd) | st.sampled_from(PLAIN), max_size=4)
OPS = st.sampled_from(["insert", "update", "delete", "upsert", "hop", None])


def both(lines: list[str | None], ops: list[Any]) -> tuple[Any, Any]:
    found = []
    for reader in (json_columns, lambda *_: None):
        with patch.object(change, "json_columns", reader):
            batch, bad = ChangeBatch.from_json(TABLE, ops, list(range(len(lines))), lines)
        given = {name: batch.gave(name).tolist() for name in TABLE.names}
        assert batch.seq is not None
        rest = (batch.op.tolist(), batch.seq.tolist(), batch.origin.tolist(), given, bad)
        found.append((repr(batch.rows.to_dicts()), *rest))
    return found[0], found[1]


@given(texts, st.integers(0, 20), OPS)
def test_property_read_at_once_as_one_by_one(some: list[str | None], at: int, op: Any) -> None:
    lines = [*PLAIN[:at], *some, *PLAIN[at:]]
    ops = ["insert", "update"] * (len(lines) // 2) + [op] * (len(lines) % 2)
    at_once, one_by_one = both(lines, ops)
    assert at_once == one_by_one


def test_what_is_plain_is_read_at_once() -> None:
    lines = pa.array([*PLAIN, '{"k":1,"x":null,"b":true,"d":"2013-01-31"}'])
    table = json_columns(FIELDS, lines)
    assert table is not None and table.num_rows == 21
    given = json_given(table, lines)
    assert given is not None and given["x"].all() and not given["w"].any() and given["d"].sum() == 1


@pytest.mark.parametrize("text", ["", "{", '{"k":1}{"k":2}', '{"k":"1"}'])
def test_one_that_is_not_plain_sends_all_to_be_read_one_by_one(text: str) -> None:
    assert json_columns(FIELDS, pa.array([*PLAIN, text])) is None


def test_other_keys_may_be_passed_over() -> None:
    table = json_columns(FIELDS[:1], pa.array(PLAIN), only_these=False)
    assert table is not None and table.to_pydict() == {"k": list(range(20))}

"""JSON text in: an engine answers as if it had been given the dicts."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin import ChangeError, Engine, TocsinError
from tocsin.errors import BadRow
from tocsin.language.shape import plan
from tocsin.model.columns import SparseRows
from tocsin.model.jsonlines._kernels import read_objects
from tocsin.predicate.evaluate import Facts

QUERIES = [
    "SELECT * FROM events WHERE a = 'x' AND b = 'y'",
    "SELECT * FROM events WHERE a LIKE 'x%' AND n > 2",
    "SELECT * FROM events WHERE a LIKE '%x%'",
    "SELECT a FROM events WHERE a >= 'x' OR n IS NULL",
    "SELECT * FROM events WHERE b LIKE '%é' AND a != 'x'",
    "SELECT n FROM events WHERE n BETWEEN 1 AND 2.5 OR n = 9007199254740993",
    "SELECT * FROM events WHERE flag",
    "SELECT * FROM events",
]
TABLE = "CREATE TABLE stocks (symbol STRING, per DOUBLE, day DATE, PRIMARY KEY (symbol))"

texts = st.sampled_from(["x", "xy", "y", "é", "xé", "", '"'])
numbers = st.sampled_from([1, 2, 2.5, 3, 9007199254740993, 2.0**53])
events = st.fixed_dictionaries(
    {},
    optional={
        "a": texts | numbers | st.none(),
        "other": st.none() | st.lists(st.integers(), max_size=1),
        "b": texts,
        "n": numbers | texts,
        "flag": st.booleans(),
    },
)


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    read_objects.compiled()


def subscribed() -> Engine:
    engine = Engine()
    engine.execute("CREATE STREAM events")
    engine.subscribe_texts(QUERIES)
    return engine


def answers(deltas: Any) -> list[Any]:
    return [(d.seq, d.subscription, d.sign, list(d.row.items())) for d in deltas]


@settings(max_examples=60)
@given(st.lists(events, min_size=1, max_size=5), st.booleans())
def test_json_is_matched_as_its_dicts_are(rows: list[dict[str, Any]], ascii: bool) -> None:
    lines = [json.dumps(row, ensure_ascii=ascii).encode() for row in rows]
    plain = [{name: value for name, value in row.items() if not isinstance(value, list)} for row in rows]
    together, singly, dicts = subscribed(), subscribed(), subscribed()
    expected = [delta for row in plain for delta in answers(dicts.publish("events", row))]
    assert answers(together.apply("events", b"\n".join(lines))) == expected
    assert [delta for line in lines for delta in answers(singly.publish_json("events", line))] == expected
    facts = Facts(SparseRows.from_dicts(plain))  # by brute force
    for number, query in enumerate(QUERIES, 1):
        (filter,) = plan(dicts.query(number)).filters
        found = [seq - 1 for seq, subscription, *_ in expected if subscription == number]
        assert found == np.flatnonzero(facts.matches(filter)).tolist(), query


def test_changes_of_a_table_in_json_lines() -> None:
    engine = Engine()
    engine.execute(TABLE)
    top = engine.subscribe("SELECT symbol FROM stocks WHERE per > 10 AND day < '2024-02-01'")
    text = b"""{"symbol": "A", "per": 20, "day": "2024-01-31"}
{"_op": "upsert", "symbol": "B", "per": 30, "day": "2024-03-01"}
{"_op": "update", "symbol": "B", "day": "2024-01-01"}

{"_op": "update", "symbol": "A", "per": null}
{"_op": "delete", "symbol": "B"}
"""
    deltas = engine.apply("stocks", text)
    signed = [(d.seq, d.sign, d.row["symbol"]) for d in deltas]
    assert signed == [(1, 1, "A"), (3, 1, "B"), (4, -1, "A"), (5, -1, "B")]
    assert engine.content(top) == []
    assert engine.rows("stocks").to_pylist()[0]["per"] is None


def test_seqs_of_json_lines() -> None:
    engine = subscribed()
    deltas = engine.apply("events", b'{"_seq": 7, "a": "x", "b": "y"}\n{"_seq": 9, "flag": true}')
    assert sorted(set(deltas.seq.tolist())) == [7, 9] and engine.last_seq == 9
    with pytest.raises(ChangeError, match="row 1: seq is missing"):
        engine.apply("events", b'{"_seq": 17}\n{"flag": true}')
    with pytest.raises(ChangeError, match="row 0: seq 9 is not above the last one, 9"):
        engine.publish_json("events", b'{"_seq": 9}')
    engine.execute(TABLE)
    batches = {"stocks": b'{"symbol": "A", "_seq": 21}', "events": b'{"flag": true, "_seq": 20}'}
    assert set(engine.apply_all(batches).seq.tolist()) == {20} and engine.last_seq == 21


def test_bad_lines_raise_and_nothing_is_applied_or_become_dead_letters() -> None:
    engine = subscribed()
    text = b'{"a": "x"}\n\n{"a": 1, "a": 2}\n{"a": \n{"flag": true}'
    with pytest.raises(ChangeError, match=r"row 2: malformed row: 'a' occurs twice \(and 1 more bad rows\)"):
        engine.apply("events", text)
    assert engine.last_seq == 0
    dead: list[BadRow] = []
    deltas = engine.apply("events", text, dead_letters=dead)
    assert set(deltas.seq.tolist()) == {1, 2} and [row for row, _ in dead] == [2, 3]


def test_a_nested_value_is_ignored_unless_a_subscription_asks_about_it() -> None:
    engine = subscribed()
    assert [d.row for d in engine.publish_json("events", b'{"other": [1], "flag": true, "n": 0}')] == [
        {"flag": True, "n": 0},
        {"flag": True, "n": 0},
    ]
    with pytest.raises(ChangeError, match="row 0: attribute a: a nested value is not a number"):
        engine.publish_json("events", b'{"a": {"x": 1}}')
    dead: list[BadRow] = []
    engine.apply("events", b'{"n": 0}\n\n{"n": {}}\n{"other": {}}', dead_letters=dead)
    assert [row for row, _ in dead] == [2]


def test_one_bad_event() -> None:
    engine = subscribed()
    with pytest.raises(ChangeError, match="row 0: malformed row: not a JSON object but list"):
        engine.publish_json("events", b"[]")
    with pytest.raises(ChangeError, match="the JSON text is empty"):
        engine.publish_json("events", b" ")
    with pytest.raises(ChangeError, match="_op is for batches"):
        engine.publish_json("events", b'{"_op": "insert", "a": "x"}')
    engine.execute(TABLE)
    with pytest.raises(TocsinError, match="stocks is a table"):
        engine.publish_json("stocks", b'{"symbol": "A"}')
    assert engine.last_seq == 0


def test_declared_streams_take_json_too() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM hits (page STRING, ms BIGINT, at TIMESTAMP)")
    engine.subscribe("SELECT page FROM hits WHERE ms > 5 AND at > '2024-01-01'")
    deltas = engine.publish_json("hits", '{"page": "/é", "MS": 6, "at": "2024-01-01T00:00:01Z"}')
    assert [d.row for d in deltas] == [{"page": "/é"}]
    with pytest.raises(ChangeError, match=r"column ms: 2\.5 is not a BIGINT"):
        engine.publish_json("hits", b'{"ms": 2.5}')
    with pytest.raises(ChangeError, match="hits has no column 'other'"):
        engine.publish_json("hits", b'{"other": {}}')


def test_events_of_json_lines_are_retained() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM events RETAIN '1 hour'")
    text = b'{"a": "x\\u00e9", "n": 1}\n{"a": "y"}\n{"a": "\\ud800"}\n{"a": "x", "n": 1234567890123456789012}'
    dead: list[BadRow] = []
    engine.apply("events", text, dead_letters=dead)
    engine.publish_json("events", b'{"a": "xx"}')
    engine.subscribe("SELECT * FROM events WHERE a LIKE 'x%'", backfill=True)
    assert [(d.seq, d.row) for d in engine.tick()] == [
        (1, {"a": "xé", "n": 1}),
        (3, {"a": "x", "n": 1.2345678901234568e21}),
        (4, {"a": "xx"}),
    ]
    assert [row for row, _ in dead] == [2]


def test_a_byte_order_mark_and_wrong_types() -> None:
    e = Engine()
    e.execute("CREATE STREAM s")
    e.subscribe("SELECT * FROM s WHERE a = 1")
    for text in (b'\xef\xbb\xbf{"a": 1}', '\ufeff{"a": 1}', b'\xef\xbb\xbf {"a": 1, "b": "\\u0041"}'):
        assert len(e.publish_json("s", text)) == 1
    with pytest.raises(TocsinError, match="not dict") as found:
        e.publish_json("s", {"a": 1})  # type: ignore[arg-type]
    assert "publish" in str(found.value)
    with pytest.raises(TocsinError, match="not NoneType"):
        e.publish_json("s", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_paths_in_JSON_lines_mean_what_they_mean_in_dicts(seed: int) -> None:
    """Objects inside objects are read from the text at once; anything unusual from dicts."""
    assert read_objects.compiled()
    rng = random.Random(seed)
    names = ["a", "b", "c"]

    def value(depth: int) -> Any:
        shape = rng.random()
        if depth and shape < 0.6:
            return {name: value(depth - 1) for name in rng.sample(names, rng.randint(0, 3))}
        if depth and shape < 0.7:
            return [value(depth - 1) for _ in range(rng.randint(0, 2))]
        return rng.choice([1, 2.5, -3, 10**30, "x", "é", "a\nb", True, False, None, 2])

    paths = [".".join(rng.choice(names) for _ in range(rng.randint(2, 4))) for _ in range(15)]
    conditions = [f"{path} {rng.choice(OPERATORS)}" for path in paths]
    by_text, by_dicts = Engine(), Engine()
    for engine in (by_text, by_dicts):
        engine.execute("CREATE STREAM s")
        for condition in conditions:
            engine.subscribe(f"SELECT * FROM s WHERE {condition}")
    for _ in range(5):
        rows = [{name: value(3) for name in names} for _ in range(40)]
        lines = [json.dumps(row, ensure_ascii=rng.random() < 0.5) for row in rows]
        if rng.random() < 0.3:  # a number that only Python's parser reads
            lines.append('{"a": {"b": {"c": 123456789012345678901234567890.5e-3, "a": "\\ud83d\\ude00"}}}')
            rows.append(json.loads(lines[-1]))
        found, expected = by_text.apply("s", "\n".join(lines).encode()), by_dicts.apply("s", rows)
        assert list(found) == list(expected)


OPERATORS = [
    "= 1", "= 2", "> 1", "<= 2.5", "= 'x'", "= 'é'", "LIKE 'a%'", "= TRUE", "IS NULL", "!= 1", "IS NOT NULL",
]  # fmt: skip

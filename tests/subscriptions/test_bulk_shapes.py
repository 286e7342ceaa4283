"""Subscriptions of every shape by column: the same answers as one by one, all of them or none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.engine import Engine, Rooms
from tocsin.errors import SubscriptionError, SumOverflow, TocsinError
from tocsin.join.scan import JoinScan
from tocsin.subscriptions.bulk import load_template

DDL = """
CREATE TABLE a (id BIGINT PRIMARY KEY, k BIGINT, x DOUBLE, t STRING, d DATE);
CREATE TABLE b (id BIGINT PRIMARY KEY, k BIGINT, y BIGINT, t STRING, d DATE);
CREATE TABLE c (id BIGINT PRIMARY KEY, k BIGINT, z BIGINT)
"""
JOIN = "SELECT a.id, b.y FROM a JOIN b ON a.k = b.k"
TEMPLATES = {
    "join": (
        f"{JOIN} WHERE x BETWEEN :i AND :j AND y <= :n",
        f"{JOIN} AND a.t = b.t WHERE a.t = :s AND (y > :i OR y IS NULL)",
        f"{JOIN} WHERE NOT (x > :x) AND b.t LIKE :s AND y IN (:i, :n, 3)",
        f"{JOIN} WHERE :i = 1 AND y > :n",
        f"{JOIN} WHERE x > :x OR y > :n",  # about both: row by row
        "SELECT a.id, o.id AS other FROM a JOIN a AS o ON a.k = o.k WHERE a.x >= :i AND o.x < :x",
    ),
    "band": (
        "SELECT a.id, b.id AS other FROM a, b WHERE b.y - a.k BETWEEN -:i AND :j AND x > :x",
        "SELECT a.id, b.id AS other FROM a, b WHERE a.x <= b.y + :x - 1 AND a.x > b.y AND a.t = :s",
        "SELECT a.id, b.id AS other FROM a, b WHERE a.x - b.y > :i AND a.x - b.y > :j AND y < :n",
        "SELECT a.id, b.id AS other FROM a, b WHERE b.y - a.k >= :i AND b.y = :i AND a.d - b.d <= :j",
        "SELECT a.id FROM a, b WHERE a.d - b.d < :n AND a.d >= b.d - INTERVAL '2' DAY AND a.k = b.k",
    ),
    "multiway": (
        "SELECT a.id, b.id AS b, c.z FROM a JOIN b ON a.k = b.k JOIN c ON b.y = c.k "
        "WHERE x < :x AND z BETWEEN :i AND :n AND b.t != :s",
    ),
    "extreme": ("SELECT MIN(x), MAX(d) FROM a WHERE k BETWEEN :i AND :n",),
    "aggregate": ("SELECT COUNT(*), SUM(y) AS s FROM b WHERE y > :i AND t <= :s",),
    "distinct": ("SELECT DISTINCT k, t FROM a WHERE x > :x OR k = :i",),
    "topk": ("SELECT * FROM a WHERE x >= :x ORDER BY k DESC LIMIT 2", "SELECT * FROM b ORDER BY y LIMIT :j"),
}
WHOLE = st.integers(-2, 5)
PARAMETERS: dict[str, Any] = {
    "i": (pa.int64(), WHOLE),
    "j": (pa.int32(), st.integers(1, 6)),
    "n": (pa.int64(), WHOLE | st.sampled_from([None, 2**53 + 1, -(2**63)])),
    "x": (pa.float64(), st.sampled_from([-1.5, 0.0, 0.5, 2.0, 3.0, 1e300])),
    "s": (pa.string(), st.sampled_from(["", "u", "v", "%v", "uv"])),
}
ROWS = 12
DATES = ["2013-01-01", "2013-01-02", "2013-01-05", None]


def engine(rooms: Rooms | None = None) -> Engine:
    made = Engine(rooms=rooms)
    made.execute(DDL)
    return made


@st.composite
def tables(draw: st.DrawFn, text: str) -> Any:
    """Parameters of a template, for so many rows that they are taken by column."""
    columns = {"id": pa.array(range(10, 10 + ROWS))}
    for name, (kind, values) in PARAMETERS.items():
        if f":{name}" in text:
            few = draw(st.lists(values, min_size=1, max_size=4))
            columns[name] = pa.array([few[draw(st.integers(0, len(few) - 1))] for _ in range(ROWS)], kind)
    return pa.table(columns)


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, list[dict[str, Any]]]]:
    small, text = st.none() | WHOLE, st.sampled_from(["", "u", "v", "uv", None])
    row = {"k": small, "x": small, "y": small, "z": small, "t": text, "d": st.sampled_from(DATES)}
    names = {"a": "kxtd", "b": "kytd", "c": "kz"}
    out = []
    for _ in range(draw(st.integers(1, 5))):
        table = draw(st.sampled_from("abc"))
        kinds = {"id": st.integers(0, 4), **{name: row[name] for name in names[table]}}
        rows = draw(
            st.lists(st.fixed_dictionaries(kinds), min_size=1, max_size=6, unique_by=lambda r: r["id"])
        )
        out.append((table, rows))
    return out


def apply(made: Engine, change: tuple[str, list[dict[str, Any]]]) -> list[Any]:
    name, rows = change
    columns = {n: [row[n] for row in rows] for n in rows[0]}
    kinds = {"t": pa.string(), "d": pa.string(), "x": pa.float64()}
    batch = {n: pa.array(values, kinds.get(n, pa.int64())) for n, values in columns.items()}
    if "d" in batch:
        batch["d"] = batch["d"].cast(pa.date32())
    deltas = made.apply(name, pa.table({**batch, "_op": ["upsert"] * len(rows)}))
    return sorted((d.seq, d.subscription, d.sign, repr(d.row)) for d in deltas)


def contents(made: Engine) -> list[Any]:
    return [(s.id, s.sql, s.shape, s.warnings, made.content(s)) for s in made.subscriptions()]


@pytest.mark.parametrize("shape", TEMPLATES)
def test_by_column_as_one_by_one(shape: str) -> None:
    @settings(max_examples=max(12, settings().max_examples))
    @given(st.data(), changes(), changes())
    def check(data: st.DataObject, before: Any, after: Any) -> None:
        text = data.draw(st.sampled_from(TEMPLATES[shape]))
        params = data.draw(tables(text))
        bulk, single = engine(), engine(Rooms(join=JoinScan))
        for change in before:
            apply(bulk, change), apply(single, change)
        bad = []
        for n in range(ROWS):
            try:
                single.subscribe(filled(text, params, n), id=10 + n)
            except TocsinError:
                bad.append(n)
        if bad:
            with pytest.raises(SubscriptionError) as caught:
                bulk.subscribe_many(text, params)
            assert [row.row for row in caught.value.rows] == bad and not bulk.subscriptions()
            return
        ids = bulk.subscribe_many(text, params)
        gone = ids[:: data.draw(st.integers(1, 3))]
        for n, change in enumerate(after):
            assert apply(bulk, change) == apply(single, change)
            if n == 1:
                bulk.unsubscribe_many(gone)
                for id in gone.tolist():
                    single.unsubscribe(id)
        bulk._check()
        assert [c[4] for c in contents(bulk)] == [c[4] for c in contents(single)]
        assert [c[2:4] for c in contents(bulk)] == [c[2:4] for c in contents(single)]

    check()


def filled(text: str, params: Any, n: int) -> str:
    """The template with its values written out."""

    def written(found: re.Match[str]) -> str:
        value = params[found[1]][n].as_py()
        if isinstance(value, str):
            return f"'{value}'"
        return "NULL" if value is None else f"({value})" if value < 0 else str(value)

    return re.sub(r":(\w)", written, text)


EVERY = {
    "id": range(ROWS), "i": range(ROWS), "j": [1] * 6 + [2] * 6, "n": [4] * ROWS,
    "x": [0.5 * n for n in range(ROWS)], "s": ["u", "v", "w"] * 4,
}  # fmt: skip


def test_all_but_conditions_between_tables_and_what_is_no_slot_goes_by_column() -> None:
    """Parameters that decide how a text is read (which end is narrower?) make parts, here too small ones."""
    slow = {TEMPLATES["join"][3], TEMPLATES["join"][4], TEMPLATES["band"][2]}
    made = engine()
    catalog = {table.name: table for table in made.schemas()}
    for text in (text for texts in TEMPLATES.values() for text in texts):
        names = {"id", *re.findall(r":(\w)", text)}
        table = {name: pa.array(EVERY[name], PARAMETERS.get(name, (pa.int64(),))[0]) for name in names}
        load = load_template(text, pa.table(table), catalog)
        taken = sum(len(ids) for ids, _, _ in load.batches)
        for _, _, plans in load.batches:
            plans._check()
        assert taken + len(load.single) == ROWS
        fewer = text.endswith("LIMIT :j")  # six rows of a limit are too few
        assert (taken == 0) == (text in slow or fewer), text


def test_parts_of_a_template_with_one_limit_or_one_value_of_what_is_no_slot() -> None:
    made = engine()
    made.apply("b", pa.table({"id": range(5), "k": [1] * 5, "y": range(5)}))
    made.apply("a", pa.table({"id": range(3), "k": [1] * 3, "x": [0.0, 1.0, 2.0]}))
    limits = [0, 3] + [1] * 10 + [2] * 10
    with pytest.raises(SubscriptionError, match="row 0: LIMIT must be above 0"):
        made.subscribe_many("SELECT id FROM b ORDER BY y LIMIT :k", pa.table({"id": range(22), "k": limits}))
    table = pa.table({"id": range(1, 22), "k": limits[1:]})
    made.subscribe_many("SELECT id FROM b ORDER BY y LIMIT :k", table)
    assert [len(made.content(id)) for id in range(1, 22)] == limits[1:]
    table = pa.table({"id": range(30, 50), "w": [0, 1] * 10, "m": range(20)})
    made.subscribe_many(f"{JOIN} WHERE :w = 1 AND y >= :m", table)
    assert [len(made.content(id)) for id in range(30, 38)] == [0, 12, 0, 6, 0, 0, 0, 0]
    assert len(made.insert("b", {"id": 9, "k": 1, "y": 7})) == 3 * 4
    made._check()


def test_texts_are_read_by_column_and_restored_from_disk(tmp_path: Path) -> None:
    made = engine()
    texts = [f"{JOIN} WHERE x > {n % 4} AND y < {n}" for n in range(20)]
    texts += [f"SELECT SUM(y) FROM b WHERE y > {n}" for n in range(10)]
    texts += [f"SELECT id FROM a, b WHERE a.x - b.y < {n}" for n in range(3)]
    with pytest.raises(SubscriptionError, match="row 30: column 'id' is in more than one"):
        made.subscribe_texts(texts)
    assert made.stats()["subscriptions"] == 0
    ids = made.subscribe_texts(texts[:30], subscribers=[f"s{n}" for n in range(30)])
    made.unsubscribe_many(ids[::3])  # before they are in any structure
    table = {name: EVERY[name] for name in ("i", "j", "x")}
    made.subscribe_many(TEMPLATES["band"][0], pa.table({"id": range(100, 112), **table}))
    made.save(tmp_path / "kept")
    again = Engine.load(tmp_path / "kept")
    assert again.subscriptions() == made.subscriptions()
    rest = {"k": 1, "t": "u", "d": None}
    for change in ("a", [{"id": 1, "x": 3.0, **rest}]), ("b", [{"id": n, "y": n, **rest} for n in range(4)]):
        assert apply(again, change) == apply(made, change)
    assert contents(again) == contents(made)
    assert made.explain(int(ids[1]), {"id": 1}, table="a").held
    made._check()
    again._check()


def test_a_sum_that_is_no_bigint_is_refused_and_nothing_stays() -> None:
    made = engine()
    made.apply("b", pa.table({"id": range(4), "k": [0] * 4, "y": [2**62, 2**62, 5, -10]}))
    text = "SELECT SUM(y) FROM b WHERE y >= :m"
    with pytest.raises(SumOverflow, match="subscription 15: BIGINT overflow"):
        made.subscribe_many(text, pa.table({"id": range(10, 20), "m": [2**62 + 1] * 5 + [7] * 5}))
    assert not made.subscriptions()
    made.subscribe_many(text, pa.table({"id": range(10, 20), "m": [2**62 + 1] * 5 + [-10] * 5}))
    made._check()


@pytest.mark.parametrize("text", [TEMPLATES["join"][0], TEMPLATES["band"][0]])
def test_after_churn_answers_are_as_if_all_had_been_added_at_once(text: str) -> None:
    """So many that structures are rebuilt."""
    rng = np.random.default_rng(5)
    names = set(re.findall(r":(\w)", text))
    columns = {
        name: pa.array(rng.integers(1, 60, 3000), PARAMETERS[name][0], safe=False) for name in sorted(names)
    }
    params = pa.table({"id": np.arange(3000), **columns})
    made, other = engine(), engine()
    rest = {"t": "u", "d": None}
    steps = [("a", [{"id": n, "k": n, "x": float(n), **rest} for n in range(40)])]
    steps += [("b", [{"id": n, "k": n, "y": 20 + n, **rest} for n in range(m, m + 4)]) for m in (0, 10, 20)]
    apply(made, steps[0]), apply(other, steps[0])
    made.subscribe_many(text, params.slice(0, 1500))
    apply(made, steps[1])
    made.subscribe_many(text, params.slice(1500))
    apply(made, steps[2])
    made.unsubscribe_many(np.arange(3000)[np.arange(3000) % 5 > 1])
    made._check()
    other.subscribe_many(text, params.take(pa.array(np.flatnonzero(np.arange(3000) % 5 <= 1))))
    apply(other, steps[1]), apply(other, steps[2])
    deltas = apply(made, steps[3])
    assert deltas == apply(other, steps[3]) and len(deltas) > 100
    made._check()


def test_texts_are_several_and_a_bad_one_says_where():
    engine = Engine()
    engine.execute("CREATE STREAM hits (ms BIGINT)")
    with pytest.raises(SubscriptionError, match="texts is one text"):
        engine.subscribe_texts("SELECT * FROM hits")
    with pytest.raises(SubscriptionError) as caught:
        engine.subscribe_texts(["SELECT * FROM hits", "SELECT * FROM hits\nWHERE mss > 5"])
    assert caught.value.rows == ((1, "there is no column 'mss' in hits (line 2, column 7)"),)

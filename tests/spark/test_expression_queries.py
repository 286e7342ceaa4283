"""Random queries with expressions have one answer: that of the engine, of the reference, and of Spark SQL.

TOCSIN_EXPRESSIONS says how many; `make test-expressions` compares 20,000.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

import tocsin
from tests.expressions.evaluated import comparable, equal, stored_rows, table_of
from tests.strategies.expression_queries import (
    EVENT_DDL,
    SHAPES,
    SparkQuery,
    event_queries,
    events,
    queries,
    rows,
)
from tests.strategies.expressions import FIELDS
from tocsin.errors import SqlError
from tocsin.model.schema import Type
from tocsin.reference import evaluate, holds

pytestmark = pytest.mark.spark

COUNT = int(os.environ.get("TOCSIN_EXPRESSIONS", "40"))
_SHARES = {"filter": 0.5, "aggregate": 0.15, "group": 0.05, "distinct": 0.03, "topk": 0.03}
_AT_ONCE = {"filter": 150, "aggregate": 60, "group": 40, "distinct": 40, "topk": 40, "events": 150}
_SETTINGS = {"spark.sql.ansi.enabled": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(autouse=True)
def as_documented(spark):
    """Spark with ANSI off, which expressions mean; interpreted, because each query is run once."""
    settings = {**_SETTINGS, "spark.sql.codegen.wholeStage": "false"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def turns(share, shape):
    """(seed, number of queries) of each job."""
    wanted, size = max(5, round(COUNT * share)), _AT_ONCE[shape]
    return [(seed, min(size, wanted - at)) for seed, at in enumerate(range(0, wanted, size))]


@pytest.mark.parametrize("shape", SHAPES)
def test_queries_over_a_table(spark, shape):
    compared = 0
    for seed, count in turns(_SHARES[shape], shape):
        given = rows(seed, 24)
        table_of(spark, given, [("k", Type.BIGINT)]).createOrReplaceTempView("r")
        engine, taken = subscribed(queries(seed, count, shape))
        by_deltas = answers(engine, given, [id for id, _ in taken])
        theirs = spark_answers(spark, shape, [query for _, query in taken])
        wrong = []
        for (id, query), wanted in zip(taken, theirs, strict=True):
            reference = evaluate(engine.query(id), {"r": given}, {"r": ("k",)})
            for name, found in (
                ("deltas", by_deltas[id]), ("content", engine.content(id)), ("reference", reference),
            ):  # fmt: skip
                if not same(in_order(query, found), wanted):
                    wrong.append((name, query.text, in_order(query, found), wanted))
                    break
        assert not wrong, wrong[:3]
        compared += len(taken)
        assert len(taken) >= 0.9 * count
    print(f"{compared} queries of the shape {shape} compared")


def subscribed(given: list[SparkQuery]) -> tuple[tocsin.Engine, list[tuple[int, SparkQuery]]]:
    """An engine with the queries that it takes: not constants as columns, nor constants of another kind."""
    engine = tocsin.Engine()
    columns = ", ".join(f"{field.name} {field.type}" for field in FIELDS)
    engine.execute(f"CREATE TABLE r (k BIGINT PRIMARY KEY, {columns})")
    taken, refused = [], []
    for query in given:
        try:
            taken.append((engine.subscribe(query.text).id, query))
        except SqlError as error:
            refused.append(error)
    assert all(error.position is not None for error in refused), refused
    return engine, taken


def answers(engine: tocsin.Engine, given: list[dict[str, Any]], ids: list[int]) -> dict[int, list[Any]]:
    """The answers that deltas add up to, after rows came, changed and went."""
    totals = {id: Counter(_hashable(tuple(row.items())) for row in engine.content(id)) for id in ids}
    first, second = given[: len(given) // 2], given[len(given) // 2 :]
    swapped = [{**row, "k": other["k"]} for row, other in zip(second, first, strict=False)]
    for change in (
        lambda: engine.apply("r", swapped),
        lambda: engine.apply("r", [{**row, "_op": "upsert"} for row in first]),
        lambda: engine.apply("r", second),
    ):
        for delta in change():
            key = tuple(delta.row.items())
            totals[delta.subscription][_hashable(key)] += delta.sign
    found: dict[int, list[Any]] = {}
    for id, total in totals.items():
        assert all(count >= 0 for count in total.values()), id
        found[id] = [{name: _value(one) for name, one in row} for row, n in total.items() for _ in range(n)]
    return found


def _hashable(row: tuple[tuple[str, Any], ...]) -> Any:
    """NaN is one value, and TRUE, 1 and 1.0 are three."""
    return tuple((name, (type(v), "NaN" if v != v else v)) for name, v in row)


def _value(typed: tuple[type, Any]) -> Any:
    return float("nan") if typed == (float, "NaN") else typed[1]


def in_order(query: SparkQuery, found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    shown = [
        tuple(comparable(kind, value) for kind, value in zip(query.types, row.values(), strict=True))
        for row in found
    ]
    return sorted(shown, key=lambda row: [(value is None, str(value)) for value in row[:1]] + [str(row)])


def same(found: list[tuple[Any, ...]], wanted: list[tuple[Any, ...]]) -> bool:
    return len(found) == len(wanted) and all(
        equal(a, b) for one, other in zip(found, wanted, strict=True) for a, b in zip(one, other, strict=True)
    )


# -- Spark -------------------------------------------------------------------------------------------


def spark_answers(spark: Any, shape: str, given: list[SparkQuery]) -> list[list[tuple[Any, ...]]]:
    """Answers in Spark, many queries in one job."""
    if not given:
        return []
    if shape == "filter":
        parts = [
            f"({query.where}) AS w{n}, struct({', '.join(_numbered(query))}) AS v{n}"
            for n, query in enumerate(given)
        ]
        collected = spark.sql(f"SELECT {', '.join(parts)} FROM r").collect()
        found = [[tuple(row[f"v{n}"]) for row in collected if row[f"w{n}"]] for n in range(len(given))]
    elif shape == "aggregate":
        items = [
            f"{_in_numbers(kind, f'{item} FILTER (WHERE {query.where})')} AS c{n}_{m}"
            for n, query in enumerate(given)
            for m, (kind, item) in enumerate(zip(query.types, query.items, strict=True))
        ]
        (row,) = spark.sql(f"SELECT {', '.join(items)} FROM r").collect()
        found = [[tuple(row[f"c{n}_{m}"] for m in range(len(q.types)))] for n, q in enumerate(given)]
    else:
        found = _united(spark, given)
    return [_sorted(query, one) for query, one in zip(given, found, strict=True)]


def _united(spark: Any, given: list[SparkQuery]) -> list[list[tuple[Any, ...]]]:
    """Whole queries, one after the other, each row as one struct of texts: values have types of their own."""
    parts = []
    for n, query in enumerate(given):
        names = [_in_numbers(kind, f"c{m}") for m, kind in enumerate(query.types)]
        texts = ", ".join(f"CAST({name} AS STRING)" for name in names)
        parts.append(f"SELECT {n} AS q, array({texts}) AS v FROM ({query.text})")
    found: list[list[tuple[Any, ...]]] = [[] for _ in given]
    for row in spark.sql(" UNION ALL ".join(parts)).collect():
        kinds = given[row.q].types
        found[row.q].append(tuple(_read(kind, text) for kind, text in zip(kinds, row.v, strict=True)))
    return found


def _read(kind: Type, text: str | None) -> Any:
    if text is None or kind is Type.STRING:
        return text
    if kind is Type.BOOLEAN:
        return text == "true"
    return float(text) if kind is Type.DOUBLE else int(text)


def _numbered(query: SparkQuery) -> list[str]:
    both = zip(query.types, query.items, strict=True)
    return [f"{_in_numbers(kind, item)} AS c{m}" for m, (kind, item) in enumerate(both)]


def _in_numbers(kind: Type, text: str) -> str:
    function = {Type.TIMESTAMP: "unix_micros", Type.DATE: "unix_date"}.get(kind)
    return text if function is None else f"{function}({text})"


def _sorted(query: SparkQuery, found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=lambda row: [(value is None, str(value)) for value in row[:1]] + [str(row)])


# -- events -------------------------------------------------------------------------------------------


def test_filters_over_events_and_columns_of_structs(spark):
    for seed, count in turns(1 - sum(_SHARES.values()), "events"):
        given, asked = events(seed, 24), event_queries(seed, count)
        engine = tocsin.Engine()
        engine.execute("CREATE STREAM e")
        ids = [engine.subscribe(query.text).id for query in asked]
        together: dict[int, list[int]] = {id: [] for id in ids}
        singly: dict[int, list[int]] = {id: [] for id in ids}
        for delta in engine.apply("e", given):
            together[delta.subscription].append(delta.row["k"])
        for event in given:
            for id in engine.publish("e", event).subscription.tolist():
                singly[id].append(event["k"])
        spark.createDataFrame(stored_rows(given), EVENT_DDL).createOrReplaceTempView("e")
        parts = [f"({query.where}) AS w{n}" for n, query in enumerate(asked)]
        collected = spark.sql(f"SELECT k, {', '.join(parts)} FROM e").collect()
        wrong = []
        for n, (id, query) in enumerate(zip(ids, asked, strict=True)):
            wanted = [row.k for row in collected if row[f"w{n}"]]
            where = engine.query(id).where
            reference = [event["k"] for event in given if holds(where, event) is True]
            if not sorted(together[id]) == sorted(singly[id]) == reference == sorted(wanted):
                wrong.append((query.text, together[id], singly[id], reference, wanted))
        assert not wrong, wrong[:3]

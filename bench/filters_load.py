"""Loading by columns, templates and texts: `load` of `filters_show.py`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from claims import Claim, Claims, best
from filters_answers import (
    FEW,
    SAMPLE,
    new_engine,
    pairs_of,
)

from tocsin import Engine
from tocsin.lab.bench.brute_force import brute_answers, check_answers, reference_answers
from tocsin.lab.bench.filter_workloads import make_workload
from tocsin.lab.bench.match import (
    CHECKED,
    STREAM,
    event_rows,
)
from tocsin.lab.bench.text_workloads import word_set
from tocsin.language.sql import parse_query
from tocsin.reference import holds

QUOTES = "CREATE STREAM s (a BIGINT, b DOUBLE, c DOUBLE)"
TEMPLATE = "SELECT * FROM s WHERE a = :a AND b <= :b AND c >= :c"
HITS = "CREATE STREAM hits (item STRING, shop STRING, city STRING, price DOUBLE, stars BIGINT, sold BIGINT)"
TEXTS = (
    "SELECT * FROM hits WHERE price < {price} AND stars >= {stars}",
    "SELECT * FROM hits WHERE shop = '{shop}' AND price <= {price}",
    "SELECT item FROM hits WHERE item LIKE '{item}%' AND sold > {sold}",
    "SELECT * FROM hits WHERE city IN ('{city}', '{other}') AND price BETWEEN {price} AND {price}9",
    "SELECT item, price FROM hits WHERE (shop = '{shop}' OR shop = '{seller}') AND stars = {stars}",
    "SELECT * FROM hits WHERE item LIKE '%{item}%' AND city = '{city}'",
    "SELECT * FROM hits WHERE sold BETWEEN {sold} AND {sold}0 AND city = '{city}' AND stars > {stars}",
    "SELECT * FROM hits WHERE shop = '{shop}' OR (city = '{city}' AND price < {price})",
    "SELECT item FROM hits WHERE sold = {sold} OR sold = {sold}1 OR item = '{item}'",
    "SELECT * FROM hits WHERE NOT city = '{city}' AND shop IN ('{shop}', '{seller}') AND price > {price}",
)


class Loading(NamedTuple):
    """One way to load: the call to time, the events to match afterwards, and queries by id."""

    name: str
    n: int
    bar: float
    definition: str
    stream: str
    load: Callable[[Engine, int], object]  # the first so many subscriptions
    events: Any
    query_of: Callable[[int], str]


def show_load(options: argparse.Namespace) -> Claims:
    """Each way of loading, until the first event has matched: lazy building counts too."""
    yield load_predicates(options)
    yield loaded(load_template(options), options)
    yield loaded(load_texts(options), options)


def load_predicates(options: argparse.Namespace) -> Claim:
    work = make_workload("sparse", options.predicates, CHECKED, options.seed)
    expected = brute_answers(work.subscriptions, work.events)
    sample = np.unique(np.random.default_rng(options.seed).integers(0, work.n, SAMPLE))
    by_reference = reference_answers(STREAM, work.subscriptions, event_rows(work.events), sample)
    check_answers("brute force", expected[np.isin(expected >> 32, sample)], by_reference)

    def load(engine: Engine, count: int) -> None:
        engine.subscribe_predicates(STREAM.name, work.subscriptions.slice(0, count))

    one = Loading("predicates", work.n, 3.0, str(STREAM), STREAM.name, load, work.events, str)
    return measured_load(one, options, lambda pairs: check_answers("predicates", pairs, expected))


def load_template(options: argparse.Namespace) -> Loading:
    n, rng = options.template, np.random.default_rng(options.seed)
    columns = {"a": rng.integers(0, 1000, n), "b": rng.random(n).round(3), "c": rng.random(n).round(3)}
    params = pa.table({"id": np.arange(n), **columns})
    few = {"a": rng.integers(0, 1000, CHECKED), "b": rng.random(CHECKED), "c": rng.random(CHECKED)}

    def query_of(id: int) -> str:
        values = (f"{columns[name][id]}" for name in "abc")
        return "SELECT * FROM s WHERE a = {} AND b <= {} AND c >= {}".format(*values)

    def load(engine: Engine, count: int) -> None:
        engine.subscribe_many(TEMPLATE, params.slice(0, count))

    return Loading("template", n, 3.0, QUOTES, "s", load, pa.table(few), query_of)


def load_texts(options: argparse.Namespace) -> Loading:
    n, rng = options.texts, np.random.default_rng(options.seed)
    words = word_set(5000, options.seed)

    def draw(count: int) -> dict[str, list[Any]]:
        number = {"price": (1, 500), "stars": (0, 6), "sold": (0, 10_000)}
        word = {"item": 5000, "shop": 1000, "seller": 1000, "city": 200, "other": 200}
        drawn = {name: rng.integers(*ends, count).tolist() for name, ends in number.items()}
        picked = {name: rng.integers(0, most, count).tolist() for name, most in word.items()}
        return drawn | {name: [words[i] for i in own] for name, own in picked.items()}

    values = draw(n)
    rows = (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
    sql = [TEXTS[i % len(TEXTS)].format(**row) for i, row in enumerate(rows)]
    drawn = draw(CHECKED)
    events = {name: drawn[name] for name in ("item", "shop", "city", "stars", "sold")}
    events["price"] = [float(price) for price in drawn["price"]]

    def load(engine: Engine, count: int) -> None:
        engine.subscribe_texts(sql[:count], ids=range(min(n, count)))

    return Loading("texts", n, 5.0, HITS, "hits", load, pa.table(events), lambda id: sql[id])


def loaded(one: Loading, options: argparse.Namespace) -> Claim:
    """Measure, and compare a sample with the reference."""
    engine = new_engine(one.definition)
    catalog = {one.stream: engine.schema(one.stream)}
    events = one.events.to_pylist()

    def check(pairs: Any) -> None:
        rng = np.random.default_rng(options.seed)
        some = rng.integers(0, one.n, SAMPLE)
        matched = np.unique(pairs >> 32)
        others = rng.choice(matched, min(SAMPLE, len(matched)), replace=False)
        sample = np.unique(np.concatenate([some, others]))
        right = [
            id << 32 | event
            for id in sample.tolist()
            for where in (parse_query(one.query_of(id), catalog).where,)
            for event, row in enumerate(events)
            if holds(where, row)
        ]
        check_answers(one.name, pairs[np.isin(pairs >> 32, sample)], np.array(right, np.int64))

    return measured_load(one, options, check)


def measured_load(one: Loading, options: argparse.Namespace, check: Callable[[Any], None]) -> Claim:
    first, rest = one.events.slice(0, 1), one.events
    small = new_engine(one.definition)
    one.load(small, FEW)
    event = small_event(first)
    small.publish(one.stream, event)  # compiles kernels
    small.apply(one.stream, rest)
    calls, totals = [], []
    for number in range(options.repeat):
        engine = new_engine(one.definition)
        began = time.perf_counter()
        one.load(engine, one.n)
        calls.append(time.perf_counter() - began)
        engine.publish(one.stream, event)
        totals.append(time.perf_counter() - began)
        if number == 0:
            check(pairs_of(engine, one.stream, rest))
        del engine
    whole = best(totals)
    return Claim(f"load {one.name}", whole.seconds, "s until an event has matched", at_most=one.bar).show(
        options,
        subscriptions=one.n,
        call_s=min(calls),
        spread=whole.spread,
        subscriptions_per_second=one.n / whole.seconds,
    )


def small_event(table: Any) -> dict[str, Any]:
    """One event as an argument of `publish`."""
    (row,) = table.to_pylist()
    return dict(row["attributes"]) if "attributes" in row else row

"""Rehearsals: small workloads that use the product as its users do, so that all kernels are called.

A rehearsal calls public entry points, never a kernel: so the types that kernels are compiled for are those of
real use. Which kernels it reaches does not depend on timing where that can be helped: sizes are chosen so
that each structure is built, changed, merged and removed from.

`REHEARSALS` lists them, the longest to compile first; each starts from nothing, in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.warmup.group_scenarios import rehearse_groups
from tocsin.warmup.limit_scenarios import (
    rehearse_late_filters,
    rehearse_lookups,
    rehearse_refresh,
    rehearse_stream_joins,
    rehearse_windows,
)
from tocsin.warmup.partner_scenarios import rehearse_partners

__all__ = ["REHEARSALS"]

_DAY = datetime(2024, 5, 1, tzinfo=UTC)
_WORDS = ("red", "blue", "green", "x5", "x50", "grün", "a longer text of some words", "")


def _random() -> np.random.Generator:
    return np.random.default_rng(0)


# -- filters -------------------------------------------------------------------------------------------

_COLUMNS = "page STRING, word STRING, ms BIGINT, load DOUBLE, ok BOOLEAN, day DATE, at TIMESTAMP"
_DECLARED = f"CREATE STREAM hits ({_COLUMNS})"


def _events(count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Events with all attributes, some of them missing."""
    out = []
    for n in range(count):
        event = {
            "page": f"/page/{rng.integers(0, 50)}/{_WORDS[rng.integers(0, len(_WORDS))]}",
            "word": _WORDS[rng.integers(0, len(_WORDS))],
            "ms": int(rng.integers(0, 1000)),
            "load": float(rng.random()),
            "ok": bool(n % 2),
            "day": (_DAY + timedelta(days=n % 90)).date(),
            "at": _DAY + timedelta(minutes=n),
        }
        out.append({name: value for name, value in event.items() if rng.random() > 0.1})
    return out


def _conditions(count: int, rng: np.random.Generator) -> Iterator[str]:
    """Conditions of all kinds, one after the other."""
    for n in range(count):
        number, page, low = n % 50, f"/page/{n % 50}", int(rng.integers(0, 900))
        yield f"page = '{page}/red' AND ms > {low}"
        yield f"word = '{_WORDS[n % 6]}{n // 6}' AND load < {rng.random():.3f}"
        yield f"ms BETWEEN {low} AND {low + 20} AND load >= {rng.random():.3f}"
        yield f"ms = {low} OR page LIKE '{page}/%'"
        yield f"word IN ('red', 'w{n}') AND ok AND ms <> {low}"
        yield f"page LIKE '%/x5{n}' AND NOT ms BETWEEN {low} AND {low + 100}"
        yield f"page LIKE '%{number}/g%' AND load > {rng.random():.3f}"
        yield f"page RLIKE '^/page/{number}[0-9]/.*e$'"
        yield f"word IS NULL AND ms < {low}"
        yield f"(ms > {low} OR load > 0.9) AND (word = 'blue' OR ok) AND day >= DATE '2024-0{5 + n % 3}-01'"
        yield f"at > TIMESTAMP '2024-05-01 0{n % 9}:00:00' AND ms < {low}"
        yield f"NOT (word LIKE 'x%' OR ms > {low}) AND word IS NOT NULL"


def _predicates(count: int, first: int, rng: np.random.Generator) -> pa.Table:
    """Conjunctions as a table: sparse ones over many attributes, and some over the attributes of events."""
    rows: list[list[dict[str, Any]]] = []
    for n in range(count):
        row: list[dict[str, Any]] = [
            {"attribute": f"a{rng.integers(0, 40)}", "op": "<=", "number": float(rng.integers(0, 100))},
            {"attribute": "ms", "op": ">", "number": float(rng.integers(0, 1000))},
            {"attribute": "word", "op": "=", "text": _WORDS[n % 6]},
        ]
        row += [{"attribute": "page", "op": "in", "values": [f"/page/{n}/red", "/page/1/blue"]}] * (
            n % 3 == 0
        )
        rows.append(row[n % 3 :])
    return pa.table({"id": np.arange(first, first + count), "predicates": rows})


def _filters(definition: str) -> None:
    """Filters of all kinds over one stream: singly and in batches, added and removed, merged, explained."""
    rng = _random()
    engine = Engine()
    engine.execute(definition)
    first = engine.subscribe("SELECT * FROM hits WHERE ms > 900")
    engine.publish("hits", _events(1, rng)[0])
    engine.subscribe("SELECT page, ms FROM hits WHERE page LIKE '/page/1%' AND ms BETWEEN 5 AND 800")
    engine.subscribe("SELECT * FROM hits")
    engine.publish("hits", _events(1, rng)[0])
    texts = [f"SELECT * FROM hits WHERE {condition}" for condition in _conditions(40, rng)]
    engine.subscribe_texts(texts)
    low = rng.integers(0, 900, 1500)
    ranges = {"low": low, "high": low + 30, "load": rng.random(1500), "page": ["/page/1/red"] * 1500}
    for number, where in enumerate(
        (
            "ms BETWEEN :low AND :high AND load < :load",
            "page = :page AND ms > :low AND load >= :load",
            "page LIKE :page AND NOT ms BETWEEN :low AND :high",
            "ms > :low AND (load < :load OR word = 'red')",
        )
    ):
        names = [name for name in ranges if f":{name}" in where]
        params = {"id": np.arange(1500) + 10_000 * (number + 1), **{name: ranges[name] for name in names}}
        engine.subscribe_many(f"SELECT page FROM hits WHERE {where}", pa.table(params))
    if "(" not in definition:
        engine.subscribe_predicates("hits", _predicates(1500, 100_000, rng))
    _publish_all(engine, rng)
    # a few beside many: the mutable segment
    late = [engine.subscribe(text) for text in texts[:24]]
    engine.publish("hits", _events(1, rng)[0])
    engine.unsubscribe(late[0])
    engine.unsubscribe(first)
    engine.publish("hits", _events(1, rng)[0])
    engine.subscribe_texts([f"SELECT ms FROM hits WHERE ms = {n} AND load > 0.5" for n in range(300)])
    _publish_all(engine, rng)
    engine.unsubscribe_many([s.id for s in late[1:]])
    engine.unsubscribe_many(np.arange(10_000, 11_400))
    _publish_all(engine, rng)
    engine.explain(2, _events(1, rng)[0])
    engine.stats()


def _publish_all(engine: Engine, rng: np.random.Generator) -> None:
    """The same events one by one and in batches of several sizes and forms."""
    for event in _events(3, rng):
        engine.publish("hits", event)
    for count in (7, 600, 2100):
        events = _events(count, rng)
        engine.apply("hits", pa.Table.from_pylist(events))
    engine.apply("hits", pa.Table.from_pylist(_events(40, rng)), net=True)


def _open_filters() -> None:
    _filters("CREATE STREAM hits")


def _declared_filters() -> None:
    _filters(_DECLARED)


def _value_pairs() -> None:
    """Rules that require values of several attributes, some of them twice: found by two values."""
    rng = _random()
    engine = Engine()
    engine.execute("CREATE STREAM rules")
    drawn = rng.integers(0, 200, (3000, 3)).tolist()
    rows = [[{"attribute": f"a{k}", "op": "=", "text": f"v{v}"} for k, v in enumerate(own)] for own in drawn]
    for row in rows[::50]:
        row += [{"attribute": "a0", "op": "prefix", "text": "v"}]
    engine.subscribe_predicates("rules", pa.table({"id": np.arange(3000), "predicates": rows}))
    events = [
        {f"a{k}": f"v{v}" for k, v in enumerate(own)} for own in rng.integers(0, 200, (600, 3)).tolist()
    ]
    engine.apply("rules", events)
    engine.publish("rules", events[0])


def _retained() -> None:
    """Backfill of retained events; periods of validity."""
    rng = _random()
    engine = Engine(clock=lambda: _DAY)
    engine.execute(_DECLARED + " RETAIN '3 days'")
    for event in _events(5, rng):
        engine.publish("hits", event)
    engine.apply("hits", pa.Table.from_pylist(_events(300, rng)))
    engine.subscribe("SELECT * FROM hits WHERE ms > 100", backfill=True)
    engine.subscribe("SELECT * FROM hits WHERE ms > 100", valid_from=_DAY, valid_to=_DAY + timedelta(days=1))
    engine.tick()


def _json() -> None:
    """Events as JSON text, one by one and as lines, with whatever values JSON may have."""
    rng = _random()
    for definition in ("CREATE STREAM hits", _DECLARED):
        engine = Engine()
        engine.execute(definition)
        engine.subscribe_texts([f"SELECT * FROM hits WHERE {text}" for text in _conditions(3, rng)])
        texts = [json.dumps(event, default=str).encode() for event in _events(300, rng)]
        for text in texts[:3]:
            engine.publish_json("hits", text)
        engine.apply("hits", b"\n".join(texts))
        engine.apply("hits", b'{"page": "\\u00e9\\n", "ms": null, "word": "x", "load": 1e3}\n')


def _spark_matching() -> None:
    """What workers of `tocsin.spark.match` do: map indexes of versions from files, whole and in shards."""
    from tocsin.spark.matcher import mapped_filters, stream_filters
    from tocsin.spark.sharded_match import IndexShard, visits
    from tocsin.spark.versions.batch import relations_of
    from tocsin.spark.versions.blocks import predicate_block, text_block
    from tocsin.spark.versions.store import Versions

    rng, catalog = _random(), relations_of("CREATE STREAM hits")
    stream: Any = catalog["hits"]
    texts = [f"SELECT * FROM hits WHERE {text}" for text in _conditions(10, rng)]
    events = pa.Table.from_pylist(_events(200, rng))
    with TemporaryDirectory() as folder:
        versions = Versions(folder)
        blocks = [text_block(list(enumerate(texts, 1))), predicate_block("hits", _predicates(600, 1000, rng))]
        versions.publish("CREATE STREAM hits", blocks)
        versions.change(add=[(9000, texts[0])], remove=np.arange(1, 20))
        for number in versions.numbers():
            mapped_filters(versions, number, stream, catalog).match(events)
            stream_filters(versions.load(number), stream, catalog).match(events)
            shards = [mapped_filters(versions, number, stream, catalog, IndexShard(2, n)) for n in range(2)]
            seen, _ = shards[0].read(events)
            assert shards[0].routes is not None
            for shard, at, _ in visits(seen, len(events), shards[0].routes, all_events=False):
                shards[shard].match(events.take(pa.array(at)))


def _table_filters() -> None:
    """Filters over a table: rows that come, change and go; saved and loaded."""
    rng = _random()
    engine = Engine()
    engine.execute(
        "CREATE TABLE t (id BIGINT, name STRING, ms BIGINT, load DOUBLE, day DATE, PRIMARY KEY (id, name))"
    )
    engine.subscribe_texts([f"SELECT name, ms FROM t WHERE ms > {n} AND load < 0.{n}" for n in range(1, 90)])
    engine.subscribe("SELECT * FROM t WHERE name LIKE '%e%' AND day > DATE '2024-05-01'")
    rows = {
        "id": np.arange(400),
        "name": [f"name {n % 9}" for n in range(400)],
        "ms": rng.integers(0, 1000, 400),
        "load": rng.random(400),
        "day": [date(2024, 5, 1 + n % 28) for n in range(400)],
    }
    engine.apply("t", pa.table(rows))
    one = {"id": 7000, "name": "e", "ms": 5, "load": 0.5, "day": date(2024, 5, 9)}
    engine.insert("t", one)
    engine.update("t", {"id": 7000, "name": "e", "ms": 500})
    engine.upsert("t", {"id": 7001, "name": "e", "load": 0.1})
    engine.apply("t", pa.table({**rows, "ms": rng.integers(0, 1000, 400), "_op": ["update"] * 400}))
    late = engine.subscribe("SELECT * FROM t WHERE ms > 7 AND name = 'e'")
    engine.delete("t", {"id": 7000, "name": "e"})
    engine.unsubscribe(late)
    engine.contents()
    with TemporaryDirectory() as folder:
        engine.save(Path(folder) / "saved")
        again = Engine.load(Path(folder) / "saved")
        again.update("t", {"id": 7001, "name": "e", "ms": 999})
        again.rows("t")


# -- joins ---------------------------------------------------------------------------------------------

_JOINED = ("left_side", "right_side", "third", "fourth")


def _join_engine(rows: int, rng: np.random.Generator) -> Engine:
    engine = Engine()
    for name in _JOINED:
        engine.execute(
            f"CREATE TABLE {name} "
            "(id BIGINT, n BIGINT, s STRING, v DOUBLE, w BIGINT, d DATE, PRIMARY KEY (id))"
        )
    for name in _JOINED:
        engine.apply(name, _join_rows(0, rows, rng))
    return engine


def _join_rows(first: int, count: int, rng: np.random.Generator, **more: Any) -> pa.Table:
    numbers = rng.integers(0, 40, count)
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "n": numbers,
            "s": [f"k{n}" for n in numbers],
            "v": rng.random(count) * 1000,
            "w": rng.integers(0, 1000, count),
            "d": [date(2024, 5, 1 + n % 28) for n in numbers.tolist()],
            **more,
        }
    )


def _join_changes(engine: Engine, rows: int, rng: np.random.Generator) -> None:
    """Single rows and batches, on both sides."""
    for name in _JOINED[:2]:
        engine.insert(name, {"id": 90_000, "n": 5, "s": "k5", "v": 150.0, "w": 7})
        engine.update(name, {"id": 90_000, "v": 151.0})
        engine.delete(name, {"id": 90_000})
        engine.apply(name, _join_rows(rows, 200, rng))
        engine.apply(name, _join_rows(rows, 200, rng, _op=["update"] * 200))
        engine.apply(name, pa.table({"id": np.arange(rows, rows + 200), "_op": ["delete"] * 200}))


def _few_joins(engine: Engine, joined: str, rng: np.random.Generator) -> None:
    """A handful of subscriptions that come and go one by one, in groups that are changed and not rebuilt."""
    texts = [
        f"SELECT * FROM {joined} WHERE left_side.v > {n} AND right_side.v < {900 + n}" for n in range(12)
    ]
    ids = [engine.subscribe(text) for text in texts[:2]]
    _join_changes(engine, 50_000, rng)
    for text in texts[2:]:
        ids.append(engine.subscribe(text))
        engine.insert("left_side", {"id": 91_000, "n": 5, "s": "k5", "v": 150.0, "w": 7})
        engine.delete("left_side", {"id": 91_000})
    for id in ids:
        engine.unsubscribe(id)
        engine.insert("right_side", {"id": 91_000, "n": 5, "s": "k5", "v": 150.0, "w": 7})
        engine.delete("right_side", {"id": 91_000})


def _params(count: int, first: int, rng: np.random.Generator, width: float = 20.0) -> pa.Table:
    low, low2 = rng.random(count) * 1000, rng.random(count) * 1000
    ends = {"l": low, "h": low + width, "l2": low2, "h2": low2 + 10 * width}
    return pa.table({"id": np.arange(first, first + count), **ends})


_RANGES = "left_side.v BETWEEN :l AND :h AND right_side.v BETWEEN :l2 AND :h2"


def _equality_joins() -> None:
    """Equality joins by each strategy: few and many queries, hot groups, scattered ones."""
    rng, rows = _random(), 400
    engine = _join_engine(rows, rng)
    on = "left_side JOIN right_side ON left_side.n = right_side.n"
    _few_joins(engine, on, rng)
    engine.subscribe_many(f"SELECT * FROM {on} WHERE {_RANGES}", _params(1500, 1, rng))
    one = engine.subscribe(
        "SELECT left_side.id FROM left_side JOIN right_side ON left_side.s = right_side.s "
        "WHERE left_side.v > 100 AND (right_side.v < 50 OR left_side.v < 200) AND right_side.s LIKE '%3%'"
    )
    engine.subscribe(
        "SELECT * FROM left_side JOIN right_side "
        "ON left_side.s = right_side.s AND left_side.n = right_side.n "
        "WHERE left_side.w > 3 AND right_side.d > DATE '2024-05-02' AND right_side.s IN ('k1', 'k2')"
    )
    _join_changes(engine, rows, rng)
    engine.subscribe_many(f"SELECT * FROM {on} WHERE {_RANGES}", _params(3000, 5001, rng, 40.0))
    _join_changes(engine, rows, rng)
    engine.unsubscribe(one)
    engine.unsubscribe_many(np.arange(1, 40))
    _join_changes(engine, rows, rng)
    engine.unsubscribe_many(np.arange(5001, 7500))
    _join_changes(engine, rows, rng)
    engine.contents([100])
    engine.explain(100, {"id": 3, "v": 5.0})
    engine.stats()


def _band_joins() -> None:
    """Band joins over doubles and integers, and bands beside an equality."""
    rng, rows = _random(), 300
    engine = _join_engine(rows, rng)
    _few_joins(engine, "left_side JOIN right_side ON left_side.w - right_side.w BETWEEN -3 AND 9", rng)
    for number, band in enumerate(("v", "w")):
        engine.subscribe_many(
            f"SELECT * FROM left_side JOIN right_side ON right_side.{band} - left_side.{band} "
            f"BETWEEN -5 AND 5 WHERE {_RANGES}",
            _params(500, 10_000 * number + 1, rng, 30.0),
        )
    engine.subscribe(
        "SELECT left_side.id FROM left_side JOIN right_side ON left_side.v <= right_side.v + 10 "
        "AND left_side.w < right_side.w AND left_side.n = right_side.n WHERE right_side.v < 90"
    )
    _join_changes(engine, rows, rng)
    engine.unsubscribe_many(np.arange(1, 40))
    _join_changes(engine, rows, rng)
    engine.unsubscribe_many(np.arange(40, 490))
    _join_changes(engine, rows, rng)


def _multiway_joins() -> None:
    """Joins of three and four tables."""
    rng, rows = _random(), 120
    engine = _join_engine(rows, rng)
    joined = "left_side JOIN right_side ON left_side.n = right_side.n JOIN third ON third.s = right_side.s"
    engine.subscribe_many(f"SELECT * FROM {joined} WHERE {_RANGES}", _params(200, 1, rng))
    engine.subscribe(
        f"SELECT left_side.id FROM {joined} JOIN fourth ON fourth.id = third.id WHERE fourth.v < 50"
    )
    _join_changes(engine, rows, rng)
    engine.unsubscribe_many(np.arange(1, 150))
    _join_changes(engine, rows, rng)


def _described_joins() -> None:
    """Joins as messages to a client, as servers, brokers and clients of a network handle them."""
    from tocsin.network.answers import Answers
    from tocsin.network.described import DescribedQueries, encoded_request
    from tocsin.network.follower import ClientNode
    from tocsin.network.root import Root

    rng = _random()
    engine = Engine()
    engine.execute(
        "CREATE TABLE r (id BIGINT, k STRING, a DOUBLE, PRIMARY KEY (id));"
        "CREATE TABLE s (id BIGINT, k STRING, c BIGINT, PRIMARY KEY (id))"
    )
    service, answers = DescribedQueries(engine), Answers()
    root, client = Root("rehearsal", service), ClientNode("", answers)
    root.add_child(1, is_client=True)
    client.connected("rehearsal")
    text = "SELECT * FROM r JOIN s ON r.k = s.k WHERE a BETWEEN {} AND {} AND c >= {}"
    others = (
        "SELECT x.id FROM r x JOIN s ON x.k = s.k JOIN r y ON y.k = s.k WHERE x.a > 9 AND y.a < 80",
        "SELECT * FROM r WHERE a > 20 ORDER BY a LIMIT 3",
        "SELECT * FROM r WHERE a > 20 AND id < 60 ORDER BY k, a DESC LIMIT 3",
        "SELECT MIN(a), MAX(id) FROM r WHERE a > 20",
        "SELECT DISTINCT k FROM s WHERE c < 50",
        "SELECT * FROM s WHERE c = 5",
    )

    def deliver(frames: Iterable[Any]) -> None:
        for frame in frames:
            for _, sent in root.take(1, frame):
                client.take(sent)

    for n in range(24):
        low = int(rng.integers(0, 80))
        answers.sql[n] = text.format(low, low + 30, int(rng.integers(0, 50)))
        if n % 2:
            answers.sql[n] = others[n // 2 % len(others)]
        deliver(client.subscribe(n, encoded_request("", f"me/{n}", answers.sql[n])))
        for table, value in (("r", "a"), ("s", "c")):
            size = 1 if n % 2 else 40
            keys = [f"k{k}" for k in rng.integers(0, 9, size).tolist()]
            values = rng.integers(0, 100, size).tolist()
            ids = rng.integers(0, 90, size).tolist()
            engine.apply(
                table,
                [
                    {"id": id, "k": key, value: number, "_op": "upsert"}
                    for id, key, number in zip(ids, keys, values, strict=True)
                ],
            )
        for _, sent in [*root.flush(), *root.tick()]:
            client.take(sent)
        answers.flush(client.watermark)
    engine.delete("r", {"id": int(engine.rows("r")["id"][0].as_py())})
    root.flush()
    deliver(client.unsubscribe(0, encoded_request("", "me/0", "")))


def _join_costs() -> None:
    """The constants of join plans, as they are fitted for the first large group."""
    from tocsin.join.costs import measure_plans

    measure_plans(shapes={400: (5, 0.5, 0.01)})


# -- ranges --------------------------------------------------------------------------------------------

_ITEMS = {
    "topk": [
        ("*", "ORDER BY d LIMIT 3"),
        ("*", "ORDER BY d LIMIT 5"),
        ("id, s", "ORDER BY s DESC, d, id LIMIT 2"),
        ("id", "ORDER BY b LIMIT 20"),
    ],
    "extremes": [("MIN(d)", ""), ("MAX(b)", ""), ("MIN(s)", "")],
    "sums": [("COUNT(*)", ""), ("SUM(b), AVG(d), COUNT(d)", ""), ("SUM(d)", ""), ("AVG(b)", "")],
    "distinct": [("DISTINCT s", ""), ("DISTINCT b", ""), ("DISTINCT s, b", "")],
    "combined": [("MIN(b), COUNT(*), MAX(d)", ""), ("MIN(d), MAX(d)", "")],
}
_WHERE = (
    "a BETWEEN :l AND :h",
    "s = :s AND a > :l",
    "b >= 3 AND a BETWEEN :l AND :h",
    "a > :l AND d < :h AND s = :s",
    "b < :n",
)


def _range_rows(first: int, count: int, rng: np.random.Generator, **more: Any) -> pa.Table:
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "a": rng.random(count) * 1000,
            "b": rng.integers(0, 50, count),
            "d": rng.random(count) * 100,
            "s": [f"s{n}" for n in rng.integers(0, 17, count)],
            **more,
        }
    )


def _ranges(kind: str) -> None:
    """One family of range queries: templates and singles, rows and batches, late comers and leavers."""
    rng, rows, queries, first = _random(), 500, 150, 1
    engine = Engine()
    engine.execute("CREATE TABLE t (id BIGINT, a DOUBLE, b BIGINT, d DOUBLE, s STRING, PRIMARY KEY (id))")
    engine.insert("t", {"id": 100_000, "a": 5.0, "b": 3, "d": 15.0, "s": "s1"})
    engine.apply("t", _range_rows(0, rows, rng))
    for items, tail in _ITEMS[kind]:
        for where in _WHERE:
            engine.subscribe_many(
                f"SELECT {items} FROM t WHERE {where} {tail}", _range_params(where, queries, first, rng)
            )
            first += queries
        engine.subscribe(f"SELECT {items} FROM t WHERE a > 17 {tail}")
        engine.subscribe(f"SELECT {items} FROM t {tail}")
        first += 1000
    _range_changes(engine, rows, rng)
    late = [
        engine.subscribe(f"SELECT {i} FROM t WHERE a BETWEEN {n} AND {n + 90} {t}")
        for i, t in _ITEMS[kind]
        for n in range(3)
    ]
    engine.insert("t", {"id": 200_000, "a": 5.0, "b": 3, "d": 15.0, "s": "s1"})
    engine.unsubscribe(late[0])
    engine.unsubscribe_many(np.arange(1, queries, 3))
    _range_changes(engine, rows + 1000, rng)
    engine.contents([3, late[1]])
    engine.explain(3, {"id": 5})
    engine.stats()


def _range_params(where: str, count: int, first: int, rng: np.random.Generator) -> pa.Table:
    low = rng.random(count) * 1000
    values = {
        "l": low,
        "h": low + 50,
        "n": rng.integers(0, 50, count),
        "s": [f"s{n % 17}" for n in range(count)],
    }
    used = {name: value for name, value in values.items() if f":{name}" in where}
    return pa.table({"id": np.arange(first, first + count), **used})


def _range_changes(engine: Engine, first: int, rng: np.random.Generator) -> None:
    engine.insert("t", {"id": first + 900, "a": 5.0, "b": 3, "d": 150.0, "s": "s1"})
    engine.update("t", {"id": first + 900, "a": 15.0})
    engine.update("t", {"id": first + 900, "d": 1.0})
    engine.update("t", {"id": first + 900, "b": None, "s": None})
    engine.delete("t", {"id": first + 900})
    engine.apply("t", _range_rows(first, 200, rng))
    engine.apply("t", _range_rows(first, 200, rng, _op=["update"] * 200))
    engine.apply("t", pa.table({"id": np.arange(first, first + 200), "_op": ["delete"] * 200}))


REHEARSALS: dict[str, Callable[[], None]] = {
    "equality joins": _equality_joins,
    "filters, open stream": _open_filters,
    "top-k": partial(_ranges, "topk"),
    "filters, declared stream": _declared_filters,
    "aggregates": partial(_ranges, "sums"),
    "extremes": partial(_ranges, "extremes"),
    "distinct": partial(_ranges, "distinct"),
    "combined aggregates": partial(_ranges, "combined"),
    "band joins": _band_joins,
    "multi-way joins": _multiway_joins,
    "joins as messages": _described_joins,
    "filters, table": _table_filters,
    "filters by two values": _value_pairs,
    "filters that come late": rehearse_late_filters,
    "join costs": _join_costs,
    "JSON": _json,
    "joins of streams": rehearse_stream_joins,
    "retained events": _retained,
    "windows": rehearse_windows,
    "groups": rehearse_groups,
    "partners": rehearse_partners,
    "refresh on demand": rehearse_refresh,
    "lookups": rehearse_lookups,
}
if find_spec("pyspark") is not None:
    REHEARSALS["matching on Spark"] = _spark_matching
"""By name; the longest to compile first, so that none of them is left alone at the end."""

"""Shared by `groups_show.py`: answers over random tables beside those of DuckDB, for the same texts."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Hashable
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
from claims import Claim, Claims

from tocsin import Engine

__all__ = ["show_contents"]

_COLUMNS = "id BIGINT, k BIGINT, x BIGINT, d DOUBLE, t VARCHAR"
_NAMES = ("id", "k", "x", "d", "t")
_TEXTS = ("a", "b", "ab", None)


def show_contents(args: argparse.Namespace) -> Claims:
    """Answers over random tables are those of DuckDB, after changes too."""
    rng, compared, kinds = Random(args.seed), 0, Counter[str]()
    while compared < args.contents:
        engine, other = Engine(), duckdb.connect()
        rows: dict[str, dict[int, Any]] = {"s": {}, "r": {}}
        for name in rows:
            engine.execute(f"CREATE TABLE {name} ({_COLUMNS.replace('VARCHAR', 'STRING')}, PRIMARY KEY (id))")
        texts = [_query(rng) for _ in range(25)]
        ids = [engine.subscribe(text).id for _, text in texts]
        for _ in range(4):
            for name, own in rows.items():
                _change(rng, engine, name, own)
                table = pa.table({n: [row[n] for row in own.values()] for n in _NAMES}, schema=_SCHEMA)
                other.register(f"{name}_now", table)
                other.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM {name}_now")
            for id, (kind, text) in zip(ids, texts, strict=True):
                found, expected = engine.content(id), other.execute(text).fetchall()
                if _bag(tuple(row.values()) for row in found) != _bag(expected):
                    raise SystemExit(f"wrong: {text}: {found[:5]} instead of {expected[:5]} over {rows}")
                kinds[kind] += 1
                compared += 1
    yield Claim("contents like DuckDB's", compared, "contents", at_least=args.contents).show(
        args, kinds=kinds
    )


_SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("x", pa.int64()), ("d", pa.float64()), ("t", pa.string())]
)


def _bag(rows: Any) -> Counter[Hashable]:
    return Counter(tuple(_plain(value) for value in row) for row in rows)


def _plain(value: Any) -> Hashable:
    return round(float(value), 9) if isinstance(value, float) else value


def _change(rng: Random, engine: Engine, name: str, rows: dict[int, Any]) -> None:
    """Some rows come, change and go."""
    batch = []
    for id in rng.sample(range(12), rng.randint(1, 7)):
        if id in rows and rng.random() < 0.4:
            del rows[id]
            batch.append({"_op": "delete", "id": id})
            continue
        row = {
            "id": id,
            "k": rng.choice([0, 1, 2, 3, None]),
            "x": rng.choice([-2, 0, 1, 5, None]),
            "d": rng.choice([0.25, 1.5, -3.0, None]),
            "t": rng.choice(_TEXTS),
        }
        batch.append({"_op": "upsert", **row})
        rows[id] = row
    engine.apply(name, batch)


def _condition(rng: Random, alias: str = "") -> str:
    dot = f"{alias}." if alias else ""
    return rng.choice(
        [
            f"{dot}x > {rng.randint(-2, 3)}",
            f"{dot}x BETWEEN 0 AND {rng.randint(0, 5)}",
            f"{dot}t LIKE 'a%'",
            f"{dot}t IS NULL",
            f"NOT {dot}k = {rng.randint(0, 3)}",
            f"({dot}k = 1 OR {dot}d < 1)",
            f"{dot}k IN (0, 2)",
        ]
    )


def _where(rng: Random, *aliases: str) -> str:
    parts = [_condition(rng, alias) for alias in aliases or ("",) if rng.random() < 0.6]
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _query(rng: Random) -> tuple[str, str]:
    kind = rng.choice(list(_KINDS))
    return kind, _KINDS[kind](rng)


def _aggregate(rng: Random, dot: str = "") -> str:
    inner = [f"COUNT({dot}x)", "COUNT(*)", f"SUM({dot}x)", f"AVG({dot}d)", f"MIN({dot}t)", f"MAX({dot}x)"]
    made = rng.choice([*inner, f"COUNT(DISTINCT {dot}t)", f"MIN({dot}d)"])
    return made + (f" FILTER (WHERE {_condition(rng, dot[:-1])})" if rng.random() < 0.3 else "")


def _grouped(rng: Random) -> str:
    keys = rng.choice([["k"], ["t"], ["k", "t"], ["d"]])
    having = rng.choice(
        ["", " HAVING COUNT(*) > 1", " HAVING SUM(x) > 0", " HAVING MIN(x) < 1 OR COUNT(*) = 2"]
    )
    shown = ", ".join([*keys, f"{_aggregate(rng)} AS a", f"{_aggregate(rng)} AS b"])
    return f"SELECT {shown} FROM s{_where(rng)} GROUP BY {', '.join(keys)}{having}"


def _joined_group(rng: Random) -> str:
    having = rng.choice(["", " HAVING COUNT(*) > 2", " HAVING MAX(r.x) > 0"])
    shown = f"s.t, {_aggregate(rng, 's.')} AS a, {_aggregate(rng, 'r.')} AS b"
    return f"SELECT {shown} FROM s JOIN r ON s.k = r.k{_where(rng, 's', 'r')} GROUP BY s.t{having}"


def _whole(rng: Random) -> str:
    if rng.random() < 0.5:
        return f"SELECT COUNT(DISTINCT s.t) AS n, {_aggregate(rng, 'r.')} AS a FROM s JOIN r ON s.k = r.k"
    return f"SELECT DISTINCT s.t, r.k FROM s JOIN r ON s.k = r.x{_where(rng, 's', 'r')}"


def _outer(rng: Random) -> str:
    side = rng.choice(["LEFT", "RIGHT", "FULL"])
    on = f"s.{rng.choice('kx')} = r.{rng.choice('kx')}" + (
        f" AND {_condition(rng, 'r')}" if rng.random() < 0.4 else ""
    )
    on += f" AND {_condition(rng, 's')}" if side != "FULL" and rng.random() < 0.3 else ""
    if side == "FULL":
        on = on.split(" AND ")[0]
    return f"SELECT s.id AS a, s.t, r.id AS b, r.d FROM s {side} JOIN r ON {on}{_where(rng, 's', 'r')}"


def _semi(rng: Random) -> str:
    no, own = rng.choice(["", "NOT "]), _condition(rng, "s")
    inner = rng.choice(["", f" AND {_condition(rng, 'r')}"])
    if rng.random() < 0.5:
        return f"SELECT s.id, s.t FROM s WHERE {own} AND {no}EXISTS (SELECT 1 FROM r WHERE r.k = s.x{inner})"
    given = f" WHERE{inner.removeprefix(' AND')}" if inner else ""
    return f"SELECT s.id FROM s WHERE {own} AND s.k {no}IN (SELECT r.k FROM r{given})"


def _union(rng: Random) -> str:
    return f"SELECT id, t FROM s{_where(rng)} UNION ALL SELECT k, t FROM r{_where(rng)}"


def _ranked(rng: Random) -> str:
    order = rng.choice(["x NULLS FIRST, id", "d DESC NULLS LAST, id", "t NULLS LAST, id DESC"])
    if rng.random() < 0.5:
        first = f"LIMIT {rng.randint(1, 3)} OFFSET {rng.randint(0, 3)}"
        return f"SELECT id, x, t FROM s{_where(rng)} ORDER BY {order} {first}"
    number = f"ROW_NUMBER() OVER (PARTITION BY {rng.choice(['k', 't'])} ORDER BY {order})"
    return f"SELECT id, k FROM s{_where(rng)} QUALIFY {number} <= {rng.randint(1, 2)}"


_KINDS: dict[str, Any] = {
    "group": _grouped,
    "joined group": _joined_group,
    "over a join": _whole,
    "outer": _outer,
    "exists": _semi,
    "union": _union,
    "ranked": _ranked,
}

"""A small world with every shape of subscription, changes to it, and what an embedded engine says."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tocsin.engine import Engine
from tocsin.model.change import ChangeBatch
from tocsin.model.json_rows import row_json
from tocsin.reference import evaluate

Change = dict[str, Any]  # table, op, row (JSON text), seq

DDL = """
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, sector BIGINT, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id));
CREATE TABLE sectors (code DOUBLE, name STRING, chief STRING, PRIMARY KEY (code));
CREATE TABLE units (id BIGINT, pos DOUBLE, team STRING, PRIMARY KEY (id));
CREATE TABLE targets (id BIGINT, pos DOUBLE, seen TIMESTAMP, PRIMARY KEY (id, seen));
CREATE STREAM listings (model STRING, price DOUBLE, storage BIGINT);
CREATE STREAM signals
"""

SHAPES = {
    "filter": [
        "SELECT * FROM stocks WHERE per BETWEEN 20 AND 60",
        "SELECT symbol FROM stocks WHERE risk > 3 OR sector IS NULL",
        "SELECT team FROM units WHERE pos < 5",
        "SELECT symbol, per * risk AS x FROM stocks WHERE per * risk > 60 OR per < risk",
    ],
    "stream": [
        "SELECT * FROM listings WHERE model = 'x5' AND price <= 580",
        "SELECT model FROM listings WHERE storage IN (64, 128) OR price > 900",
        "SELECT * FROM signals WHERE heat > 3 AND place LIKE 'n%'",
        "SELECT upper(model) AS m FROM listings WHERE price / storage > 5 AND lower(model) IN ('x5', 'y')",
        "SELECT * FROM signals WHERE heat * 2 > 6 AND upper(place) LIKE 'N%'",
    ],
    "join": [
        "SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per BETWEEN 20 AND 70 AND rating >= 4",
        "SELECT r.id, s.per FROM reviews r JOIN stocks s ON s.symbol = r.symbol",
        "SELECT r.id, s.per - s.risk AS x FROM reviews r JOIN stocks s ON lower(s.symbol) = lower(r.symbol) "
        "WHERE s.per - s.risk > 20",
        "SELECT s.symbol, d.name FROM stocks s JOIN sectors d ON s.sector = d.code WHERE risk < 8",
        "SELECT a.symbol, b.symbol FROM stocks a JOIN stocks b USING (sector) WHERE a.per > 50 AND b.per < 9",
        "SELECT a.id, b.name FROM reviews a JOIN sectors b ON a.symbol = b.chief AND a.rating = b.code",
    ],
    "band": [
        "SELECT u.id, t.id FROM units u JOIN targets t ON t.pos - u.pos BETWEEN -5 AND 10 WHERE team = 'red'",
        "SELECT * FROM units u JOIN targets t ON t.pos - u.pos BETWEEN 0 AND 2",
        "SELECT u.id, t.id AS target FROM units u JOIN targets t ON t.pos * 2 - u.pos BETWEEN -5 AND 5",
    ],
    "multiway": [
        "SELECT s.symbol, r.rating, d.name FROM stocks s JOIN reviews r ON s.symbol = r.symbol "
        "JOIN sectors d ON d.code = s.sector WHERE r.rating > 2",
        "SELECT s.per, r.id, d.code FROM stocks s JOIN reviews r ON s.symbol = r.symbol "
        "JOIN sectors d ON d.chief = r.symbol",
    ],
    "extreme": [
        "SELECT MIN(per) FROM stocks WHERE risk BETWEEN 2 AND 6",
        "SELECT MAX(rating) AS best FROM reviews WHERE symbol = 'A'",
        "SELECT MAX(per - risk) AS spread FROM stocks WHERE per * 2 > 40",
    ],
    "aggregate": [
        "SELECT COUNT(*) FROM stocks WHERE per > 40",
        "SELECT SUM(per * risk) AS total FROM stocks WHERE round(per) % 2 = 0",
        "SELECT SUM(per) AS total, AVG(risk) AS mean FROM stocks WHERE sector >= 1",
        "SELECT COUNT(seen) AS n FROM targets WHERE pos > 1000",
    ],
    "distinct": [
        "SELECT DISTINCT sector FROM stocks WHERE risk BETWEEN 1 AND 7",
        "SELECT DISTINCT team FROM units WHERE pos > 2",
        "SELECT DISTINCT upper(team) AS t FROM units WHERE abs(pos) > 2",
    ],
    "topk": [
        "SELECT * FROM stocks WHERE risk BETWEEN 1 AND 8 ORDER BY per LIMIT 3",
        "SELECT id, rating FROM reviews ORDER BY rating DESC LIMIT 2",
        "SELECT symbol, per / risk AS ratio FROM stocks ORDER BY per / risk DESC LIMIT 3",
    ],
}

JOINS = [
    (1, "SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per BETWEEN 20 AND 70 AND rating >= 4", "a"),
    (2, "SELECT r.id, s.per FROM reviews r JOIN stocks s ON s.symbol = r.symbol", "b"),
    (3, "SELECT s.symbol, d.name FROM stocks s JOIN sectors d ON s.sector = d.code WHERE risk < 8", "c"),
    (4, "SELECT a.symbol, b.symbol AS o FROM stocks a JOIN stocks b USING (sector) WHERE a.per > 9", "d"),
    (5, "SELECT a.id, b.name FROM reviews a JOIN sectors b ON a.symbol = b.chief AND a.rating = b.code", "e"),
    (6, "SELECT id FROM stocks JOIN reviews USING (symbol) WHERE per > 40 AND risk < 5 AND rating < 4", "f"),
    (7, "SELECT id FROM stocks JOIN reviews USING (symbol) WHERE per > rating AND symbol = 'A'", "g"),
    (8, "SELECT id FROM stocks JOIN reviews USING (symbol) WHERE per > 5 AND per < 1", "h"),
]
"""Joins of two tables, and one band: (id, sql, subscriber)."""


def subscriptions() -> list[tuple[int, str, str]]:
    """(id, sql, subscriber) for every shape; ids are spread, subscribers named after the shape."""
    out = []
    for number, (shape, texts) in enumerate(SHAPES.items()):
        out += [(100 * (number + 1) + i, text, f"{shape}-{i}") for i, text in enumerate(texts)]
    return out


class World:
    """Draws valid changes, by a seed; knows which keys there are."""

    def __init__(self, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.keys: dict[str, dict[Any, dict[str, Any]]] = {
            t: {} for t in ("stocks", "reviews", "sectors", "units", "targets")
        }
        self.seq = 0

    def changes(self, count: int) -> list[Change]:
        return [self._change() for _ in range(count)]

    def _change(self) -> Change:
        draw = self.random
        self.seq += draw.choice([1, 1, 1, 5])
        table = draw.choice([*self.keys, "stocks", "reviews", "listings", "signals"])
        if table == "listings":
            return self._made(
                table, "insert", self._some(model="x5 x6", price=[100, 580, 950.5], storage=[32, 64, None])
            )
        if table == "signals":
            row = self._some(heat=[1, 3.5, 9], place="north south", other=[True, "x"])
            return self._made(table, "insert", {k: row[k] for k in row if draw.random() < 0.8})
        key, rest = self._row(table)
        name = json.dumps(
            key | {"seen": str(key.get("seen"))[:10]}
        )  # two spellings of one instant are one key
        if name not in self.keys[table]:
            self.keys[table][name] = key
            return self._made(table, draw.choice(["insert", "insert", "upsert"]), key | rest)
        if draw.random() < 0.25:
            return self._made(table, "delete", self.keys[table].pop(name))
        op = draw.choice(["update", "update", "upsert"])
        given = {k: v for k, v in rest.items() if op == "upsert" or draw.random() < 0.6}
        return self._made(table, op, key | given)

    def _row(self, table: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if table == "stocks":
            rest = self._some(
                per=[5, 25, 45, 45.5, 65, None], risk=[0, 2, 4, 6, 9, "NaN"], sector=[1, 2, 3, None]
            )
            return self._some(symbol="A B C D E"), rest
        if table == "reviews":
            return self._some(id=range(8)), self._some(
                symbol=["A", "B", "C", "X", None], rating=[1, 2, 3.5, 5, 9]
            )
        if table == "sectors":
            return self._some(code=[1.0, 2, 2.5, 3]), self._some(name="tech food", chief=["A", "B", None])
        if table == "units":
            return self._some(id=range(5)), self._some(pos=[0, 3, 6.5, 12, None], team="red blue")
        return self._some(id=range(3), seen=["2013-01-01T00:00:00Z", "2013-01-01"]), self._some(
            pos=[1, 4, 8, 14, None]
        )

    def _some(self, **choices: Iterable[Any]) -> dict[str, Any]:
        return {
            name: self.random.choice(values.split() if isinstance(values, str) else list(values))
            for name, values in choices.items()
        }

    def _made(self, table: str, op: str, row: dict[str, Any]) -> Change:
        return {"table": table, "op": op, "row": json.dumps(row), "seq": self.seq}


DeltaBag = Counter[tuple[int, int, int, str]]  # (seq, subscription, sign, row as JSON)


class Embedded:
    """One engine in this process, fed change by change."""

    def __init__(self, subscribed: Iterable[tuple[int, str, str]] = ()) -> None:
        self.engine = Engine()
        self.engine.execute(DDL)
        self.emitted: DeltaBag = Counter()
        for number, sql, subscriber in subscribed:
            self.subscribe(number, sql, subscriber)

    def subscribe(self, number: int, sql: str, subscriber: str, seq: int = 0) -> None:
        self.engine.subscribe(sql, id=number, subscriber=subscriber)
        self._emit(self.engine.contents([number]).at(seq))

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            relation = self.engine.schema(change["table"])
            batch, bad = ChangeBatch.from_json(relation, [change["op"]], [change["seq"]], [change["row"]])
            assert not bad, (change, bad)
            self._emit(self.engine.apply(relation.name, batch))

    def answer(self, number: int) -> Counter[str]:
        """What the reference says the rows are, as JSON."""
        query, tables = self.engine.query(number), [r for r in self.engine.schemas() if r.key]
        database = {table.name: self.engine.rows(table.name).to_pylist() for table in tables}
        return Counter(map(row_json, evaluate(query, database, {table.name: table.key for table in tables})))

    def wait_until_equal(self, number: int, subscription: Any, seconds: float = 40) -> None:
        """Wait until a client over the network has the answer."""
        until = time.monotonic() + seconds
        while (mine := Counter(map(row_json, subscription.content()))) != self.answer(number):
            assert time.monotonic() < until, (number, mine, self.answer(number))
            time.sleep(0.05)

    def _emit(self, deltas: Any) -> None:
        self.emitted.update(emitted(deltas.to_arrow(rows=True).to_pylist()))


def emitted(rows: Iterable[dict[str, Any]]) -> DeltaBag:
    """Deltas as a bag. The attributes of an open stream's event have no order: they are put in one."""
    return Counter(
        (row["seq"], row["subscription"], row["sign"], plain(row["subscription"], row["row"])) for row in rows
    )


def plain(subscription: int, row: str) -> str:
    is_open = subscription == 202
    return json.dumps(json.loads(row), sort_keys=True) if is_open else row


def contents(bag: DeltaBag) -> dict[int, Counter[str]]:
    """The rows of each subscription that the deltas add up to."""
    out: dict[int, Counter[str]] = {}
    for (_, subscription, sign, row), count in bag.items():
        out.setdefault(subscription, Counter())[row] += sign * count
    return {number: Counter({row: n for row, n in rows.items() if n}) for number, rows in out.items()}

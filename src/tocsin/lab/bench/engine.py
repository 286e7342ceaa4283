"""Changes per second of the embedded engine, shape by shape, on generated stocks, reviews and listings.

A run creates an engine, loads the tables, subscribes, then applies the changes in batches; only the last step
is timed. The first run is checked: for a few subscriptions, the contents accumulated from deltas are compared
with the reference over the final tables. A wrong shape gets no time.

Everything is drawn by a seed. A subscription selects a few percent of the rows or events of its table.

>>> work = draw_stocks(changes=100, seed=1)
>>> len(work.changes), work.changes[0].op
(100, 'insert')
>>> draw_queries("topk", 1, seed=0)[0].startswith("SELECT symbol, per FROM stocks WHERE risk BETWEEN")
True
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from tocsin.client import Client
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.change import ChangeBatch
from tocsin.model.delta import Deltas
from tocsin.model.schema import Stream
from tocsin.reference import as_bag, evaluate

__all__ = [
    "DDL",
    "SHAPES",
    "EngineSetting",
    "ShapeResult",
    "StockChange",
    "StockWorkload",
    "draw_queries",
    "draw_stocks",
    "measure_engine",
    "show_results",
]

DDL = """
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, sector BIGINT, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id));
CREATE TABLE sectors (code BIGINT, growth DOUBLE, PRIMARY KEY (code));
CREATE STREAM listings (model STRING, price DOUBLE, storage BIGINT)
"""
SYMBOLS, REVIEWS, SECTORS = 300, 400, 20  # rows at most


class StockChange(NamedTuple):
    """One change of a table or stream."""

    table: str
    op: str
    row: dict[str, Any]


class StockWorkload(NamedTuple):
    """Changes that load the tables, and changes to measure."""

    load: list[StockChange]
    changes: list[StockChange]


def draw_stocks(changes: int, seed: int) -> StockWorkload:
    """Load half of the stocks and reviews; then add, update and delete rows, among listings."""
    draw = Random(seed)
    world = _StockMarket(draw)
    load = [
        StockChange("sectors", "insert", {"code": code, "growth": draw.gauss(3, 4)})
        for code in range(SECTORS)
    ]
    load += [world.next("stocks") for _ in range(SYMBOLS // 2)]
    load += [world.next("reviews") for _ in range(REVIEWS // 2)]
    return StockWorkload(
        load, [world.next(draw.choice(("stocks", "reviews", "listings"))) for _ in range(changes)]
    )


class _StockMarket:
    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.alive: dict[str, set[Any]] = {"stocks": set(), "reviews": set()}

    def next(self, table: str) -> StockChange:
        draw = self.draw
        if table == "listings":
            row = {
                "model": f"x{draw.randrange(40)}",
                "price": draw.uniform(50, 1000),
                "storage": 2 ** draw.randrange(4, 11),
            }
            return StockChange(table, "insert", row)
        key = draw.randrange(SYMBOLS if table == "stocks" else REVIEWS)
        row = self._row(table, key)
        alive = self.alive[table]
        if key not in alive:
            alive.add(key)
            return StockChange(table, "insert", row)
        if draw.random() < 0.2:
            alive.remove(key)
            return StockChange(table, "delete", dict([next(iter(row.items()))]))
        return StockChange(table, "update", row)

    def _row(self, table: str, key: int) -> dict[str, Any]:
        draw = self.draw
        if table == "stocks":
            return {
                "symbol": f"S{key}",
                "per": round(draw.uniform(0, 100), 1),
                "risk": round(draw.uniform(0, 100), 1),
                "sector": draw.randrange(SECTORS),
            }
        return {"id": key, "symbol": f"S{draw.randrange(SYMBOLS)}", "rating": round(draw.uniform(0, 10), 1)}


# -- subscriptions ---------------------------------------------------------------------------------


def draw_queries(shape: str, count: int, seed: int) -> list[str]:
    """`count` subscriptions of a shape."""
    if shape not in SHAPES:
        raise TocsinError(f"there is no shape {shape!r}", hint=f"one of {', '.join(SHAPES)}")
    draw = Random(f"{seed} {shape}")
    return [SHAPES[shape](draw) for _ in range(count)]


def _range(draw: Random, column: str, top: float, width: float) -> str:
    low = draw.uniform(0, top - width)
    return f"{column} BETWEEN {low:.1f} AND {low + width * draw.random():.1f}"


def _filter(draw: Random) -> str:
    return f"SELECT * FROM stocks WHERE {_range(draw, 'per', 100, 20)} AND {_range(draw, 'risk', 100, 40)}"


def _stream(draw: Random) -> str:
    model, price = f"x{draw.randrange(40)}", draw.randrange(100, 900)
    size = 2 ** draw.randrange(4, 9)
    return f"SELECT * FROM listings WHERE model = '{model}' AND price <= {price} AND storage >= {size}"


def _join(draw: Random) -> str:
    ranges = f"{_range(draw, 'per', 100, 20)} AND {_range(draw, 'rating', 10, 2)}"
    return f"SELECT * FROM stocks JOIN reviews USING (symbol) WHERE {ranges}"


def _band(draw: Random) -> str:
    ranges = f"{_range(draw, 's.risk', 100, 20)} AND {_range(draw, 'g.growth', 12, 4)}"
    band = f"s.per - g.growth BETWEEN 0 AND {draw.uniform(1, 20):.1f}"
    return f"SELECT s.symbol, g.code FROM stocks s JOIN sectors g ON {band} WHERE {ranges}"


def _multiway(draw: Random) -> str:
    return (
        "SELECT s.symbol, r.id, g.growth FROM stocks s JOIN reviews r ON r.symbol = s.symbol "
        f"JOIN sectors g ON g.code = s.sector "
        f"WHERE {_range(draw, 's.per', 100, 20)} AND r.rating > {draw.uniform(5, 9):.1f}"
    )


def _extreme(draw: Random) -> str:
    return f"SELECT {draw.choice(('MIN', 'MAX'))}(per) FROM stocks WHERE {_range(draw, 'risk', 100, 30)}"


def _aggregate(draw: Random) -> str:
    what = draw.choice(("COUNT(*)", "SUM(per)", "AVG(per)"))
    return f"SELECT {what} FROM stocks WHERE {_range(draw, 'risk', 100, 30)}"


def _distinct(draw: Random) -> str:
    return f"SELECT DISTINCT sector FROM stocks WHERE {_range(draw, 'risk', 100, 30)}"


def _topk(draw: Random) -> str:
    where = _range(draw, "risk", 100, 30)
    return f"SELECT symbol, per FROM stocks WHERE {where} ORDER BY per DESC LIMIT {draw.choice((3, 5, 10))}"


SHAPES: dict[str, Callable[[Random], str]] = {
    "filter": _filter,
    "stream": _stream,
    "join": _join,
    "band": _band,
    "multiway": _multiway,
    "extreme": _extreme,
    "aggregate": _aggregate,
    "distinct": _distinct,
    "topk": _topk,
}


SAMPLE = 5  # checked subscriptions per shape


@dataclass(frozen=True)
class EngineSetting:
    """The size of the experiment."""

    subscriptions: int = 500
    changes: int = 1000
    batch: int = 250
    repeat: int = 3
    seed: int = 0


@dataclass(frozen=True)
class ShapeResult:
    """One shape: its best time, the spread of the times, and the checked contents."""

    shape: str
    subscriptions: int
    changes: int
    deltas: int
    checked: int
    right: int
    seconds: float | None = None  # the best run
    spread: float | None = None  # the slowest run over the best, minus 1

    @property
    def ok(self) -> bool:
        return self.right == self.checked

    @property
    def rate(self) -> float | None:
        return None if self.seconds is None else self.changes / self.seconds

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"changes_per_second": self.rate, "ok": self.ok}


def measure_engine(shapes: Sequence[str], setting: EngineSetting) -> list[ShapeResult]:
    """Measure the given shapes, or all."""
    return [_measure(shape, setting) for shape in shapes or SHAPES]


def show_results(results: Iterable[ShapeResult], console: Console) -> None:
    """Print a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("shape", "subscriptions", "changes", "deltas", "changes/s", "spread", "checked"):
        table.add_column(name, justify="left" if name == "shape" else "right")
    for r in results:
        rate = "wrong" if r.rate is None else f"{r.rate:,.0f}"
        spread = "" if r.spread is None else f"+{100 * r.spread:.0f} %"
        counts = (f"{r.subscriptions:,}", f"{r.changes:,}", f"{r.deltas:,}")
        table.add_row(r.shape, *counts, rate, spread, f"{r.right} of {r.checked}")
    console.print(table)


def _measure(shape: str, setting: EngineSetting) -> ShapeResult:
    queries = draw_queries(shape, setting.subscriptions, setting.seed)
    work = draw_stocks(setting.changes, setting.seed)
    engine = _engine(queries, work.load)
    batches = _batches(engine, work.changes, setting.batch)
    sample = Random(setting.seed).sample(range(1, len(queries) + 1), min(SAMPLE, len(queries)))
    client = Client()
    for number in sample:
        client.start(number, engine.content(number))
    emitted, first = _timed(engine, batches)
    client.receive(delta for deltas in emitted for delta in _of(deltas, sample))
    right = sum(_is_right(engine, client, number, work.changes) for number in sample)
    deltas = sum(map(len, emitted))
    if right < len(sample):
        return ShapeResult(shape, len(queries), len(work.changes), deltas, len(sample), right)
    times = [first] + [_timed(_engine(queries, work.load), batches)[1] for _ in range(setting.repeat - 1)]
    best = min(times)
    spread = max(times) / best - 1
    return ShapeResult(shape, len(queries), len(work.changes), deltas, len(sample), right, best, spread)


def _engine(queries: list[str], load: list[StockChange]) -> Engine:
    engine = Engine()
    engine.execute(DDL)
    for batch in _batches(engine, load, len(load) or 1):
        engine.apply_all(batch)
    for query in queries:
        engine.subscribe(query)
    return engine


def _batches(engine: Engine, changes: list[StockChange], size: int) -> list[dict[str, ChangeBatch]]:
    """Batches with sequence numbers, ready to apply: reading rows is not measured."""
    out = []
    for start in range(0, len(changes), size):
        batch: dict[str, ChangeBatch] = {}
        numbered = list(enumerate(changes[start : start + size], start=engine.last_seq + 1 + start))
        for table in dict.fromkeys(change.table for _, change in numbered):
            own = [(seq, change) for seq, change in numbered if change.table == table]
            rows, ops, seqs = [c.row for _, c in own], [c.op for _, c in own], [seq for seq, _ in own]
            made, bad = ChangeBatch.from_dicts(engine.schema(table), rows, ops, seqs)
            batch[table] = made.or_raise(bad)
        out.append(batch)
    return out


def _timed(engine: Engine, batches: list[dict[str, ChangeBatch]]) -> tuple[list[Deltas], float]:
    began = time.perf_counter()
    emitted = [engine.apply_all(batch) for batch in batches]
    return emitted, time.perf_counter() - began


def _of(deltas: Deltas, ids: list[int]) -> Deltas:
    return deltas.take(np.isin(deltas.subscription, ids))


def _is_right(engine: Engine, client: Client, number: int, changes: list[StockChange]) -> bool:
    """Whether the content accumulated from deltas equals the query over the tables and all events."""
    schemas = engine.schemas()
    database = {s.name: engine.rows(s.name).to_pylist() for s in schemas if not isinstance(s, Stream)}
    database |= {
        s.name: [c.row for c in changes if c.table == s.name] for s in schemas if isinstance(s, Stream)
    }
    answer = evaluate(engine.query(number), database, {s.name: s.key for s in schemas})
    return as_bag(client.content(number)) == as_bag(answer)

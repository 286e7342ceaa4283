"""Generated stocks, reviews, sectors and listings, and subscriptions of every shape over them.

Everything is drawn by a seed. Ranges are as wide as people's: a subscription selects a few percent of
the rows, or the events, that its table sees.

>>> work = stocks(changes=100, seed=1)
>>> len(work.changes), work.changes[0].op
(100, 'insert')
>>> draw_queries("topk", 1, seed=0)[0].startswith("SELECT symbol, per FROM stocks WHERE risk BETWEEN")
True
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from tocsin.errors import TocsinError

__all__ = ["DDL", "SHAPES", "Change", "Workload", "draw_queries", "stocks"]

DDL = """
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, sector BIGINT, PRIMARY KEY (symbol));
CREATE TABLE reviews (id BIGINT, symbol STRING, rating DOUBLE, PRIMARY KEY (id));
CREATE TABLE sectors (code BIGINT, growth DOUBLE, PRIMARY KEY (code));
CREATE STREAM listings (model STRING, price DOUBLE, storage BIGINT)
"""
SYMBOLS, REVIEWS, SECTORS = 300, 400, 20  # rows at most


class Change(NamedTuple):
    """One change of a workload."""

    table: str
    op: str
    row: dict[str, Any]


class Workload(NamedTuple):
    """What is loaded before the clock runs, and what is measured."""

    load: list[Change]
    changes: list[Change]


def stocks(changes: int, seed: int) -> Workload:
    """Half of the stocks and reviews are there; then new ones come, change, and go, among listings."""
    draw = Random(seed)
    world = _World(draw)
    load = [
        Change("sectors", "insert", {"code": code, "growth": draw.gauss(3, 4)}) for code in range(SECTORS)
    ]
    load += [world.next("stocks") for _ in range(SYMBOLS // 2)]
    load += [world.next("reviews") for _ in range(REVIEWS // 2)]
    return Workload(
        load, [world.next(draw.choice(("stocks", "reviews", "listings"))) for _ in range(changes)]
    )


class _World:
    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.alive: dict[str, set[Any]] = {"stocks": set(), "reviews": set()}

    def next(self, table: str) -> Change:
        draw = self.draw
        if table == "listings":
            row = {
                "model": f"x{draw.randrange(40)}",
                "price": draw.uniform(50, 1000),
                "storage": 2 ** draw.randrange(4, 11),
            }
            return Change(table, "insert", row)
        key = draw.randrange(SYMBOLS if table == "stocks" else REVIEWS)
        row = self._row(table, key)
        alive = self.alive[table]
        if key not in alive:
            alive.add(key)
            return Change(table, "insert", row)
        if draw.random() < 0.2:
            alive.remove(key)
            return Change(table, "delete", dict([next(iter(row.items()))]))
        return Change(table, "update", row)

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

"""Random queries with expressions that Spark and this engine take: filters, first rows, aggregates, groups.

Each query is also given as what Spark computes of it. Conditions have folded text, CASE, CAST, functions and
comparisons of columns, and constants that indexes use; for events also paths, and conditions on elements.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from tests.strategies import expressions as known
from tests.strategies.expressions import FIELDS, literal
from tocsin.model.schema import Type

__all__ = ["EVENT_DDL", "SHAPES", "EventQuery", "SparkQuery", "event_queries", "events", "queries", "rows"]

SHAPES = ("filter", "aggregate", "group", "distinct", "topk")
_OPS = ["=", "!=", "<", "<=", ">", ">=", "<=>"]
_SHOWN = [Type.BIGINT, Type.DOUBLE, Type.STRING, Type.BOOLEAN, Type.DATE, Type.TIMESTAMP]
_KEYS = [Type.BIGINT, Type.STRING, Type.BOOLEAN, Type.DATE]  # of groups: doubles differ in the last digits
_WORDS = ["a", "ab", "AB", "b", "spark", "SQL", "of", "x-1", "50%", "a_b", "UPPER"]


class SparkQuery(NamedTuple):
    """A query; the types of its columns; its condition and what it selects, as Spark has them."""

    shape: str
    text: str
    types: tuple[Type, ...]
    items: tuple[str, ...]
    where: str
    after: str = ""  # GROUP BY, ORDER BY


def rows(seed: int, count: int) -> list[dict[str, Any]]:
    """Rows with a key `k`."""
    return [{"k": n, **row} for n, row in enumerate(known.rows(seed, count))]


def queries(seed: int, count: int, shape: str) -> list[SparkQuery]:
    """Random queries of a shape over the relation `r`."""
    draw = random.Random(f"{seed} {shape}")
    return [_MAKERS[shape](draw) for _ in range(count)]


def _filter(draw: random.Random) -> SparkQuery:
    kinds = [draw.choice(_SHOWN) for _ in range(draw.randrange(3))]
    return _query("filter", ["k", *(_column(draw, kind) for kind in kinds)], [Type.BIGINT, *kinds], draw)


def _aggregate(draw: random.Random) -> SparkQuery:
    found = [_one_aggregate(draw) for _ in range(draw.randrange(1, 4))]
    return _query("aggregate", [text for text, _ in found], [kind for _, kind in found], draw)


def _group(draw: random.Random) -> SparkQuery:
    kind = draw.choice(_KEYS)
    key, found = _column(draw, kind), [_one_aggregate(draw) for _ in range(draw.randrange(1, 3))]
    having = draw.choice(["", "", " HAVING COUNT(*) > 1", f" HAVING MAX(b) > {draw.choice([0, 100])}"])
    items, types = [key, *(text for text, _ in found)], [kind, *(kind for _, kind in found)]
    return _query("group", items, types, draw, f" GROUP BY {key}{having}")


def _distinct(draw: random.Random) -> SparkQuery:
    kinds = [draw.choice(_KEYS) for _ in range(draw.randrange(1, 3))]
    return _query("distinct", [_column(draw, kind) for kind in kinds], kinds, draw)


def _topk(draw: random.Random) -> SparkQuery:
    kind = draw.choice([Type.BIGINT, Type.DOUBLE, Type.DATE, Type.TIMESTAMP])
    key, word = _column(draw, kind), draw.choice(["", " DESC", " ASC"])
    return _query(
        "topk",
        ["k", key],
        [Type.BIGINT, kind],
        draw,
        f" ORDER BY {key}{word}, k LIMIT {draw.randrange(1, 5)}",
    )


_MAKERS = {
    "filter": _filter, "aggregate": _aggregate, "group": _group, "distinct": _distinct, "topk": _topk,
}  # fmt: skip


def _query(
    shape: str, items: list[str], types: list[Type], draw: random.Random, after: str = ""
) -> SparkQuery:
    where = _condition(draw, 2)
    shown = ", ".join(f"{text} AS c{n}" for n, text in enumerate(items))
    word = "SELECT DISTINCT" if shape == "distinct" else "SELECT"
    text = f"{word} {shown} FROM r WHERE {where}{after}"
    return SparkQuery(shape, text, tuple(types), tuple(items), where, after)


def _one_aggregate(draw: random.Random) -> tuple[str, Type]:
    """Sums are of small numbers: none overflows, and their order makes no difference."""
    form = draw.choice(["COUNT(*)", "COUNT", "SUM", "AVG", "MIN", "MAX", "MIN", "MAX"])
    if form == "COUNT(*)":
        return form, Type.BIGINT
    if form == "COUNT":
        return f"COUNT({_column(draw, draw.choice(_SHOWN))})", Type.BIGINT
    if form in ("SUM", "AVG"):
        small = f"({_column(draw, Type.BIGINT)} % 1000L)"
        return f"{form}({small})", Type.BIGINT if form == "SUM" else Type.DOUBLE
    kind = draw.choice([Type.BIGINT, Type.DOUBLE, Type.DATE, Type.TIMESTAMP])
    return f"{form}({_column(draw, kind)})", kind


def _column(draw: random.Random, kind: Type) -> str:
    """An expression that reads a column."""
    if draw.random() < 0.3:
        return draw.choice(known._COLUMNS[kind])
    while True:
        text = known._text(draw, kind, draw.randrange(1, 3))
        if any(f"{before}{field.name}{after}" in f" {text} " for field in FIELDS for before in " (-"
               for after in " ),"):  # fmt: skip
            return text


def _condition(draw: random.Random, depth: int) -> str:
    if depth and draw.random() < 0.5:
        word = draw.choice([" AND ", " OR "])
        return "(" + word.join(_condition(draw, depth - 1) for _ in range(draw.randrange(2, 4))) + ")"
    if draw.random() < 0.2:
        return f"(NOT {_condition(draw, max(0, depth - 1))})"
    return _atom(draw)


def _atom(draw: random.Random) -> str:
    turn = draw.random()
    if turn < 0.35:
        return _column(draw, Type.BOOLEAN)
    if turn < 0.55:
        return _folded(draw, _column(draw, Type.STRING))
    kind = draw.choice([Type.BIGINT, Type.DOUBLE, Type.STRING, Type.DATE, Type.TIMESTAMP])
    own, values = _column(draw, kind), [literal(kind, draw.choice(known._VALUES[kind])) for _ in range(3)]
    if turn < 0.8:
        return f"({own} {draw.choice(_OPS)} {values[0]})"
    if turn < 0.87:
        return f"({own} {draw.choice(['', 'NOT '])}BETWEEN {values[0]} AND {values[1]})"
    if turn < 0.94:
        return f"({own} {draw.choice(['', 'NOT '])}IN ({', '.join(values)}))"
    return f"({own} IS {draw.choice(['', 'NOT '])}NULL)"


def _folded(draw: random.Random, own: str) -> str:
    """A condition on text without regard to case."""
    word, letter = draw.choice(_WORDS), draw.choice(["", "NOT "])
    pattern = draw.choice([word, f"{word}%", f"%{word}", f"%{word}%", f"{word[:1]}%{word[-1:]}"])
    return draw.choice(
        [
            f"({own} {letter}ILIKE '{pattern}')",
            f"(lower({own}) = '{word.lower()}')",
            f"(upper({own}) {letter}LIKE '{pattern.upper()}')",
            f"(lower({own}) {letter}IN ('{word.lower()}', 'abc', ''))",
            f"({own} RLIKE '(?i){draw.choice(['ab', 'spark', 'a', 'upper'])}')",
            f"contains(lower({own}), '{word.lower()}')",
            f"startswith(upper({own}), '{word.upper()}')",
            f"endswith(lower({own}), '{word.lower()}')",
        ]
    )


# -- events -------------------------------------------------------------------------------------------


class EventQuery(NamedTuple):
    """A filter over an open stream `e`, and its condition as Spark has it over columns of structs."""

    text: str
    where: str


EVENT_DDL = (
    "k BIGINT, item STRUCT<brand: STRING, price: DOUBLE, stock: STRUCT<count: BIGINT, place: STRING>>, "
    "tags ARRAY<STRING>, parts ARRAY<STRUCT<kind: STRING, size: BIGINT>>, source STRING"
)
_PATHS = {
    Type.STRING: ["item.brand", "item['brand']", "item.stock.place", "tags[0]", "tags[1]", "source"],
    Type.DOUBLE: ["item.price", "item['price']"],
    Type.BIGINT: ["item.stock.count", "item.stock['count']"],
}
_EVENT_TEXTS = ["acme", "Acme", "bolt", "x", "new", "NEW-1", "on sale", ""]
_EVENT_VALUES: dict[Type, list[Any]] = {
    Type.STRING: _EVENT_TEXTS, Type.DOUBLE: [0.5, 1.5, -2.25, 100.0], Type.BIGINT: [0, 1, 2, 7, -3],
}  # fmt: skip


def events(seed: int, count: int) -> list[dict[str, Any]]:
    """Random events; what has no value is missing. Elements of lists have values."""
    draw = random.Random(seed)

    def some(**given: Any) -> dict[str, Any]:
        return {name: value for name, value in given.items() if draw.random() < 0.85}

    return [
        {
            "k": n,
            **some(
                item=some(
                    brand=draw.choice(_EVENT_TEXTS),
                    price=draw.choice(_EVENT_VALUES[Type.DOUBLE]),
                    stock=some(
                        count=draw.choice(_EVENT_VALUES[Type.BIGINT]), place=draw.choice(_EVENT_TEXTS)
                    ),
                ),
                tags=[draw.choice(_EVENT_TEXTS) for _ in range(draw.randrange(4))],
                parts=[
                    {
                        "kind": draw.choice(_EVENT_TEXTS),
                        "size": draw.choice(_EVENT_VALUES[Type.BIGINT]),
                    }
                    for _ in range(draw.randrange(3))
                ],
                source=draw.choice(_EVENT_TEXTS),
            ),
        }
        for n in range(count)
    ]


def event_queries(seed: int, count: int) -> list[EventQuery]:
    """Random filters over paths."""
    draw = random.Random(f"{seed} events")
    wheres = [_event_condition(draw, 2) for _ in range(count)]
    return [EventQuery(f"SELECT k FROM e WHERE {where}", where) for where in wheres]


def _event_condition(draw: random.Random, depth: int) -> str:
    if depth and draw.random() < 0.5:
        word = draw.choice([" AND ", " OR "])
        return "(" + word.join(_event_condition(draw, depth - 1) for _ in range(draw.randrange(2, 4))) + ")"
    if draw.random() < 0.2:
        return f"(NOT {_event_condition(draw, max(0, depth - 1))})"
    return _event_atom(draw)


def _event_atom(draw: random.Random) -> str:
    turn = draw.random()
    if turn < 0.2:
        return _on_elements(draw)
    if turn < 0.4:
        return _folded(draw, _on_path(draw, Type.STRING))
    kind = draw.choice([Type.STRING, Type.DOUBLE, Type.BIGINT])
    own, values = _on_path(draw, kind), [literal(kind, draw.choice(_EVENT_VALUES[kind])) for _ in range(3)]
    if turn < 0.7:
        return f"({own} {draw.choice(_OPS)} {values[0]})"
    if turn < 0.75:
        return f"({own} {draw.choice(['', 'NOT '])}BETWEEN {values[0]} AND {values[1]})"
    if turn < 0.85:
        return f"({own} {draw.choice(['', 'NOT '])}IN ({', '.join(values)}))"
    if turn < 0.92:
        return f"({own} IS {draw.choice(['', 'NOT '])}NULL)"
    return f"({own} {draw.choice(_OPS[:-1])} {_on_path(draw, kind)})"


def _on_path(draw: random.Random, kind: Type) -> str:
    """A path, or what is computed from paths."""
    path = draw.choice(_PATHS[kind])
    if draw.random() < 0.6:
        return path
    forms = {
        Type.STRING: ["lower({0})", "concat({0}, {1})", "substr({0}, 2)", "coalesce({0}, {1})", "trim({0})",
                      "CASE WHEN {0} = 'x' THEN {1} ELSE {0} END", "replace({0}, 'a', 'b')"],
        Type.DOUBLE: ["({0} * 2.0D)", "abs({0})", "({0} + {1})", "round({0}, 1)", "nullif({0}, {1})"],
        Type.BIGINT: ["({0} + 1L)", "({0} * {1})", "length(item.brand)", "greatest({0}, 1L)",
                      "coalesce({0}, 5L)", "CAST({0} AS INT)"],
    }  # fmt: skip
    return draw.choice(forms[kind]).format(path, draw.choice(_PATHS[kind]))


def _on_elements(draw: random.Random) -> str:
    text, number = draw.choice(_EVENT_TEXTS), draw.choice(_EVENT_VALUES[Type.BIGINT])
    return draw.choice(
        [
            f"array_contains(tags, '{text}')",
            f"exists(tags, t -> t LIKE '{text[:1]}%')",
            f"exists(tags, t -> t ILIKE '%{text}%')",
            f"exists(tags, t -> t IN ('{text}', 'x') OR t > 'o')",
            f"exists(parts, p -> p.kind = '{text}' AND p.size > {number}L)",
            f"exists(parts, p -> lower(p.kind) = '{text.lower()}' OR p.size BETWEEN {number}L AND 2L)",
            f"exists(parts, p -> p.size * 2L = {2 * number}L)",
        ]
    )

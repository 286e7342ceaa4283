"""Random stored queries and documents over one mapping."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["document", "query"]

TEXTS = [
    "Quick brown fox",
    "the fox",
    "brown fox's den",
    "QUICK",
    "",
    "quick-brown 5",
    "a b a",
    "fox brown quick",
]
WORDS = ["quick", "brown", "fox", "the", "fox's", "a", "b", "5", "den", "Quick", "none"]
STATES = ["new", "New", "old", "5", "true", "newest", "n%w", "a_b", ""]
DATES = ["2024-01-01", "2024-01-02", "2024-01-02T10:00:00Z", "2024-01-02T10:00:01Z", "1704103200000"]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.1.0.1", "192.168.0.1"]
NUMBERS = [0, 1, 2, 5, -3, 7.5, 5.0]


def several(rng: random.Random, make: Any) -> Any:
    """A value, or a list of some; rarely null."""
    shape = rng.random()
    if shape < 0.55:
        return make()
    if shape < 0.62:
        return None
    return [make() if rng.random() < 0.9 else None for _ in range(rng.randint(0, 3))]


def document(rng: random.Random) -> dict[str, Any]:
    number = lambda: rng.choice([*NUMBERS, "5"])  # noqa: E731
    makers = {
        "title": lambda: rng.choice(TEXTS),
        "note": lambda: rng.choice(TEXTS),
        "state": lambda: rng.choice([*STATES, 5, True]),
        "short": lambda: rng.choice(STATES),
        "n": number,
        "price": number,
        "ok": lambda: rng.choice([True, False, "true"]),
        "at": lambda: rng.choice([*DATES, 1704103200000]),
        "ip": lambda: rng.choice(ADDRESSES),
        "place": lambda: {"lat": rng.choice([0, 1.0, 2]), "lon": rng.choice([0, 1, 179.5])},
        "o": lambda: {"state": several(rng, lambda: rng.choice(STATES)), "n": several(rng, number)},
        "items": lambda: item(rng),
    }
    found = {name: several(rng, make) for name, make in makers.items() if rng.random() < 0.6}
    if rng.random() < 0.7:
        found["_id"] = rng.choice(["a", "b", "7"])
    return found


def item(rng: random.Random) -> dict[str, Any]:
    return {
        "sku": several(rng, lambda: rng.choice(STATES)),
        "n": several(rng, lambda: rng.choice(NUMBERS)),
        "text": several(rng, lambda: rng.choice(TEXTS)),
        "parts": several(
            rng, lambda: {"k": rng.choice(STATES), "v": several(rng, lambda: rng.choice(NUMBERS))}
        ),
    }


def part(rng: random.Random) -> dict[str, Any]:
    return {"k": rng.choice(STATES), "v": several(rng, lambda: rng.choice(NUMBERS))}


def query(rng: random.Random, depth: int = 3, scope: str = "") -> dict[str, Any]:
    if depth and rng.random() < 0.5:
        return compound(rng, depth, scope)
    return leaf(rng, scope)


def compound(rng: random.Random, depth: int, scope: str) -> dict[str, Any]:
    inner = lambda: query(rng, depth - 1, scope)  # noqa: E731
    if rng.random() < 0.3 and scope in ("", "items"):
        path = "items" if not scope else "items.parts"
        return {"nested": {"path": path, "query": query(rng, depth - 1, path)}}
    body: dict[str, Any] = {}
    for name in ("must", "filter", "must_not", "should"):
        if rng.random() < 0.4:
            parts = [inner() for _ in range(rng.randint(1, 4 if name == "should" else 2))]
            body[name] = parts[0] if len(parts) == 1 and rng.random() < 0.5 else parts
    if rng.random() < 0.4:
        body["minimum_should_match"] = rng.choice([0, 1, 2, 3, -1, "50%", "75%"])
    return {"bool": body}


def leaf(rng: random.Random, scope: str) -> dict[str, Any]:
    if scope == "items":
        names = {"keyword": ["items.sku"], "number": ["items.n"], "text": ["items.text"]}
    elif scope == "items.parts":
        names = {"keyword": ["items.parts.k"], "number": ["items.parts.v"], "text": []}
    else:
        names = {
            "keyword": ["state", "short", "title.raw", "title.low", "o.state"],
            "number": ["n", "price", "o.n"],
            "text": ["title", "note"],
        }
        if rng.random() < 0.3:
            return other_leaf(rng)
    kind = rng.choice([kind for kind, fields in names.items() if fields])
    field = rng.choice(names[kind])
    if rng.random() < 0.1:
        return {"exists": {"field": field if kind != "text" else names["keyword"][0]}}
    if kind == "number":
        value = lambda: rng.choice([*NUMBERS, "5"])  # noqa: E731
        return rng.choice([
            {"term": {field: value()}}, {"terms": {field: [value(), value()]}}, {"match": {field: value()}},
            {"range": {field: {rng.choice(["gt", "gte"]): value()}}},
            {"range": {field: {rng.choice(["gt", "gte"]): 0, rng.choice(["lt", "lte"]): value()}}},
        ])  # fmt: skip
    if kind == "text":
        return text_leaf(rng, field)
    value = lambda: rng.choice(STATES)  # noqa: E731
    return rng.choice([
        {"term": {field: value()}}, {"term": {field: {"value": value()}}},
        {"terms": {field: [value(), value()]}}, {"match": {field: value()}},
        {"match_phrase": {field: value()}}, {"prefix": {field: rng.choice(["n", "ne", "N", "5", "t", "n%"])}},
        {"prefix": {field: {"value": rng.choice(["N", "nE"]), "case_insensitive": True}}},
        {"wildcard": {field: rng.choice(["n*", "?ew", "*", "*_b", "n?w*", "5"])}},
        {"regexp": {field: rng.choice(["n.*", "[nN]ew(est)?", "[^n].*", "\\d", "o|old", ".{3}"])}},
        {"range": {field: {"gte": value(), "lt": "old"}}},
    ])  # fmt: skip


def text_leaf(rng: random.Random, field: str) -> dict[str, Any]:
    some = lambda: " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 3)))  # noqa: E731
    return rng.choice([
        {"match": {field: some()}}, {"match": {field: {"query": some(), "operator": "and"}}},
        {"match": {field: {"query": "quick brown fox", "minimum_should_match": rng.choice([1, 2, 3])}}},
        {"match_phrase": {field: some()}}, {"term": {field: rng.choice(WORDS)}},
        {"terms": {field: [rng.choice(WORDS), rng.choice(WORDS)]}},
        {"prefix": {field: rng.choice(["qu", "f", "Q"])}},
        {"wildcard": {field: rng.choice(["q*k", "?ox", "f*"])}},
        {"regexp": {field: rng.choice(["[fb]o.*", "qu.ck", "[^f]..", "\\w+"])}},
    ])  # fmt: skip


def other_leaf(rng: random.Random) -> dict[str, Any]:
    return rng.choice([
        {"ids": {"values": ["a", "7"]}}, {"exists": {"field": rng.choice(["at", "ip", "ok", "n", "o"])}},
        {"term": {"ok": rng.choice([True, False, "true"])}}, {"term": {"at": rng.choice(DATES)}},
        {"range": {"at": {rng.choice(["gt", "gte", "lt", "lte"]): rng.choice(DATES)}}},
        {"term": {"ip": rng.choice([*ADDRESSES, "10.0.0.0/16", "10.0.0.0/8"])}}, {"match_all": {}},
        {"geo_distance": {"distance": rng.choice(["1km", "120km", "200km"]), "place": {"lat": 0, "lon": 1}}},
    ])  # fmt: skip

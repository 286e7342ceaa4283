"""A second evaluator of stored queries: it indexes a document by field, and looks queries up in it.

It shares no code with the product: nested objects are documents of their own, with their own terms.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["MAPPING", "matches"]

MAPPING = {
    "properties": {
        "title": {"type": "text", "fields": {
            "raw": {"type": "keyword"}, "low": {"type": "keyword", "normalizer": "lowercase"},
        }},
        "note": {"type": "text", "analyzer": "whitespace"},
        "state": {"type": "keyword"},
        "short": {"type": "keyword", "ignore_above": 3},
        "n": {"type": "long"},
        "price": {"type": "double"},
        "ok": {"type": "boolean"},
        "at": {"type": "date"},
        "ip": {"type": "ip"},
        "place": {"type": "geo_point"},
        "o": {"properties": {"state": {"type": "keyword"}, "n": {"type": "integer"}}},
        "items": {"type": "nested", "properties": {
            "sku": {"type": "keyword"}, "n": {"type": "long"}, "text": {"type": "text"},
            "parts": {"type": "nested", "properties": {"k": {"type": "keyword"}, "v": {"type": "long"}}},
        }},
    }
}  # fmt: skip


def words(text: str, analyzer: str) -> list[str]:
    if analyzer == "whitespace":
        return text.split()
    return re.findall(r"[a-z0-9]+(?:'[a-z]+)?", text.lower())


def millis(text: str, up: bool = False) -> int:
    """Of a date, with or without a time of day."""
    if re.fullmatch(r"\d{10,}", text):
        return int(text)
    form = "%Y-%m-%dT%H:%M:%S" if "T" in text else "%Y-%m-%d"
    found = datetime.strptime(text.removesuffix("Z"), form).replace(tzinfo=UTC)
    if up:
        found += timedelta(seconds=1) if "T" in text else timedelta(days=1)
    return int(found.timestamp()) * 1000 - up


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Indexed:
    """One document, or one nested object, by field: lists of words, or terms; and what is nested in it."""

    def __init__(self, source: dict[str, Any], properties: dict[str, Any], prefix: str = "") -> None:
        self.terms: dict[str, list[Any]] = {}
        self.types: dict[str, dict[str, Any]] = {}
        self.inside: dict[str, list[Indexed]] = {}
        self.present: set[str] = set()
        self._add(source, properties, prefix)

    def _add(self, source: dict[str, Any], properties: dict[str, Any], prefix: str) -> None:
        for name, how in properties.items():
            path = prefix + name
            if how.get("type") == "nested":
                self.inside[path] = [
                    Indexed(one, how["properties"], path + ".")
                    for one in flat(source.get(name))
                    if isinstance(one, dict)
                ]
            elif "properties" in how:
                for one in flat(source.get(name)):
                    if isinstance(one, dict):
                        self._add(one, how["properties"], path + ".")
                for inner, its in how["properties"].items():
                    self.types[f"{path}.{inner}"] = its
            else:
                self.types[path] = how
                points = how["type"] == "geo_point"
                values = [source.get(name)] if points else flat(source.get(name))
                self._index(path, how, values)
                for extra, its in how.get("fields", {}).items():
                    self.types[f"{path}.{extra}"] = its
                    self._index(f"{path}.{extra}", its, values)

    def _index(self, path: str, how: dict[str, Any], values: list[Any]) -> None:
        for value in values:
            if value is None:
                continue
            term = term_of(value, how)
            if term is not None:
                self.terms.setdefault(path, []).append(term)
                self.present.add(path)


def flat(value: Any) -> list[Any]:
    return [x for one in value for x in flat(one)] if isinstance(value, list) else [value]


def term_of(value: Any, how: dict[str, Any]) -> Any:
    kind = how["type"]
    if kind == "text":
        return words(as_text(value), how.get("analyzer", "standard"))
    if kind == "keyword":
        text = as_text(value)
        if len(text) > how.get("ignore_above", 1000):
            return None
        return text.lower() if how.get("normalizer") else text
    if kind in ("long", "integer"):
        return math.trunc(float(value))
    if kind == "double":
        return float(value)
    if kind == "boolean":
        return value is True or value == "true"
    if kind == "date":
        return millis(as_text(value))
    return value


# -- queries ----------------------------------------------------------------------------------------------


def matches(query: dict[str, Any], source: dict[str, Any]) -> bool:
    return run(query, Indexed(source, MAPPING["properties"]), source)


def run(query: dict[str, Any], doc: Indexed, source: dict[str, Any]) -> bool:
    ((name, body),) = query.items()
    if name == "match_all":
        return True
    if name == "bool":
        return run_bool(body, doc, source)
    if name == "nested":
        return any(run(body["query"], one, source) for one in doc.inside[body["path"]])
    if name == "ids":
        return str(source.get("_id")) in body["values"]
    if name == "exists":
        field = body["field"]
        return any(one == field or (one.startswith(field + ".") and field in ("o",)) for one in doc.present)
    if name == "geo_distance":
        return near(body, doc)
    ((field, given),) = body.items()
    how, terms = doc.types[field], doc.terms.get(field, [])
    return LEAVES[name](terms, given, how)


def run_bool(body: dict[str, Any], doc: Indexed, source: dict[str, Any]) -> bool:
    def part(name: str) -> list[bool]:
        given = body.get(name, [])
        return [run(one, doc, source) for one in ([given] if isinstance(given, dict) else given)]

    must = part("must") + part("filter")
    should = part("should")
    wanted = body.get("minimum_should_match", 0 if must or not should else 1)
    if isinstance(wanted, str) and wanted.endswith("%"):
        wanted = len(should) * int(wanted[:-1]) // 100
    wanted = int(wanted)
    if wanted < 0:
        wanted = max(0, len(should) + wanted)
    return all(must) and not any(part("must_not")) and sum(should) >= wanted


def near(body: dict[str, Any], doc: Indexed) -> bool:
    lat, lon = body["place"]["lat"], body["place"]["lon"]
    km = float(body["distance"].removesuffix("km"))
    for value in doc.terms.get("place", []):
        for point in filter(None, flat(value)):
            a, b = math.radians(lat), math.radians(point["lat"])
            cosine = math.sin(a) * math.sin(b) + math.cos(a) * math.cos(b) * math.cos(
                math.radians(lon - point["lon"])
            )
            if 6371.0087714 * math.acos(max(-1.0, min(1.0, cosine))) <= km:
                return True
    return False


def is_term(terms: list[Any], given: Any, how: dict[str, Any]) -> bool:
    if isinstance(given, dict):
        given = given["value"]
    if how["type"] == "text":
        return any(given in tokens for tokens in terms)
    if how["type"] == "date":
        return any(millis(given) <= term <= millis(given, up=True) for term in terms)
    if how["type"] == "ip":
        if "/" in given:
            network, bits = given.split("/")
            return any(number(t) >> 32 - int(bits) == number(network) >> 32 - int(bits) for t in terms)
        return given in terms
    if how["type"] in ("long", "integer"):
        return float(given) in terms
    return term_of(given, {**how, "ignore_above": 1000}) in terms


def number(address: str) -> int:
    a, b, c, d = map(int, address.split("."))
    return (a << 24) + (b << 16) + (c << 8) + d


def in_range(terms: list[Any], given: dict[str, Any], how: dict[str, Any]) -> bool:
    def holds(term: Any) -> bool:
        for name, bound in given.items():
            if how["type"] == "date":
                bound = millis(bound, up=name in ("gt", "lte"))
            elif how["type"] == "keyword":
                bound = as_text(bound)
            else:
                bound = float(bound)
            inside = {"gt": term > bound, "gte": term >= bound, "lt": term < bound, "lte": term <= bound}
            if not inside[name]:
                return False
        return True

    return any(map(holds, terms))


def by_words(terms: list[Any], given: Any, how: dict[str, Any]) -> bool:
    options = given if isinstance(given, dict) else {"query": given}
    if how["type"] != "text":
        return is_term(terms, options["query"], how)
    wanted = words(options["query"], how.get("analyzer", "standard"))
    everything = {token for tokens in terms for token in tokens}
    found = sum(word in everything for word in wanted)
    if options.get("operator") == "and":
        return bool(wanted) and found == len(wanted)
    return found >= max(1, options.get("minimum_should_match", 1)) if wanted else False


def by_phrase(terms: list[Any], given: str, how: dict[str, Any]) -> bool:
    if how["type"] != "text":
        return is_term(terms, given, how)
    wanted = words(given, how.get("analyzer", "standard"))
    return bool(wanted) and any(
        tokens[n : n + len(wanted)] == wanted for tokens in terms for n in range(len(tokens))
    )


def by_regex(terms: list[Any], pattern: str, how: dict[str, Any], flags: int = 0) -> bool:
    all_terms = [token for tokens in terms for token in tokens] if how["type"] == "text" else terms
    return any(re.fullmatch(pattern, term, flags | re.DOTALL) for term in all_terms)


def by_prefix(terms: list[Any], given: Any, how: dict[str, Any]) -> bool:
    options = given if isinstance(given, dict) else {"value": given}
    text = options["value"].lower() if how.get("normalizer") else options["value"]
    return by_regex(
        terms, re.escape(text) + ".*", how, re.IGNORECASE if options.get("case_insensitive") else 0
    )


def by_wildcard(terms: list[Any], given: Any, how: dict[str, Any]) -> bool:
    text = given.lower() if how.get("normalizer") else given
    return by_regex(terms, re.escape(text).replace(r"\*", ".*").replace(r"\?", "."), how)


LEAVES = {
    "term": is_term,
    "terms": lambda terms, given, how: any(is_term(terms, one, how) for one in given),
    "range": in_range,
    "match": by_words,
    "match_phrase": by_phrase,
    "prefix": by_prefix,
    "wildcard": by_wildcard,
    "regexp": by_regex,
}

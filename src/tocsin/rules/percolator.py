r"""Stored queries of Elasticsearch and OpenSearch; `docs/rules-percolator.md` says what differs.

A query names fields, whose types and analyzers are in the `mapping` (`percolator_fields.py`). Scores do not
count: a query matches a document, or not.

    bool        must and filter: AND; must_not: NOT; should: at least minimum_should_match of them
    nested      one element of the list meets the whole query
    leaves      conditions of one field

>>> queries = [{"bool": {"must": {"match": {"title": "quick fox"}}, "must_not": {"term": {"state": "old"}}}}]
>>> (found,) = Percolator().read(queries)
>>> print(str(found.where).replace(" AND NOT", "\n AND NOT"))
(indexed(title, 'standard') LIKE '% quick %' OR indexed(title, 'standard') LIKE '% fox %')
 AND NOT exists(state[*], e1 -> e1 = 'old') = TRUE
>>> print(*Percolator().read([{"match": {"title": {"query": "fox", "fuzziness": 2}}}]))
rule 1: match.title.fuzziness: 2: this option is not supported
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Any

from tocsin.language.algebra import Column, Compare, In, Not, Predicate, Truth, is_true
from tocsin.model.paths import MARK
from tocsin.rules.atoms import all_of, any_of, element, exists_in
from tocsin.rules.base import RefusedError, RuleLanguage
from tocsin.rules.percolator_fields import Fields, NestedScope, leaves_of

__all__ = ["Percolator", "all_parts", "any_part", "at_least", "minimum", "never"]

_MOST = 256  # ways to choose what must hold among alternatives
_IGNORED = frozenset(
    "boost _name score_mode rewrite max_determinized_states auto_generate_synonyms_phrase_query".split()
)
_KILOMETRES = {
    "km": 1.0, "kilometers": 1.0, "m": 1e-3, "meters": 1e-3, "cm": 1e-5, "centimeters": 1e-5, "mm": 1e-6,
    "millimeters": 1e-6, "mi": 1.609344, "miles": 1.609344, "yd": 0.9144e-3, "yards": 0.9144e-3,
    "ft": 0.3048e-3, "feet": 0.3048e-3, "in": 0.0254e-3, "inch": 0.0254e-3, "nmi": 1.852, "NM": 1.852,
    "nauticalmiles": 1.852, "": 1e-3,
}  # fmt: skip


class Percolator(RuleLanguage):
    """Queries as dicts or JSON texts: the query itself, or a document that has it as `query`.

    `mapping` is that of the index: fields with types and analyzers. `id_field` is the attribute that has a
    document's id.
    """

    kind = "percolator"

    def __init__(self, mapping: Mapping[str, Any] | str | None = None, id_field: str = "_id") -> None:
        if isinstance(mapping, str):
            mapping = json.loads(mapping)
        if mapping is not None and not isinstance(mapping, Mapping):
            raise TypeError("mapping is an object")
        self.fields, self._id_field = Fields(mapping), id_field

    def in_file(self, text: str) -> Iterator[Any]:
        """One JSON value, or one per line."""
        try:
            yield json.loads(text)
        except json.JSONDecodeError:
            yield from (line for line in text.splitlines() if line.strip())

    def rules(self, source: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(source, str | bytes):
            try:
                source = json.loads(source)
            except json.JSONDecodeError as error:
                place = f"line {error.lineno}, column {error.colno}"
                raise RefusedError(place, "", f"this is not JSON: {error.msg}") from None
        for one in source if isinstance(source, list) else [source]:
            name = ""
            if isinstance(one, Mapping) and isinstance(one.get("_source"), Mapping):
                name, one = str(one.get("_id") or ""), one["_source"]
            if isinstance(one, Mapping) and isinstance(one.get("query"), Mapping):
                name, one = (
                    name or str(one.get("name") or one.get("_id") or one.get("id") or ""),
                    one["query"],
                )
            yield name, one

    def condition(self, rule: Any) -> Predicate:
        return self.query(rule, NestedScope(), "")

    # -- queries -----------------------------------------------------------------------------------

    def query(self, given: Any, scope: NestedScope, place: str) -> Predicate:
        """The condition of a query in a scope."""
        if not isinstance(given, Mapping) or len(given) != 1:
            raise RefusedError(place, given, "a query is an object with one name")
        ((name, body),) = given.items()
        at = f"{place}.{name}" if place else str(name)
        if name not in _QUERIES:
            raise RefusedError(at, name, "there is no such query, or it is not supported")
        return _QUERIES[name](self, body, scope, at)

    def _several(self, given: Any, scope: NestedScope, place: str) -> list[Predicate]:
        if isinstance(given, Mapping):
            return [self.query(given, scope, place)]
        if not isinstance(given, list | tuple):
            raise RefusedError(place, given, "a query, or a list of queries, is expected here")
        return [self.query(one, scope, f"{place}[{n}]") for n, one in enumerate(given)]

    def _bool(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        found = _options(body, place, ("must", "filter", "must_not", "should", "minimum_should_match"))
        parts = [
            part
            for name in ("must", "filter")
            for part in self._several(found.get(name, ()), scope, f"{place}.{name}")
        ]
        should = self._several(found.get("should", ()), scope, f"{place}.should")
        needed = 1 if should and not parts else 0
        if "minimum_should_match" in found:
            at = f"{place}.minimum_should_match"
            needed = minimum(found["minimum_should_match"], len(should), at)
        elif not parts and not should and not found.get("must_not"):
            return Truth(True)
        if needed:
            parts.append(at_least(should, needed, f"{place}.minimum_should_match"))
        parts += map(never, self._several(found.get("must_not", ()), scope, f"{place}.must_not"))
        return all_parts(parts)

    def _nested(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        found = _options(body, place, ("path", "query", "ignore_unmapped"))
        path = found.get("path")
        if not isinstance(path, str) or "query" not in found:
            raise RefusedError(place, body, "nested has a path and a query")
        names = self.fields.nested(path, scope, f"{place}.path")
        inner = self.query(found["query"], NestedScope(names, scope.level + 1), f"{place}.query")
        steps: list[Any] = []
        for name in names[len(scope.nested) :]:
            steps += [name, ...]
        is_object = Compare(Column(f"{MARK}typeof(e{scope.level + 1})"), "=", "object")
        inner = all_parts([is_object, inner])
        if isinstance(inner, Truth):
            return inner
        return exists_in(element(scope.level, steps), inner, scope.level)

    def _dis_max(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        found = _options(body, place, ("queries", "tie_breaker"))
        return any_part(self._several(found.get("queries", ()), scope, f"{place}.queries"))

    def _constant(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        found = _options(body, place, ("filter",))
        return self.query(found.get("filter"), scope, f"{place}.filter")

    def _match_all(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        _options(body, place, ())
        return Truth(True)

    def _match_none(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        return Truth(False)

    # -- leaves ------------------------------------------------------------------------------------

    def _exists(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        found = _options(body, place, ("field",))
        names = list(leaves_of(self.fields, str(found.get("field", ""))))
        return any_part(
            [self.fields(name, scope, f"{place}.field").exists(f"{place}.field") for name in names]
        )

    def _ids(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        found = _options(body, place, ("values", "type"))
        values = found.get("values", [])
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list) or not all(isinstance(one, str | int) for one in values):
            raise RefusedError(f"{place}.values", values, "ids are texts")
        where = Column(self._id_field)
        if scope.level:
            raise RefusedError(place, "ids", "only whole documents have ids")
        texts = [str(one) for one in values]
        numbers = [int(one) for one in texts if re.fullmatch(r"0|-?[1-9][0-9]{0,14}", one)]
        both: list[Any] = [*texts, *numbers]
        return In(where, tuple(both)) if both else Truth(False)

    def _term(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        name, found = _field_of(body, place, "value", ("case_insensitive",))
        at = f"{place}.{name}"
        return self.fields(name, scope, at).term(found["value"], at, _flag(found, "case_insensitive", at))

    def _terms(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        found = dict(_mapping(body, place))
        for word in _IGNORED:
            found.pop(word, None)
        if len(found) != 1:
            raise RefusedError(place, body, "terms has one field with a list of values")
        ((name, values),) = found.items()
        return self.fields(name, scope, f"{place}.{name}").terms(values, f"{place}.{name}")

    def _range(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        name, found = _field_of(body, place, "", ("gt", "gte", "lt", "lte"))
        at = f"{place}.{name}"
        return self.fields(name, scope, at).range(found, at)

    def _prefix(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        name, found = _field_of(body, place, "value", ("case_insensitive",))
        at = f"{place}.{name}"
        return self.fields(name, scope, at).prefix(found["value"], at, _flag(found, "case_insensitive", at))

    def _wildcard(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        name, found = _field_of(body, place, "value", ("case_insensitive", "wildcard"))
        at = f"{place}.{name}"
        pattern = found.get("wildcard", found.get("value"))
        return self.fields(name, scope, at).wildcard(pattern, at, _flag(found, "case_insensitive", at))

    def _regexp(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        name, found = _field_of(body, place, "value", ("case_insensitive", "flags"))
        at = f"{place}.{name}"
        if found.get("flags", "ALL") not in ("ALL", "NONE", ""):
            raise RefusedError(f"{at}.flags", found["flags"], "flags are ALL or NONE")
        return self.fields(name, scope, at).regexp(found["value"], at, _flag(found, "case_insensitive", at))

    def _match(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        options = ("operator", "minimum_should_match", "zero_terms_query", "lenient")
        name, found = _field_of(body, place, "query", options)
        at = f"{place}.{name}"
        words = self.fields(name, scope, at).words(found["query"], at)
        if not words:
            return Truth(found.get("zero_terms_query", "none") == "all")
        operator = str(found.get("operator", "or")).lower()
        if operator not in ("or", "and"):
            raise RefusedError(f"{at}.operator", operator, "the operator is or, or and")
        if operator == "and":
            return all_parts(words)
        needed = 1
        if "minimum_should_match" in found and len(words) > 1:
            needed = max(1, minimum(found["minimum_should_match"], len(words), f"{at}.minimum_should_match"))
        return at_least(words, needed, f"{at}.minimum_should_match")

    def _phrase(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        name, found = _field_of(body, place, "query", ("slop", "zero_terms_query"))
        at = f"{place}.{name}"
        if found.get("slop", 0) != 0:
            raise RefusedError(f"{at}.slop", found["slop"], "words of a phrase follow each other")
        return self.fields(name, scope, at).phrase(found["query"], at)

    def _multi(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        options = ("query", "fields", "type", "operator", "minimum_should_match", "tie_breaker", "lenient")
        found = _options(body, place, options)
        kind = found.get("type", "best_fields")
        if kind not in ("best_fields", "most_fields", "phrase"):
            raise RefusedError(f"{place}.type", kind, "this type is not supported")
        names = _without_boosts(found.get("fields"), f"{place}.fields")
        inner = {word: found[word] for word in ("query", "operator", "minimum_should_match") if word in found}
        if kind == "phrase":
            return any_part([self._phrase({n: {"query": found.get("query")}}, scope, place) for n in names])
        return any_part([self._match({name: inner}, scope, place) for name in names])

    def _geo_distance(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        found = dict(_mapping(body, place))
        distance = _kilometres(found.pop("distance", None), found.pop("unit", ""), f"{place}.distance")
        if found.pop("distance_type", "arc") != "arc":
            raise RefusedError(f"{place}.distance_type", "plane", "distances are on the sphere")
        for word in (*_IGNORED, "validation_method", "ignore_unmapped"):
            found.pop(word, None)
        if len(found) != 1:
            raise RefusedError(place, found, "geo_distance has one field with a point")
        ((name, point),) = found.items()
        at = f"{place}.{name}"
        lat, lon = _point(point, at)
        return self.fields(name, scope, at).near(lat, lon, distance, at)

    def _query_string(self, body: Any, scope: NestedScope, place: str) -> Predicate:
        try:
            from tocsin.rules.percolator_text import condition_of
        except ImportError as error:
            reason = f"it needs the package {error.name}: pip install 'tocsin[percolator]'"
            raise RefusedError(place, "query_string", reason) from None
        options = ("query", "default_field", "fields", "default_operator", "analyze_wildcard", "lenient",
                   "allow_leading_wildcard", "enable_position_increments")  # fmt: skip
        found = _options(body, place, options)
        if found.get("analyze_wildcard"):
            raise RefusedError(f"{place}.analyze_wildcard", True, "this option is not supported")
        names = [found["default_field"]] if "default_field" in found else found.get("fields", [])
        names = _without_boosts(names, f"{place}.fields") if names else []
        operator = str(found.get("default_operator", "or")).lower()
        if operator not in ("or", "and"):
            raise RefusedError(f"{place}.default_operator", operator, "the operator is or, or and")
        return condition_of(self, found.get("query"), names, operator == "and", scope, place)


_QUERIES: dict[str, Callable[[Percolator, Any, NestedScope, str], Predicate]] = {
    "bool": Percolator._bool,
    "constant_score": Percolator._constant,
    "dis_max": Percolator._dis_max,
    "exists": Percolator._exists,
    "geo_distance": Percolator._geo_distance,
    "ids": Percolator._ids,
    "match": Percolator._match,
    "match_all": Percolator._match_all,
    "match_none": Percolator._match_none,
    "match_phrase": Percolator._phrase,
    "multi_match": Percolator._multi,
    "nested": Percolator._nested,
    "prefix": Percolator._prefix,
    "query_string": Percolator._query_string,
    "range": Percolator._range,
    "regexp": Percolator._regexp,
    "term": Percolator._term,
    "terms": Percolator._terms,
    "wildcard": Percolator._wildcard,
}


# -- parts of queries -------------------------------------------------------------------------------------


def _mapping(body: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise RefusedError(place, body, "an object is expected here")
    return body


def _options(body: Any, place: str, known: Sequence[str]) -> dict[str, Any]:
    """The options of a query, all of which are known."""
    found = {name: value for name, value in _mapping(body, place).items() if name not in _IGNORED}
    for name in found:
        if name not in known:
            raise RefusedError(f"{place}.{name}", found[name], "this option is not supported")
    return found


def _field_of(body: Any, place: str, short: str, known: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The field of a query and its options; a value alone stands for the option `short`."""
    given = {name: value for name, value in _mapping(body, place).items() if name not in _IGNORED}
    if len(given) != 1:
        raise RefusedError(place, body, "an object with the name of one field is expected here")
    ((name, value),) = given.items()
    if not isinstance(value, Mapping):
        if not short:
            raise RefusedError(f"{place}.{name}", value, "an object is expected here")
        return name, {short: value}
    found = _options(value, f"{place}.{name}", (*known, short))
    if short and short not in found and "wildcard" not in found:
        raise RefusedError(f"{place}.{name}", value, f"it has no {short}")
    return name, found


def _flag(found: Mapping[str, Any], name: str, place: str) -> bool:
    value = found.get(name, False)
    if not isinstance(value, bool):
        raise RefusedError(f"{place}.{name}", value, "true or false is expected here")
    return value


def _without_boosts(given: Any, place: str) -> list[str]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise RefusedError(place, given, "a list of fields is expected here")
    return [name.partition("^")[0] for name in names]


def minimum(given: Any, count: int, place: str) -> int:
    """How many of so many queries must match.

    >>> [minimum(one, 5, "") for one in (2, -1, "60%", "-20%", "3<50%", "2<-1 9<3", "9<1")]
    [2, 4, 3, 4, 2, 4, 5]
    """
    text = str(given).strip()
    if "<" in text:
        found = count
        for part in text.split():
            limit, _, rest = part.partition("<")
            if not limit.isdigit() or "<" in rest:
                raise RefusedError(place, given, "this is no number of queries")
            if count > int(limit):
                found = minimum(rest, count, place)
        return found
    if re.fullmatch(r"-?[0-9]{1,6}%?", text) is None:
        raise RefusedError(place, given, "this is no number of queries")
    if text.endswith("%"):
        share = int(count * int(text[:-1]) / 100)
        return max(0, count + share if text[0] == "-" else share)
    return max(0, count + int(text) if text[0] == "-" else int(text))


def at_least(parts: Sequence[Predicate], needed: int, place: str) -> Predicate:
    """So many of the conditions hold."""
    if needed <= 0:
        return Truth(True)
    count = len(parts)
    if needed > count:
        return Truth(False)
    if comb(count, needed) <= _MOST:
        return any_part([all_parts(some) for some in combinations(parts, needed)])
    if comb(count, count - needed + 1) <= _MOST:  # of every so many one must hold
        return all_parts([any_part(some) for some in combinations(parts, count - needed + 1)])
    raise RefusedError(place, needed, f"there are more than {_MOST} ways to choose {needed} of {count}")


def all_parts(parts: Sequence[Predicate]) -> Predicate:
    kept = [part for part in parts if not (isinstance(part, Truth) and part.value)]
    never = any(isinstance(part, Truth) for part in kept)
    return Truth(False) if never else all_of(kept)


def any_part(parts: Sequence[Predicate]) -> Predicate:
    kept = [part for part in parts if not (isinstance(part, Truth) and not part.value)]
    always = any(isinstance(part, Truth) for part in kept)
    return Truth(True) if always else any_of(kept)


def never(part: Predicate) -> Predicate:
    """The condition is not true."""
    if isinstance(part, Truth):
        return Truth(not part.value)
    return Not(part) if _is_known(part) else Not(is_true(part))


def _is_known(part: Predicate) -> bool:
    """Whether a condition is never unknown: that an element of a path with [*] meets a condition."""
    name = part.column.name if isinstance(part, Compare) else ""
    return name.startswith(f"{MARK}exists(") and "[*], e" in name


def _kilometres(given: Any, unit: Any, place: str) -> float:
    found = re.fullmatch(r"\s*([0-9]+\.?[0-9]*)\s*([A-Za-z]*)\s*", str(given))
    word = found[2] or str(unit) if found else "?"
    if found is None or word not in _KILOMETRES:
        raise RefusedError(place, given, "a distance is a number with a unit, as in 10km")
    return float(found[1]) * _KILOMETRES[word]


def _point(given: Any, place: str) -> tuple[float, float]:
    lat = lon = None
    if isinstance(given, Mapping) and set(given) == {"lat", "lon"}:
        lat, lon = given["lat"], given["lon"]
    elif isinstance(given, str) and given.count(",") == 1:
        lat, lon = given.split(",")
    elif isinstance(given, list) and len(given) == 2:
        lon, lat = given
    try:
        found = float(lat), float(lon)  # type: ignore[arg-type]  # None is refused below
    except (TypeError, ValueError):
        raise RefusedError(place, given, "a point is {lat, lon}, 'lat,lon' or [lon, lat]") from None
    if abs(found[0]) > 90 or abs(found[1]) > 180:
        raise RefusedError(place, given, "there is no such point")
    return found

"""Fields of stored queries: what a mapping says of them, and the conditions that one field can meet.

type of the field            the condition on each of its values
text                         indexed(title, 'standard') LIKE '% quick %'     all values at once
keyword                      exists(state[*], e1 -> e1 = 'new')
long, double, date, ...      exists(price[*], e1 -> indexed(e1, 'long') >= 5)
ip                           exists(host[*], e1 -> ip_key(e1) BETWEEN ...)
geo_point                    geo_km(place, 52.5, 13.4) <= 10
plain: without a mapping     exists(state[*], e1 -> e1 = 'new'), as JSON compares
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tocsin.language.algebra import Column, Compare, Ilike, In, Like, Not, Predicate, Rlike, Truth, literal
from tocsin.language.conditions import check_rlike
from tocsin.model.derived import BETWEEN_VALUES
from tocsin.model.paths import MARK, Path, Step
from tocsin.rules.addresses import address_of, in_network, network_of
from tocsin.rules.analysis import ANALYZERS, json_text, moment, number, words_of
from tocsin.rules.atoms import all_of, any_of, element, escaped, exists_in
from tocsin.rules.base import RefusedError
from tocsin.rules.percolator_patterns import inside_words, like_of_wildcard, rlike_of_regexp

__all__ = ["Fields", "MappedField", "NestedScope"]

_NUMBERS = dict.fromkeys(("long", "integer", "short", "byte"), "long") | {
    "double": "double",
    "float": "float",
}
_TYPES = (*_NUMBERS, "boolean", "date", "geo_point", "ip", "keyword", "text")
_KNOWN = frozenset(
    "type fields analyzer search_analyzer normalizer ignore_above format index doc_values store coerce norms "
    "similarity index_options eager_global_ordinals fielddata boost meta properties ignore_malformed "
    "ignore_z_value copy_to term_vector path null_value".split()
)
_FORMATS = frozenset(
    ("strict_date_optional_time", "date_optional_time", "epoch_millis", "strict_date_optional_time_nanos")
)
_LIKE_A_NUMBER = re.compile(r"[-+0-9.eE]+|true|false|inf|nan|-inf")


class NestedScope(NamedTuple):
    """Where a query stands: inside these nested objects, and so many lists deep."""

    nested: tuple[str, ...] = ()
    level: int = 0


@dataclass(frozen=True, slots=True)
class MappedField:
    """A field in a scope: the names from there to its values, and how they are indexed."""

    name: str
    steps: tuple[str, ...]
    level: int
    type: str = "plain"
    analyzer: str = "standard"
    kind: str = ""  # of `indexed`
    longest: int = 0  # longer values of a keyword are not indexed

    # -- values ------------------------------------------------------------------------------------

    def each(self, make: Callable[[Sequence[Step]], Predicate]) -> Predicate:
        """One of its values meets a condition."""
        steps: list[Step] = []
        for name in self.steps:
            steps += [name, ...]
        return exists_in(element(self.level, steps), make(element(self.level + 1)), self.level)

    def _value(self, at: Sequence[Step]) -> Column:
        if not self.kind:
            return Column(Path(tuple(at)).name)
        return Column(f"{MARK}indexed({Path(tuple(at))}, {literal(self.kind)})")

    @property
    def _words(self) -> Column:
        """All words of a field of text."""
        whole = Path(element(self.level, self.steps))
        return Column(f"{MARK}indexed({whole}, {literal(self.analyzer)})")

    def _as_text(self, text: str) -> MappedField:
        """This field where a text is looked for that a number, or a boolean, may have."""
        native = self.type != "keyword" or self.kind or not _LIKE_A_NUMBER.fullmatch(text)
        return self if native else replace(self, kind="text")

    def _short(self, where: Column, condition: Predicate) -> Predicate:
        if not self.longest:
            return condition
        return all_of([condition, Not(Like(where, "_" * (self.longest + 1) + "%"))])

    def refused(self, place: str, construct: object, reason: str) -> RefusedError:
        return RefusedError(place, construct, reason)

    # -- conditions --------------------------------------------------------------------------------

    def exists(self, place: str) -> Predicate:
        """It has a value."""

        def there(at: Sequence[Step]) -> Predicate:
            typed = Column(f"{MARK}typeof({Path(tuple(at))})")
            found = all_of([Compare(typed, "!=", "null"), Compare(typed, "!=", "object")])
            return self._short(self._value(at), found) if self.type == "keyword" else found

        if self.type == "geo_point":
            raise self.refused(place, self.name, "exists of a point is not supported")
        return self.each(there)

    def term(self, value: Any, place: str, folded: bool = False) -> Predicate:
        """One of its values is this one."""
        if value is None or isinstance(value, Mapping | list):
            raise self.refused(place, value, "a text, a number or a boolean is expected here")
        if self.longest and len(str(json_text(value))) > self.longest:
            return Truth(False)
        if self.type == "text":
            return self._word(str(json_text(value)), folded)
        if self.type in ("date", "ip"):
            return self._date_or_address(value, place)
        if self.type == "geo_point":
            raise self.refused(place, self.name, "points are looked for by geo_distance")
        if folded:
            if not isinstance(value, str) or self.type not in ("plain", "keyword"):
                raise self.refused(place, "case_insensitive", "it is for texts")
            pattern = escaped(value)
            return self.each(lambda at: Ilike(self._as_text(value)._value(at), pattern))
        found = self._constant(value, place)
        if found is None:
            return Truth(False)
        where = self._as_text(found) if isinstance(found, str) else self
        return self.each(lambda at: Compare(where._value(at), "=", found))

    def terms(self, values: Any, place: str) -> Predicate:
        """One of its values is one of these."""
        if not isinstance(values, list | tuple):
            raise self.refused(place, values, "a list of values is expected here")
        texts = [value for value in values if isinstance(value, str)]
        plain = self.type in ("plain", "keyword") and not self.kind and not self.longest
        if plain and len(texts) == len(values) > 1 and not any(map(_LIKE_A_NUMBER.fullmatch, texts)):
            return self.each(lambda at: In(self._value(at), tuple(dict.fromkeys(texts))))
        return any_of([self.term(value, f"{place}[{n}]") for n, value in enumerate(values)])

    def _word(self, word: str, folded: bool = False) -> Predicate:
        if " " in word or BETWEEN_VALUES in word or not word:
            return Truth(False)  # no analyzer makes such words
        return (Ilike if folded else Like)(self._words, f"% {escaped(word)} %")

    def _constant(self, value: Any, place: str) -> Any:
        """A value of a query as the field has it; None if no value can be equal."""
        if self.type in _NUMBERS:
            found = number(value)
            if found is None:
                raise self.refused(place, value, f"{self.name} is a {self.type}: a number is expected here")
            if self.kind == "long":
                return int(found) if found == int(found) else None
            return float(np.float32(found)) if self.kind == "float" else float(found)
        if self.type == "boolean":
            named = {True: True, False: False, "true": True, "false": False, "": False}
            if not isinstance(value, bool | str) or value not in named:
                raise self.refused(place, value, f"{self.name} is a boolean")
            return named[value]
        if self.type == "keyword":
            text = str(json_text(value))
            return text.lower() if self.kind == "lowercase" else text
        return value

    def _date_or_address(self, value: Any, place: str) -> Predicate:
        text = str(json_text(value))
        if self.type == "date":
            bounds = {"gte": value, "lte": value}
            return self.range(bounds, place)
        network = address_of(text) or network_of(text)
        if network is None:
            raise self.refused(place, value, "an IP address or a network is expected here")
        return self.each(lambda at: in_network(Column(Path(tuple(at)).name), network))

    def range(self, bounds: Mapping[str, Any], place: str) -> Predicate:
        """One of its values is within bounds: gt, gte, lt, lte."""
        if self.type in ("text", "ip", "boolean", "geo_point"):
            raise self.refused(place, self.name, f"ranges of the type {self.type} are not supported")
        ops = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
        found = [(ops[name], self._bound(name, value, f"{place}.{name}")) for name, value in bounds.items()]
        where = replace(self, kind="text") if self.type == "keyword" and not self.kind else self
        given = [(op, value) for op, value in found if value is not None]
        if not given:
            return self.exists(place)
        return self.each(
            lambda at: self._short(
                where._value(at), all_of([Compare(where._value(at), op, value) for op, value in given])
            )
        )

    def _bound(self, name: str, value: Any, place: str) -> Any:
        if value is None:
            return None
        if self.type == "date":
            return self._moment(value, place, last=name in ("gt", "lte"))
        if self.type in _NUMBERS:
            found = number(value)
            if found is None:
                raise self.refused(place, value, f"{self.name} is a {self.type}: a number is expected here")
            return found
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.refused(place, value, "a text or a number is expected here")
        return self._constant(value, place)

    def _moment(self, value: Any, place: str, last: bool) -> int:
        text = str(json_text(value))
        if "now" in text or "||" in text:
            raise self.refused(place, value, "date math is not supported in stored queries")
        found = moment(text, 1000 if self.kind == "date_second" else 1, last)
        if found is None:
            raise self.refused(place, value, "this is no date in ISO form, and no number of milliseconds")
        return found

    def prefix(self, text: Any, place: str, folded: bool = False) -> Predicate:
        """One of its values, or words, begins with a text."""
        text = self._for_pattern(text, place)
        make = Ilike if folded else Like
        if self.type == "text":
            return make(self._words, f"% {escaped(text)}%") if " " not in text else Truth(False)
        where = self._as_text(text)
        return self.each(
            lambda at: self._short(where._value(at), make(where._value(at), f"{escaped(text)}%"))
        )

    def wildcard(self, pattern: Any, place: str, folded: bool = False) -> Predicate:
        """One of its values, or words, matches a pattern with * and ?."""
        pattern = self._for_pattern(pattern, place)
        if self.type == "text":
            return Rlike(self._words, inside_words(pattern, place, folded))
        found, make = like_of_wildcard(pattern), Ilike if folded else Like
        where = replace(self, kind=self.kind or "text") if self.type == "keyword" else self
        return self.each(lambda at: self._short(where._value(at), make(where._value(at), found)))

    def regexp(self, pattern: Any, place: str, folded: bool = False) -> Predicate:
        """One of its values, or words, is matched by a regex of Lucene."""
        pattern = self._for_pattern(pattern, place)
        found = rlike_of_regexp(pattern, place, folded, words=self.type == "text")
        try:
            check_rlike(found)
        except ValueError as error:
            raise self.refused(place, pattern, f"RE2 does not take the regex: {error}") from None
        if self.type == "text":
            return Rlike(self._words, found)
        where = replace(self, kind=self.kind or "text") if self.type == "keyword" else self
        return self.each(lambda at: self._short(where._value(at), Rlike(where._value(at), found)))

    def _for_pattern(self, text: Any, place: str) -> str:
        if self.type not in ("text", "keyword", "plain"):
            raise self.refused(place, text, f"patterns are for texts, and {self.name} is a {self.type}")
        if not isinstance(text, str):
            raise self.refused(place, text, "a text is expected here")
        return text.lower() if self.kind == "lowercase" else text

    def words(self, text: Any, place: str) -> list[Predicate]:
        """For each word of a text: the field has it."""
        if self.type == "plain":
            return replace(self, type="text").words(text, place)
        if self.type != "text":
            return [self.term(text, place)]
        return [self._word(word) for word in words_of(str(json_text(text)), self.analyzer)]

    def phrase(self, text: Any, place: str) -> Predicate:
        """One of its values has the words of a text one after the other."""
        if self.type == "plain":
            return replace(self, type="text").phrase(text, place)
        if self.type != "text":
            return self.term(text, place)
        words = words_of(str(json_text(text)), self.analyzer)
        if not words or self.analyzer == "keyword":
            return self._word(words[0]) if words else Truth(False)
        return Like(self._words, f"% {escaped(' '.join(words))} %")

    def near(self, lat: float, lon: float, kilometres: float, place: str) -> Predicate:
        """A point of it is within a distance."""
        if self.type not in ("geo_point", "plain"):
            raise self.refused(place, self.name, f"it is a {self.type} and no point")
        whole = Path(element(self.level, self.steps))
        return Compare(Column(f"{MARK}geo_km({whole}, {lat!r}, {lon!r})"), "<=", kilometres)


class Fields:
    """The fields of a mapping; without one, a field is what its queries take it for."""

    def __init__(self, mapping: Mapping[str, Any] | None) -> None:
        inner = mapping
        for name in ("mappings", "properties"):
            if isinstance(inner, Mapping) and isinstance(inner.get(name), Mapping):
                inner = inner[name]
        self._properties = inner

    def nested(self, path: str, scope: NestedScope, place: str) -> tuple[str, ...]:
        """The names from the scope to nested objects."""
        names = tuple(path.split("."))
        if self._properties is not None and self._declared(names, place)[1].get("type") != "nested":
            raise RefusedError(place, path, "it is not mapped as nested")
        if names[: len(scope.nested)] != scope.nested or len(names) == len(scope.nested):
            raise RefusedError(place, path, f"it is not inside {'.'.join(scope.nested)}")
        return names

    def objects(self, name: str) -> list[str] | None:
        """The fields inside a field that is an object; None if it is none."""
        if self._properties is None:
            return None
        try:
            _, found = self._declared(tuple(name.split(".")), "")
        except RefusedError:
            return None
        inner = found.get("properties")
        return [f"{name}.{one}" for one in inner] if isinstance(inner, Mapping) else None

    def __call__(self, name: Any, scope: NestedScope, place: str) -> MappedField:
        """A field, in a scope."""
        if not isinstance(name, str) or not name or "*" in name:
            raise RefusedError(place, name, "the name of one field is expected here")
        names = tuple(name.split("."))
        if not all(names):
            raise RefusedError(place, name, "the name of one field is expected here")
        if self._properties is None:
            exact = names[-1] == "keyword" and len(names) > 1
            return self._made(name, names[:-1] if exact else names, {}, scope, place)
        stored, found = self._declared(names, place)
        return self._made(name, stored, found, scope, place)

    def _declared(self, names: tuple[str, ...], place: str) -> tuple[tuple[str, ...], Mapping[str, Any]]:
        """Where the values of a field are, and what the mapping says of it."""
        at: Mapping[str, Any] = {"properties": self._properties}
        for n, name in enumerate(names):
            inner, multi = at.get("properties") or {}, at.get("fields") or {}
            if name in inner:
                at = inner[name]
            elif name in multi and n == len(names) - 1:
                return names[:-1], multi[name]
            else:
                raise RefusedError(place, ".".join(names), "the mapping has no such field")
        if at.get("type") == "alias":
            return self._declared(tuple(str(at["path"]).split(".")), place)
        return names, at

    def _nested_above(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The innermost nested objects that a field is in."""
        found: tuple[str, ...] = ()
        at: Mapping[str, Any] = {"properties": self._properties}
        for n, name in enumerate(names):
            at = (at.get("properties") or {}).get(name) or {}
            if at.get("type") == "nested":
                found = names[: n + 1]
        return found

    def _made(
        self, name: str, names: tuple[str, ...], found: Mapping[str, Any], scope: NestedScope, place: str
    ) -> MappedField:
        if names[: len(scope.nested)] != scope.nested:
            raise RefusedError(place, name, f"it is not inside {'.'.join(scope.nested)}")
        steps = names[len(scope.nested) :]
        if self._properties is None:
            return MappedField(name, steps, scope.level)
        if self._nested_above(names) != scope.nested:
            raise RefusedError(place, name, "the field is inside nested objects: use a nested query")
        for word in sorted(found.keys() - _KNOWN):
            raise RefusedError(place, word, f"this of the mapping of {name} is not supported")
        type_ = str(found.get("type", "object"))
        if type_ not in _TYPES:
            raise RefusedError(place, name, f"fields of the type {type_} are not supported here")
        if found.get("index") is False or found.get("null_value") is not None:
            raise RefusedError(place, name, "index: false and null_value are not supported")
        made = MappedField(name, steps, scope.level, type_, kind=_NUMBERS.get(type_, ""))
        return _with_options(made, found, place)


def _with_options(field: MappedField, found: Mapping[str, Any], place: str) -> MappedField:
    """A field with what its mapping says of analyzers, formats and lengths."""
    if field.type == "text":
        named = {
            str(found.get(word, "standard")) for word in ("analyzer", "search_analyzer") if word in found
        }
        analyzer = str(found.get("analyzer", "standard"))
        if analyzer not in ANALYZERS or len(named) > 1:
            raise RefusedError(
                place, ", ".join(sorted(named)), f"the analyzer of {field.name} is not supported"
            )
        return replace(field, analyzer=analyzer)
    if field.type == "keyword":
        normalizer = found.get("normalizer")
        if normalizer not in (None, "lowercase"):
            raise RefusedError(place, normalizer, f"the normalizer of {field.name} is not supported")
        return replace(field, kind=normalizer or "", longest=int(found.get("ignore_above") or 0))
    if field.type == "date":
        formats = set(str(found.get("format", "strict_date_optional_time||epoch_millis")).split("||"))
        second = "epoch_second" in formats
        if formats - _FORMATS - {"epoch_second"} or (second and "epoch_millis" in formats):
            raise RefusedError(place, found.get("format"), f"the format of {field.name} is not supported")
        return replace(field, kind="date_second" if second else "date")
    return replace(field, kind="boolean") if field.type == "boolean" else field


def leaves_of(fields: Fields, name: str) -> Iterator[str]:
    """The fields inside a field, or itself."""
    inside = fields.objects(name)
    if inside is None:
        yield name
        return
    for one in inside:
        yield from leaves_of(fields, one)

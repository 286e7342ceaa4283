"""Queries with slots: parse once, fill many times.

A `Template` holds a query in which some constants are `Slot`s: in conditions, as ends of bands, as the
limit. Filling it copies only the parts that contain a slot; all queries made from it share the rest.
Templates come from two places: the parameters of `subscribe_many` (`bulk.py`), and texts.

Programs write most subscriptions: the same text with other numbers. `lift` replaces the literals of a text
by marks; the result, the *skeleton*, is the cache key of a parsed template:

    SELECT * FROM stocks WHERE per <= 50 AND sector = 'tech'
    SELECT * FROM stocks WHERE per <= i  AND sector = s        50, 'tech'

Parsing the first such text shows which literals became values of conditions; those are slots. All
others (intervals, ends of bands, options, constants compared with each other) stay part of the key. If a text
is unusual (an escape in a string, a comment, a value that cannot be read), `Parser` parses the whole
text, so the query, or the error and its position, always equal those of `parse_query`. Parsing a text
takes a millisecond; filling a template about 30 microseconds.

>>> from tocsin.model.schema import Field, Stream, Type
>>> parser = Parser({"hits": Stream("hits", (Field("n", Type.BIGINT),))})
>>> [str(parser.parse(f"SELECT * FROM hits WHERE n > {i}").where) for i in (1, 2)], parser.parsed
(['n > 1', 'n > 2'], 1)

The ends of a band are sums: `a.x - b.y <= :most + 5` ends at `most + 5`. To learn that for all rows from
one parse, `trace_numbers` replaces parameters by numbers that behave like their values and record the steps
applied to them:

>>> given, decided = trace_numbers({"most": 10})
>>> end = -(given["most"] + 5)
>>> int(end), slot_of(end).read(20), sorted(decided)
(-15, -25, [])

A number that was compared (which of two ends is narrower?) or added to another traced number has
*decided* the parse: the result is valid for that value only.

>>> given["most"] < 7, sorted(decided)
(False, ['most'])
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, NamedTuple

from tocsin.errors import SqlError
from tocsin.language.algebra import (
    And,
    Atom,
    Band,
    Equal,
    In,
    Not,
    Or,
    Predicate,
    Query,
    Truth,
    Value,
    atoms,
)
from tocsin.language.composed import ComposedQueries
from tocsin.language.deep_stack import with_deep_stack
from tocsin.language.dialect import check_text
from tocsin.language.literals import Slot
from tocsin.language.sql import parse_query, trace_query
from tocsin.model.schema import Catalog

__all__ = [
    "Lifted",
    "Parser",
    "Plus",
    "Template",
    "Times",
    "as_end",
    "as_span",
    "filler",
    "lift",
    "slot_of",
    "trace_numbers",
]

Raw = Mapping[Any, Any]
_Fill = Callable[[Raw], Any]


@dataclass(frozen=True, slots=True)
class Template:
    """A query with slots; `keys` name the sources of their raw values (offsets or parameters)."""

    query: Query
    keys: frozenset[int | str]
    _fill: _Fill | None
    _fill_having: _Fill | None = None

    @classmethod
    def of(cls, query: Query) -> Template:
        """A template from a traced query (`sql.trace_query`)."""
        return cls._with(_traced_ends(query))

    @classmethod
    def _with(cls, query: Query) -> Template:
        keys = frozenset(slot.key for slot in _slots(query))
        return cls(query, keys, filler(query.where), filler(query.having))

    def slots(self) -> Counter[int | str]:
        """How many slots there are of each key."""
        return Counter(slot.key for slot in _slots(self.query))

    def limited(self, limit: int) -> Template:
        """This template with a fixed limit instead of the slot."""
        return self._with(replace(self.query, limit=limit))

    def fill(self, raw: Raw) -> Query:
        """The query with these raw values; ValueError if a value does not fit its slot."""
        q, limit = self.query, self.query.limit
        where = q.where if self._fill is None else self._fill(raw)
        if isinstance(limit, Slot):
            limit = limit.read(raw[limit.key])
        joins = tuple(_filled(join, raw) for join in q.joins) if q.joins else q.joins
        having = q.having if self._fill_having is None else self._fill_having(raw)
        if q.is_composed:
            return replace(_parts_filled(q, raw), joins=joins, where=where)
        return Query(
            *(q.items, q.tables, joins, where, q.distinct, q.order, limit, q.options),
            *(q.group, having, q.offset, q.partition),
            within=q.within,
        )


def _traced_ends(query: Query) -> Query:
    """The query with slots at the ends of bands that were traced."""

    def of(joins: tuple[Equal | Band, ...]) -> tuple[Equal | Band, ...]:
        return tuple(_with_slots(join) if isinstance(join, Band) else join for join in joins)

    if not query.is_composed:
        return replace(query, joins=of(query.joins))
    exists = tuple(replace(one, joins=of(one.joins)) for one in query.exists)
    branches = tuple(map(_traced_ends, query.branches))
    return replace(query, joins=of(query.joins), exists=exists, branches=branches)


def _parts_filled(query: Query, raw: Raw) -> Query:
    """The query with the slots of its outer join, subqueries and branches filled."""

    def where(predicate: Predicate) -> Predicate:
        fill = filler(predicate)
        return predicate if fill is None else fill(raw)

    exists = tuple(
        replace(one, joins=tuple(_filled(join, raw) for join in one.joins), where=where(one.where))
        for one in query.exists
    )
    outer = None if query.outer is None else replace(query.outer, on=where(query.outer.on))
    branches = tuple(Template._with(branch).fill(raw) for branch in query.branches)
    return replace(query, exists=exists, outer=outer, branches=branches)


def _with_slots(band: Band) -> Band:
    """A band whose ends were traced gets slots there."""
    ends: dict[str, Any] = {}
    for name in ("low", "high"):
        slot = slot_of(getattr(band, name))
        if slot is not None:
            ends[name] = Slot(slot.key, (*slot.steps, as_span)) if band.timed else slot
    return replace(band, **ends) if ends else band


def _filled(join: Equal | Band, raw: Raw) -> Equal | Band:
    if isinstance(join, Equal) or not (isinstance(join.low, Slot) or isinstance(join.high, Slot)):
        return join
    low, high = (end.read(raw[end.key]) if isinstance(end, Slot) else end for end in (join.low, join.high))
    return replace(join, low=low, high=high)


def _slots(query: Query) -> list[Slot]:
    found: list[Slot] = []
    joins = [*query.joins, *(join for one in query.exists for join in one.joins)]
    ends = [end for join in joins if isinstance(join, Band) for end in (join.low, join.high)]
    stack: list[Any] = [query.where, query.having, query.limit, *ends]
    stack += [one.where for one in query.exists] + ([] if query.outer is None else [query.outer.on])
    for branch in query.branches:
        found += _slots(branch)
    while stack:
        node = stack.pop()
        if isinstance(node, Slot):
            found.append(node)
        elif isinstance(node, tuple):
            stack += node
        elif isinstance(node, And | Or | Not | Atom):
            stack += [getattr(node, field.name) for field in fields(node)]
    return found


def filler(node: Predicate) -> _Fill | None:
    """A function from raw values to the condition; None if the condition has no slot."""
    if isinstance(node, And | Or):
        parts = [(filler(arg), arg) for arg in node.args]
        if all(fill is None for fill, _ in parts):
            return None
        kind = type(node)
        return lambda raw: kind(tuple(arg if fill is None else fill(raw) for fill, arg in parts))
    if isinstance(node, Not):
        inner = filler(node.arg)
        return None if inner is None else lambda raw: Not(inner(raw))
    return None if isinstance(node, Truth) else _atom(node)


def _atom(node: Atom) -> _Fill | None:
    if isinstance(node, In):
        column, values = node.column, node.values
        if not any(isinstance(value, Slot) for value in values):
            return None
        return lambda raw: In(column, tuple(chain.from_iterable(_in_values(v, raw) for v in values)))
    kind: Callable[..., Atom] = type(node)
    parts = [getattr(node, field.name) for field in fields(node)]
    if not any(isinstance(part, Slot) for part in parts):
        return None
    return lambda raw: kind(*(p.read(raw[p.key]) if isinstance(p, Slot) else p for p in parts))


def _in_values(value: Value | Slot, raw: Raw) -> Iterable[Value]:
    """The values that one place of an IN stands for: several, if its raw value is a list."""
    if not isinstance(value, Slot):
        return (value,)
    given = raw[value.key]
    return map(value.read, given) if isinstance(given, list) else (value.read(given),)


# -- numbers that record their steps ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plus:
    """A step: add an amount to a number or an array of numbers."""

    amount: int | float

    def __call__(self, value: Any) -> Any:
        return value + self.amount


@dataclass(frozen=True, slots=True)
class Times:
    """A step: multiply a number or an array of numbers."""

    factor: int | float

    def __call__(self, value: Any) -> Any:
        return value * self.factor


def as_end(value: Value) -> Value:
    """The first step of a band's end: check that it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("the ends of a band are finite numbers or intervals")
    return value


def as_span(value: Value) -> Value:
    """The last step of a band's end between times: check that it is in microseconds and in range."""
    if not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("the interval is out of range")
    return value


class _Traced:
    """Base of traced whole numbers and doubles."""

    key: str
    steps: tuple[Callable[[Any], Any], ...]
    decided: set[str]
    plain: type[Any]

    def then(self, step: Callable[[Any], Any]) -> Any:
        return _traced_number(step(self.plain(self)), self.key, (*self.steps, step), self.decided)

    def _decide(self, other: Any) -> tuple[Any, Any]:
        """Both operands as plain numbers; the parse now depends on their values."""
        self.decided.add(self.key)
        if isinstance(other, _Traced):
            other.decided.add(other.key)
            other = other.plain(other)
        return self.plain(self), other

    def __add__(self, other: Any) -> Any:
        return operator.add(*self._decide(other)) if isinstance(other, _Traced) else self.then(Plus(other))

    def __mul__(self, other: Any) -> Any:
        return operator.mul(*self._decide(other)) if isinstance(other, _Traced) else self.then(Times(other))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self.then(Times(-1))

    def __bool__(self) -> bool:
        return True  # so that the parser does not drop a zero

    def __eq__(self, other: object) -> bool:
        return bool(operator.eq(*self._decide(other)))

    def __ne__(self, other: object) -> bool:
        return bool(operator.ne(*self._decide(other)))

    def __lt__(self, other: Any) -> bool:
        return bool(operator.lt(*self._decide(other)))

    def __le__(self, other: Any) -> bool:
        return bool(operator.le(*self._decide(other)))

    def __gt__(self, other: Any) -> bool:
        return bool(operator.gt(*self._decide(other)))

    def __ge__(self, other: Any) -> bool:
        return bool(operator.ge(*self._decide(other)))

    def __hash__(self) -> int:
        return hash(self.plain(self))


class _Whole(_Traced, int):
    plain = int


class _Double(_Traced, float):
    plain = float


def _traced_number(
    value: int | float, key: str, steps: tuple[Callable[[Any], Any], ...], decided: set[str]
) -> _Whole | _Double:
    number = _Whole(value) if isinstance(value, int) else _Double(value)
    number.key, number.steps, number.decided = key, steps, decided
    return number


def trace_numbers(values: Mapping[str, Value]) -> tuple[dict[str, Any], set[str]]:
    """The values with their numbers traced, and the set that collects the keys that decide the parse."""
    decided: set[str] = set()
    numbers = {
        key: _traced_number(value, key, (), decided)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return {**values, **numbers}, decided


def slot_of(number: Any) -> Slot | None:
    """The slot of a traced number: its key and the steps applied to it; None for a plain number."""
    return Slot(number.key, (as_end, *number.steps)) if isinstance(number, _Traced) else None


# -- texts that differ only in literals ------------------------------------------------------------


MAX_SKELETONS = 30_000
MAX_TEMPLATES = 1_000
_LONG_TEXT = 10_000  # characters: such a text is lifted once, by the parser


class Lifted(NamedTuple):
    """A text with its literals lifted out: the skeleton, the literals' values and offsets."""

    skeleton: str
    values: list[Any]  # int, float, str; of a shortened text, lists of these as well
    starts: list[int]


_PARTS = re.compile(  # like statements._LEXEME, but matches everything between two literals at once
    r"""
      (?P<plain>(?:\s+|[A-Za-z_][A-Za-z0-9_]*(?!['"\w])|`(?:[^`]|``)*`|-(?!-)|/(?!\*)|[()\[\]*,;.=<>!+%|&^~:?])+)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+(?![+-]))?(?![\w.]))
    | (?P<string>'[^'\\]*'(?!')|"[^"\\]*"(?!"))
    | (?P<odd>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


_MARKS = re.compile("[\x01-\x03]")
_LONG_IN = re.compile(  # constants of one type, in a skeleton
    r"\bIN\s*\(\s*(?P<list>(?P<mark>[\x01-\x03])(?:\s*,\s*(?P=mark)){63,})\s*\)", re.IGNORECASE
)


def lift(text: str) -> Lifted | None:
    """Replace each literal of a text by a mark of its type; None if the text contains anything unusual."""
    parts: list[str] = []
    values: list[int | float | str] = []
    starts: list[int] = []
    at = 0  # the parts are the whole text, one after the other
    for plain, number, string, odd in _PARTS.findall(text):
        if plain:
            parts.append(plain)
            at += len(plain)
            continue
        if odd:  # escapes, comments, prefixes such as X'1F', other alphabets
            return None
        value, mark = _number(number) if number else (string[1:-1], "\x03")
        if value is None:
            return None
        parts.append(mark)
        values.append(value)
        starts.append(at)
        at += len(number or string)
    return Lifted("".join(parts), values, starts)


def shortened(text: str, lifted: Lifted) -> tuple[str, Lifted] | None:
    """The text with each long IN of constants of one type cut to its first; the value is then the whole list.

    None if there is no long IN. Lists of any length have one template, and the parser reads one constant.

    >>> text = "SELECT * FROM t WHERE a IN (1" + ", 2" * 99 + ") AND b = 'x'"
    >>> short, lifted = shortened(text, lift(text))
    >>> short, len(lifted.values[0]), lifted.starts
    ("SELECT * FROM t WHERE a IN (1) AND b = 'x'", 100, [28, 39])
    """
    lists = [found.span("list") for found in _LONG_IN.finditer(lifted.skeleton)]
    if not lists:
        return None
    skeleton, values, starts = lifted
    marks = [mark.start() for mark in _MARKS.finditer(skeleton)]
    for begin, end in reversed(lists):
        first, last = bisect_left(marks, begin), bisect_left(marks, end)  # literals first .. last - 1
        kept, cut = _literal_end(text, starts[first]), _literal_end(text, starts[last - 1])
        text = text[:kept] + text[cut:]
        skeleton = skeleton[: begin + 1] + skeleton[end:]
        values = [*values[:first], values[first:last], *values[last:]]
        starts = [*starts[: first + 1], *(start - (cut - kept) for start in starts[last:])]
    return text, Lifted(skeleton, values, starts)


def _literal_end(text: str, start: int) -> int:
    found = _PARTS.match(text, start)
    assert found is not None
    return found.end()


def _number(word: str) -> tuple[int | float | None, str]:
    if word.isdigit():
        return (int(word) if len(word) < 1000 else None), "\x01"
    value = float(word)
    long = len(word) > 16 and len(re.sub(r"[eE].*|\.", "", word).strip("0")) > 15  # more than a double holds
    return (None if long or math.isinf(value) else value), "\x02"


@dataclass(slots=True)
class _Skeleton:
    """The templates of one skeleton, keyed by the literals that are not slots."""

    fixed: tuple[int, ...]
    templates: dict[tuple[object, ...], tuple[Template, list[int]]] = field(default_factory=dict)


class Parser:
    """`parse_query` for one catalog, with a cache of templates."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.parsed = 0  # texts parsed as a whole
        self._seen = dict(catalog)
        self._skeletons: dict[str, _Skeleton] = {}
        self._composed = ComposedQueries(self._trace)

    def parse(self, text: str) -> Query:
        """Parse a subscription; the result equals `parse_query(text, catalog)`."""
        check_text(text)
        return with_deep_stack(self._parse, text)

    def template(self, text: str) -> tuple[Template, Any, list[Any]] | None:
        """The template of a text, a key shared by all texts of that template, and the text's literals.

        The key ends with the offsets of the literals in the first such text; those are the template's keys.
        None if the text must be parsed as a whole.
        """
        check_text(text)
        lifted = lift(text)
        if lifted is None:
            return None
        for _ in range(2):
            skeleton = self._skeletons.get(lifted.skeleton) if self._seen == self.catalog else None
            if skeleton is not None:
                key = _key(skeleton.fixed, lifted)
                if (found := skeleton.templates.get(key)) is not None:
                    template, starts = found
                    return template, ((lifted.skeleton, key), tuple(starts)), lifted.values
            if self._seen == self.catalog and self._compose(text, lifted) is not None:
                continue
            with_deep_stack(self._parse, text, True)  # adds the template to the cache, if it can be cached
        return None

    def known(self, text: str) -> tuple[Template, dict[int, Any]] | None:
        """The template of a text and the raw values of its slots; None if it must be parsed."""
        is_plain = type(text) is str and len(text) < _LONG_TEXT and text.isascii()
        lifted = lift(text) if is_plain else None
        if lifted is None or self._seen != self.catalog:
            return None
        found = self._cached(lifted) or self._compose(text, lifted)
        return None if found is None else (found[0], dict(zip(found[1], lifted.values, strict=True)))

    def _parse(self, text: str, as_it_stands: bool = False) -> Query:
        lifted = lift(text)
        if lifted is None:
            return self._parse_whole(text)
        if self._seen != self.catalog:
            self._seen, self._skeletons = dict(self.catalog), {}
            self._composed = ComposedQueries(self._trace)
        short = None if as_it_stands else shortened(text, lifted)
        if short is not None and (query := self._parse_short(*short)) is not None:
            return query
        found = self._cached(lifted) or self._compose(text, lifted)
        if found is None:
            return self._parse_and_cache(text, lifted)
        template, starts = found
        try:
            return template.fill(dict(zip(starts, lifted.values, strict=True)))
        except ValueError:
            return self._parse_whole(text)  # raises, with the position

    def _cached(self, lifted: Lifted) -> tuple[Template, list[int]] | None:
        skeleton = self._skeletons.get(lifted.skeleton)
        return None if skeleton is None else skeleton.templates.get(_key(skeleton.fixed, lifted))

    def _parse_short(self, text: str, lifted: Lifted) -> Query | None:
        """The query of a shortened text; None if the text must be parsed as it stands."""
        first = [value[0] if isinstance(value, list) else value for value in lifted.values]
        plain = lifted._replace(values=first)
        try:
            if self._cached(plain) is None:
                self._parse_and_cache(text, plain)
            if (found := self._cached(plain)) is None:
                return None
            template, starts = found
            given = dict(zip(starts, lifted.values, strict=True))
            lists = {start for start, value in given.items() if isinstance(value, list)}
            return template.fill(given) if lists <= _in_slots(template.query.where) else None
        except (SqlError, ValueError):
            return None

    def _parse_whole(self, text: str) -> Query:
        self.parsed += 1
        return parse_query(text, self.catalog)

    def _parse_and_cache(self, text: str, lifted: Lifted) -> Query:
        """Parse or compose the text; cache the template if all its slots are lifted literals."""
        try:
            template = Template.of(self._trace(text))
        except SqlError:
            return self._parse_whole(text)
        if not template.keys <= set(lifted.starts):
            return self._parse_whole(text)
        self._remember(template, lifted)
        return template.fill(dict(zip(lifted.starts, lifted.values, strict=True)))

    def _compose(self, text: str, lifted: Lifted) -> tuple[Template, list[int]] | None:
        """The template of a text all of whose conditions were in others, now in the cache."""
        query = self._composed.query(text, lifted.skeleton, lifted.starts)
        if query is None:
            return None
        return self._remember(Template(query, frozenset(lifted.starts), filler(query.where)), lifted)

    def _remember(self, template: Template, lifted: Lifted) -> tuple[Template, list[int]]:
        fixed = tuple(i for i, start in enumerate(lifted.starts) if start not in template.keys)
        if len(self._skeletons) >= MAX_SKELETONS:
            self._skeletons.clear()
        skeleton = self._skeletons.setdefault(lifted.skeleton, _Skeleton(fixed))
        if skeleton.fixed == fixed and len(skeleton.templates) < MAX_TEMPLATES:
            skeleton.templates[_key(fixed, lifted)] = template, lifted.starts
        return template, lifted.starts

    def _trace(self, text: str) -> Query:
        traced = trace_query(text, self.catalog)
        self.parsed += 1
        return traced


def _in_slots(where: Predicate) -> set[int | str]:
    """The keys of slots that are values of an IN."""
    values: list[Any] = [v for atom in atoms(where) if isinstance(atom, In) for v in atom.values]
    return {value.key for value in values if isinstance(value, Slot)}


def _key(fixed: tuple[int, ...], lifted: Lifted) -> tuple[object, ...]:
    """The literals that are part of the key; the skeleton distinguishes 1 from 1.0."""
    return tuple(lifted.values[i] for i in fixed)

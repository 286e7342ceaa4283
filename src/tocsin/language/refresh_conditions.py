"""Conditions of a refresh, as in `when = 'moved(cheapest) > 5 % OR changes > 1000 AND age > 1 minute'`.

    changes > 1000          rows that changed since the last refresh, each once per batch
    age > 1 minute          time since the last refresh
    rows > 10               rows that a refresh would emit, both removed and added
    moved(column) > 5 %     how far a number of a one-row answer is from what was emitted last

They are joined by AND, OR and parentheses; AND comes first. `limits/conditions.py` evaluates them.

>>> condition = read_condition("(changes >= 1000 or rows > 10) and age > 90 seconds")
>>> print(condition)
(changes >= 1000 OR rows > 10) AND age > 1 minute 30 seconds
>>> [one.measure for one in thresholds(condition)]
['changes', 'rows', 'age']
>>> read_condition("age > 5")
Traceback (most recent call last):
...
tocsin.language.refresh_conditions.BadCondition: age is a time span, with a unit
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from typing import NoReturn

from tocsin.language.algebra import Aggregate, Item, Query
from tocsin.language.hints import nearest
from tocsin.language.options import print_span
from tocsin.language.spans import BadAmount, read_span
from tocsin.language.statements import Lexeme, lexemes
from tocsin.model.schema import quote

__all__ = [
    "MEASURES", "AllHold", "AnyHolds", "BadCondition", "RefreshCondition", "Threshold", "check_columns",
    "read_condition", "thresholds",
]  # fmt: skip

MEASURES = {"changes": "changes > 1000", "age": "age > 1 minute", "rows": "rows > 10"}
MEASURES["moved"] = "moved(column) > 5 %"
"""What a condition may measure, with an example each."""

_MOST = 2**63 - 1
_JOIN = "join conditions with AND or OR"
_LEVELS = 32  # of parentheses


class BadCondition(BadAmount):
    """A text that is no condition of a refresh: fact, hint and place, `text[start:end]`."""

    def __init__(self, fact: str, hint: str, start: int, end: int) -> None:
        super().__init__(fact, hint)
        self.start, self.end = start, end


@dataclass(frozen=True, slots=True)
class Threshold:
    """One measure above a bound: a number, microseconds (age), or percent (moved)."""

    measure: str
    bound: int | Fraction
    inclusive: bool = False
    column: str | None = None
    place: tuple[int, int] = field(
        default=(0, 0), compare=False
    )  # in the text, of the column if there is one

    def __str__(self) -> str:
        called = f"moved({quote(self.column)})" if self.column is not None else self.measure
        bound = str(self.bound)
        if self.measure == "age":
            bound = print_span(int(self.bound))
        elif self.measure == "moved":
            whole = self.bound.denominator == 1
            bound = f"{self.bound if whole else _decimal(Fraction(self.bound))} %"
        return f"{called} {'>=' if self.inclusive else '>'} {bound}"


@dataclass(frozen=True, slots=True)
class AllHold:
    """Conditions joined by AND."""

    parts: tuple[RefreshCondition, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({part})" if isinstance(part, AnyHolds) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyHolds:
    """Conditions joined by OR."""

    parts: tuple[RefreshCondition, ...]

    def __str__(self) -> str:
        return " OR ".join(map(str, self.parts))


RefreshCondition = Threshold | AllHold | AnyHolds


def thresholds(condition: RefreshCondition) -> Iterator[Threshold]:
    """All thresholds of a condition, in the order of the text."""
    if isinstance(condition, Threshold):
        yield condition
    else:
        for part in condition.parts:
            yield from thresholds(part)


def read_condition(text: str) -> RefreshCondition:
    """The condition of a text; BadCondition if it is none."""
    return _ConditionParser(text).whole()


def check_columns(condition: RefreshCondition, query: Query) -> None:
    """Raise BadCondition unless each `moved(column)` names a number of a one-row answer."""
    for test in thresholds(condition):
        if test.column is None:
            continue
        if not query.aggregates:
            hint = "SELECT an aggregate, or count the rows that change: rows > 10"
            raise BadCondition("moved is for answers of one row", hint, *test.place)
        items = {item.name: item for item in query.items}
        item = items.get(test.column) or _ignoring_case(items, test.column)
        if item is None:
            hint = nearest(test.column, items) or f"its columns are {', '.join(items)}"
            raise BadCondition(f"the answer has no column {test.column!r}", hint, *test.place)
        aggregate = item.expression
        assert isinstance(aggregate, Aggregate)
        type = aggregate.column.type if aggregate.column is not None else None
        if aggregate.function in ("MIN", "MAX") and type is not None and not type.numeric:
            hint = "use rows > 0 for any change"
            raise BadCondition(f"moved is for numbers, and {item.name} is a {type}", hint, *test.place)


def _ignoring_case(items: dict[str, Item], name: str) -> Item | None:
    return next((item for known, item in items.items() if known.lower() == name.lower()), None)


def _decimal(number: Fraction) -> str:
    """A fraction whose denominator divides a power of ten, without an exponent."""
    digits = 0
    while number.denominator != 1:
        number, digits = number * 10, digits + 1
    text = str(number.numerator).rjust(digits + 1, "0")
    return f"{text[:-digits]}.{text[-digits:]}"


class _ConditionParser:
    """Recursive descent over lexemes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.parts = [part for part in lexemes(text) if part.kind not in ("space", "comment")]
        self.at = 0
        self.depth = 0

    def whole(self) -> RefreshCondition:
        if not self.parts:
            self.reject("this is not a condition", f"write {MEASURES['changes']!r}")
        found = self.any()
        if self.at < len(self.parts):
            hint = "leave it out" if self.next == ")" else _JOIN
            self.reject(f"unexpected {self.parts[self.at].text}", hint)
        return found

    def any(self) -> RefreshCondition:
        parts = [self.all()]
        while self.take("OR"):
            parts.append(self.all())
        return parts[0] if len(parts) == 1 else AnyHolds(tuple(_flat(parts, AnyHolds)))

    def all(self) -> RefreshCondition:
        parts = [self.one()]
        while self.take("AND"):
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else AllHold(tuple(_flat(parts, AllHold)))

    def one(self) -> RefreshCondition:
        if self.next == "(":
            if self.depth >= _LEVELS:
                self.reject(f"at most {_LEVELS} levels of parentheses are supported", "write it flatter")
            self.at, self.depth = self.at + 1, self.depth + 1
            found = self.any()
            if not self.take(")"):
                self.reject("expecting )", "close the parenthesis" if self.at >= len(self.parts) else _JOIN)
            self.depth -= 1
            return found
        return self.test()

    def test(self) -> Threshold:
        if self.at >= len(self.parts):
            self.reject("expecting a condition", f"write one after {self.parts[-1].text.upper()}")
        first = self.parts[self.at]
        measure = first.text.lower()
        if measure not in MEASURES or first.kind != "word":
            self.reject(*_no_measure(first))
        self.at += 1
        column, place = None, (first.start, first.end)
        if measure == "moved":
            name = self.column()
            column, place = _name(name), (name.start, name.end)
        elif self.next == "(":
            self.reject(f"{measure} takes no column", f"write {MEASURES[measure]}")
        inclusive = self.operator(measure)
        return Threshold(measure, self.bound(measure), inclusive, column, place)

    def column(self) -> Lexeme:
        if not self.take("("):
            self.reject("moved needs a column of the answer", "write moved(column) > 5 %")
        if self.at >= len(self.parts) or self.parts[self.at].kind not in ("word", "name"):
            self.reject("expecting a column", "put names that are not plain words in backticks")
        name = self.parts[self.at]
        self.at += 1
        if not self.take(")"):
            self.reject(
                "expecting ) after the column", "name one column of the answer, as in moved(cheapest)"
            )
        return name

    def operator(self, measure: str) -> bool:
        """Whether equal counts too."""
        if self.next != ">":
            what = "the end" if self.at >= len(self.parts) else self.next
            self.reject(f"expecting > after {measure}, not {what}", f"write {MEASURES[measure]}")
        self.at += 1
        follows = self.at < len(self.parts) and self.parts[self.at].start == self.parts[self.at - 1].end
        return follows and self.take("=")

    def bound(self, measure: str) -> int | Fraction:
        start, number = self.at, None
        if self.at < len(self.parts) and self.parts[self.at].kind == "number":
            number, self.at = self.parts[self.at].text, self.at + 1
        if number is None or "e" in number.lower() or len(number) > 18:
            self.at = start
            self.reject("expecting a number", f"write {MEASURES[measure]}")
        if measure == "age":
            return self.span(start)
        if measure == "moved":
            if not self.take("%"):
                self.reject("moved is measured in percent", f"write {number} %")
            return Fraction(number)
        if "." in number:
            self.at = start
            self.reject(f"{measure} is a whole number", f"write {MEASURES[measure]}")
        if self.next is not None and self.next not in (")", "AND", "OR"):
            self.reject(f"{measure} is a number alone", f"write {MEASURES[measure]}")
        return int(number)

    def span(self, start: int) -> int:
        """Numbers and units, up to the next AND, OR or parenthesis."""
        while self.next is not None and self.next not in (")", "(", "AND", "OR"):
            self.at += 1
        first, last = self.parts[start].start, self.parts[self.at - 1].end
        if self.at == start + 1:
            number = self.parts[start].text
            raise BadCondition("age is a time span, with a unit", f"write {number} seconds", first, last)
        try:
            found = read_span(self.text[first:last]) // timedelta(microseconds=1)
        except BadAmount as error:
            raise BadCondition(error.fact, error.hint, first, last) from None
        if found > _MOST:
            raise BadCondition("the duration is too long", "times are counted in 64 bits", first, last)
        return found

    @property
    def next(self) -> str | None:
        if self.at >= len(self.parts):
            return None
        part = self.parts[self.at]
        return part.text.upper() if part.kind in ("word", "symbol") else part.text

    def take(self, text: str) -> bool:
        if self.next != text:
            return False
        self.at += 1
        return True

    def reject(self, fact: str, hint: str) -> NoReturn:
        if self.at < len(self.parts):
            part = self.parts[self.at]
            raise BadCondition(fact, hint, part.start, part.end)
        end = max(1, len(self.text.rstrip()))
        raise BadCondition(fact, hint, end - 1, end)


def _flat(parts: list[RefreshCondition], kind: type[AllHold] | type[AnyHolds]) -> Iterator[RefreshCondition]:
    for part in parts:
        if isinstance(part, kind):
            yield from part.parts
        else:
            yield part


def _no_measure(part: Lexeme) -> tuple[str, str]:
    word = part.text.upper()
    if word == "NOT":
        return "NOT is not supported", "a refresh waits until something is above a bound"
    if word in ("AND", "OR"):
        return f"expecting a condition before {word}", f"write one, such as {MEASURES['changes']}"
    hint = nearest(part.text, MEASURES) or f"write {', '.join(list(MEASURES)[:-1])} or moved(column)"
    return f"there is no measure {part.text!r}", hint


def _name(part: Lexeme) -> str:
    return part.text[1:-1].replace("``", "`") if part.kind == "name" else part.text

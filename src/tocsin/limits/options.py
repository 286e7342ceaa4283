"""Options of a query for Python: the same as `WITH (...)` at the end of its text.

>>> print(with_options("SELECT * FROM hits", window=Window("10 minutes", late="30 seconds")))
SELECT * FROM hits
WITH (window = '10 minutes', late = '30 seconds')
>>> print(with_options("SELECT * FROM hits WITH (window = '1 hour');", refresh=OnDemand(within="200 ms")))
SELECT * FROM hits WITH (window = '1 hour', refresh = 'on demand', within = '200 ms')

A time span is text or a timedelta; an amount of memory is text, or a number of rows.

`check_supported` rejects options that the engine does not answer; they are never ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

from tocsin.errors import SubscriptionError
from tocsin.language.algebra import Query, literal
from tocsin.language.hints import nearest
from tocsin.language.options import NO_OPTIONS, Options, print_span
from tocsin.language.shape import Shape, shape_of
from tocsin.language.statements import lexemes
from tocsin.language.with_options import OPTIONS

__all__ = [
    "SUPPORTED",
    "Every",
    "Memory",
    "OnDemand",
    "When",
    "Window",
    "check_query",
    "check_supported",
    "with_options",
]

Span = str | timedelta


@dataclass(frozen=True, slots=True)
class Window:
    """The events of the last `span`: by arrival, or by event time if `time` or `late` is given."""

    span: Span
    time: str | None = None
    late: Span | None = None

    def pairs(self) -> dict[str, Any]:
        return {"window": self.span, "time": self.time, "late": self.late}


@dataclass(frozen=True, slots=True)
class Memory:
    """The budget of a join of streams, and which rows leave when it is full.

    `alpha`: how far `heeb` looks ahead, in arrivals; 'adaptive': it is learned.
    """

    budget: str | int
    policy: str | None = None
    alpha: float | str | None = None

    def pairs(self) -> dict[str, Any]:
        return {"memory": self.budget, "policy": self.policy, "alpha": self.alpha}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnDemand:
    """Refreshed when its content is requested, which takes at most `within`."""

    within: Span | None = None
    policy: str | None = None
    group: str | None = None
    group_memory: str | int | None = None

    def pairs(self) -> dict[str, Any]:
        return {"refresh": "on demand", **self._shared()}

    def _shared(self) -> dict[str, Any]:
        given = {"within": self.within, "policy": self.policy, "group": self.group}
        return {**given, "group_memory": self.group_memory}


@dataclass(frozen=True, slots=True)
class When(OnDemand):
    """Refreshed when a condition holds, as in `When("changes > 1000 OR age > 1 minute")`."""

    condition: str
    check: Span | None = None

    def pairs(self) -> dict[str, Any]:
        return {"refresh": "when", "when": self.condition, "check": self.check, **self._shared()}


@dataclass(frozen=True, slots=True)
class Every(OnDemand):
    """Refreshed at the first change or tick after each `span`."""

    span: Span

    def pairs(self) -> dict[str, Any]:
        return {"refresh": f"every {_text(self.span)}", **self._shared()}


def with_options(sql: str, **options: Any) -> str:
    """The text with options: appended, or added to the list that it has.

    The values are the classes of this module, or plain values under the names of SQL. None is no option.
    """
    pairs = ", ".join(f"{name} = {value}" for name, value in _pairs(options))
    if not pairs or not isinstance(sql, str):
        return sql
    parts = [part for part in lexemes(sql) if part.kind not in ("space", "comment") and part.text != ";"]
    if not parts:
        return sql
    last = parts[-1]
    for word, bracket in pairwise(parts):
        if last.text == ")" and word.text.upper() == "WITH" and bracket.text == "(" and word.start:
            return f"{sql[: last.start]}, {pairs})"
    return f"{sql[: last.end]}\nWITH ({pairs})"


def _pairs(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values as SQL text."""
    seen: set[str] = set()
    for key, value in options.items():
        if key not in OPTIONS:
            hint = nearest(key, OPTIONS) or f"options are {', '.join(OPTIONS)}"
            raise SubscriptionError(f"there is no option {key!r}", hint)
        for name, one in _given(key, value).items():
            if one is None:
                continue
            if name in seen:
                raise SubscriptionError(f"option {name!r} is given twice", "give it once")
            seen.add(name)
            yield name, _literal(name, one)


def _given(key: str, value: Any) -> dict[str, Any]:
    """The options that one argument stands for."""
    if not isinstance(value, Window | Memory | OnDemand):
        return {key: value}
    given = value.pairs()
    if key not in given:
        name = next(iter(given))
        raise SubscriptionError(f"{type(value).__name__} is not for {key!r}", f"write {name}={value!r}")
    return given


def _literal(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float | timedelta):
        hint = "write a text, a number or a timedelta, or see tocsin.limits.options"
        raise SubscriptionError(f"option {name!r} cannot be {value!r}", hint)
    return literal(_text(value) if isinstance(value, timedelta) else value)


def _text(span: Span) -> str:
    if isinstance(span, str):
        return span
    if not isinstance(span, timedelta):
        raise SubscriptionError(f"a time span cannot be {span!r}", "write '10 minutes' or a timedelta")
    if span <= timedelta(0):
        raise SubscriptionError("a time span is above 0", "as in timedelta(minutes=10)")
    return print_span(span // timedelta(microseconds=1))


SUPPORTED: frozenset[str] = frozenset(
    {
        "window",
        "time",
        "late",
        "absent",
        "refresh",
        "within",
        "when",
        "check",
        "group",
        "group_memory",
        "policy",
    }
)
"""The names of options that some part of the engine answers."""

_OF_SHAPE = {Shape.STREAMJOIN: frozenset({"window", "time", "late", "memory", "policy", "alpha"})}


def check_query(query: Query) -> None:
    """Raise SubscriptionError at the first option that is not supported for queries of its shape."""
    if query.options is not NO_OPTIONS:
        check_supported(query.options, _OF_SHAPE.get(shape_of(query), SUPPORTED))


def check_supported(options: Options, supported: frozenset[str] = SUPPORTED) -> None:
    """Raise SubscriptionError at the first option that is not among the supported ones."""
    if options is NO_OPTIONS:
        return
    for name in options.given:
        if name not in supported:
            known = f": options are {', '.join(sorted(supported))}" if supported else ""
            fact = f"the option {name} is not supported by this engine"
            raise SubscriptionError(fact, f"leave it out{known}", option=name)

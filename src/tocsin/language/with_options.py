"""Reads `WITH (name = value, ...)`: names, values, and which options go together.

Whether an option fits the query (a window needs a stream) is decided in `combinations.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from typing import Any, NamedTuple

from sqlglot import exp

from tocsin.errors import Position
from tocsin.language.algebra import Query
from tocsin.language.dialect import SourceText
from tocsin.language.hints import nearest
from tocsin.language.options import ADAPTIVE, FOREVER, NO_OPTIONS, Budget, Options
from tocsin.language.refresh_conditions import BadCondition, check_columns, read_condition
from tocsin.language.spans import BadAmount, read_bytes, read_span

__all__ = ["OPTIONS", "POLICIES", "OptionReader"]

OPTIONS = tuple(field.name for field in fields(Options) if field.name != "every")
"""The names of options in SQL."""

POLICIES = {
    "refresh": ("at once", "naive", "online", "simulate", "adapt", "oracle"),
    "memory": ("heeb", "prob", "life", "rand", "lru", "lfu", "fifo", "lfd", "s3-fifo", "arc"),
}
"""The names of policies, by the option that they are for."""

_NOT_FOR_QUERIES = ("oracle", "lfd", "s3-fifo", "arc")  # they know the future, or are for lookups

_REFRESH = "write 'on demand', 'when' or 'every 10 seconds'"
_EVERY = re.compile(r"every\b\s*(.*)", re.DOTALL | re.IGNORECASE)
_MOST = 2**63 - 1

Given = int | float | str
"""A constant of the text."""


def _span(given: Given) -> int:
    if not isinstance(given, str):
        raise BadAmount("a time span is text with a unit", f"write '{given} seconds', or another unit")
    microseconds = read_span(given) // timedelta(microseconds=1)
    if microseconds > _MOST:
        raise BadAmount("the duration is too long", "times are counted in microseconds, in 64 bits")
    return microseconds


def _absent(given: Given) -> int:
    """How long a key is shown after its last event."""
    if isinstance(given, str) and given.strip().lower() == "forever":
        return FOREVER
    return _span(given)


def _memory(given: Given) -> Budget:
    if isinstance(given, str):
        return Budget(read_bytes(given))
    if isinstance(given, float) or not 0 < given <= _MOST:
        raise BadAmount("a number of rows is whole and above 0", "write 10000, or an amount as in '64 MB'")
    return Budget(given, rows=True)


def _alpha(given: Given) -> float | str:
    if isinstance(given, str) and given.strip().lower() == ADAPTIVE:
        return ADAPTIVE
    if isinstance(given, str) or not 0 < given < math.inf:
        raise BadAmount("alpha is a number above 0", "leave it out, or write alpha = 'adaptive'")
    return float(given)


def _text(given: Given) -> str:
    if not isinstance(given, str):
        raise BadAmount("this option is text", "write it in quotes")
    if not given.strip():
        raise BadAmount("the text is empty", "write a value, or leave the option out")
    return given


def _when(given: Given) -> str:
    text = _text(given)
    read_condition(text)
    return text


def _policy(given: Given) -> str:
    names = [name for some in POLICIES.values() for name in some]
    word = given.lower() if isinstance(given, str) else ""
    if word not in names:
        hint = nearest(word, names) or f"policies are {', '.join(names)}"
        raise BadAmount(f"there is no policy {given!r}", hint)
    return word


def _refresh(given: Given) -> str:
    word = " ".join(given.lower().split()) if isinstance(given, str) else ""
    if word.startswith("every"):
        return "every"
    if word not in ("on demand", "when"):
        raise BadAmount("this is not a way to refresh", _REFRESH)
    return word


_READERS: dict[str, Callable[[Given], Any]] = {
    "window": _span, "time": _text, "late": _span, "absent": _absent, "memory": _memory, "policy": _policy,
    "alpha": _alpha, "refresh": _refresh, "within": _span, "when": _when, "check": _span, "group": _text,
    "group_memory": _memory,
}  # fmt: skip


class _Conflict(NamedTuple):
    """Options that do not go together: which to point at, what is wrong, what to do."""

    name: str
    fact: str
    hint: str


class OptionReader:
    """Reads the options of one SELECT; knows where each stands in the text."""

    def __init__(self, source: SourceText, select: exp.Select) -> None:
        self.source = source
        clause = select.args.get("limits")
        self.nodes: dict[str, exp.Expr] = {}  # by name
        self.options = self._read(clause.expressions) if clause is not None else NO_OPTIONS

    def _read(self, parts: list[exp.Expr]) -> Options:
        values: dict[str, Any] = {}
        for part in parts:
            name = part.name.lower()
            if name not in _READERS:
                hint = nearest(name, OPTIONS) or f"options are {', '.join(OPTIONS)}"
                raise self.source.error(f"there is no option {part.name!r}", part.this, hint)
            if name in self.nodes:
                raise self.source.error(f"option {name!r} is given twice", part.this, "give it once")
            self.nodes[name] = part
            node = part.args["value"]
            given = _constant(node)
            try:
                values[name] = _READERS[name](given)
                if values[name] == "every":
                    found = _EVERY.match(str(given).strip())
                    values["every"] = _span(found[1] if found else "")
            except BadCondition as error:
                raise self.source.error(error.fact, self._inside(node, error), error.hint) from None
            except BadAmount as error:
                raise self.source.error(error.fact, node, error.hint) from None
        options = Options(**values)
        if (conflict := _conflict(options)) is not None:
            raise self.error(conflict.fact, conflict.name, conflict.hint)
        return options

    def check_condition(self, query: Query) -> None:
        """Raise SqlError if the condition of a refresh names what the answer does not have."""
        if query.options.when is None:
            return
        try:
            check_columns(read_condition(query.options.when), query)
        except BadCondition as error:
            where = self._inside(self.nodes["when"].args["value"], error)
            raise self.source.error(error.fact, where, error.hint) from None

    def _inside(self, node: exp.Expr, error: BadCondition) -> Position:
        """The place of an error inside a text constant; the whole constant if it has escapes."""
        at = self.source.at(node)
        if self.source.text[at.start + 1 : at.end - 1] != str(node.this):
            return at
        return Position(at.text, at.start + 1 + error.start, at.start + 1 + error.end)

    def error(self, fact: str, name: str, hint: str) -> Exception:
        """An error at an option, for the caller to raise."""
        return self.source.error(fact, self.nodes[name], hint)


def _constant(node: exp.Literal) -> Given:
    if node.is_string:
        return str(node.this)
    text = str(node.this)
    if text.isdigit():
        return int(text) if len(text) < 20 else math.inf
    return float(text)


def _conflict(options: Options) -> _Conflict | None:
    """The first pair of options that do not go together."""
    if options.absent is not None:
        if options.window is None:
            return _Conflict("absent", "absent needs a window", "add window = '5 minutes'")
        if options.absent <= options.window:
            hint = "it counts from the last event; write a longer time, or absent = 'forever'"
            return _Conflict("absent", "absent is not longer than the window", hint)
    if options.refresh is None:
        for name in ("within", "when", "check", "group", "group_memory"):
            if getattr(options, name) is not None:
                return _Conflict(name, f"{name} needs refresh", "add refresh = 'on demand', or leave it out")
    elif options.refresh == "when" and options.when is None:
        return _Conflict("refresh", "refresh = 'when' needs a condition", "add when = 'changes > 1000'")
    if options.refresh != "when":
        for name in ("when", "check"):
            if getattr(options, name) is not None:
                return _Conflict(name, f"{name} is for refresh = 'when'", "leave it out")
    return _policy_conflict(options)


def _policy_conflict(options: Options) -> _Conflict | None:
    if options.memory is not None and options.refresh is not None:
        hint = "memory is for joins of streams, group_memory for refresh"
        return _Conflict("memory", "memory and refresh do not go together", hint)
    if options.policy is not None:
        kind = next(kind for kind, names in POLICIES.items() if options.policy in names)
        other = next((other for other in POLICIES if getattr(options, other) is not None), kind)
        if other != kind:
            names = [name for name in POLICIES[other] if name not in _NOT_FOR_QUERIES]
            hint = f"policies of {other} are {', '.join(names)}"
            return _Conflict("policy", f"policy {options.policy!r} is for {kind}, not for {other}", hint)
        if getattr(options, kind) is None:
            return _Conflict("policy", f"policy {options.policy!r} needs {kind}", f"add {kind} = ...")
    if options.alpha is not None and (options.memory is None or options.policy not in (None, "heeb")):
        return _Conflict("alpha", "alpha is for memory with policy 'heeb'", "leave it out")
    return None

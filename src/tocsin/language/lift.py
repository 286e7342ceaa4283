"""Texts that differ only in literals share one parse.

Subscriptions are mostly made by programs: the same text with other numbers. One pass over the
words lifts the literals out; what is left, the *skeleton*, is the key of a parsed template:

    SELECT * FROM stocks WHERE per <= 50 AND sector = 'tech'
    SELECT * FROM stocks WHERE per <= i  AND sector = s        50, 'tech'

A parse of the first such text tells which literals ended up as values of conditions; those are
slots. All others (intervals, ends of bands, constants compared with each other) stay part of
the key. Whenever anything is unusual (an escape in a string, a comment, a value that cannot be read),
the text is parsed as a whole, so the query, or the error and its position, are always those of
`parse_query`. Parsing a text costs a millisecond; filling a template, some 30 microseconds.

>>> from tocsin.model.schema import Field, Stream, Type
>>> parser = Parser({"hits": Stream("hits", (Field("n", Type.BIGINT),))})
>>> [str(parser.parse(f"SELECT * FROM hits WHERE n > {i}").where) for i in (1, 2)], parser.parsed
(['n > 1', 'n > 2'], 1)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tocsin.errors import SqlError
from tocsin.language.algebra import Query
from tocsin.language.deep import deeply
from tocsin.language.dialect import check_text
from tocsin.language.sql import parse_query, trace_query
from tocsin.language.template import Template
from tocsin.model.schema import Catalog

__all__ = ["Lifted", "Parser", "lift"]

MOST_SKELETONS = 10_000
MOST_TEMPLATES = 1_000


class Lifted(NamedTuple):
    """A text without its literals: the key, the literals' values, and where they begin."""

    skeleton: str
    values: list[int | float | str]
    starts: list[int]


_PARTS = re.compile(  # like lexer.WORD, but all that is not a literal in one go
    r"""
      (?P<plain>(?:\s+|[A-Za-z_][A-Za-z0-9_]*(?!['"\w])|`(?:[^`]|``)*`|-(?!-)|/(?!\*)|[()\[\]*,;.=<>!+%|&^~:?])+)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+(?![+-]))?(?![\w.]))
    | (?P<string>'[^'\\]*'(?!')|"[^"\\]*"(?!"))
    | (?P<odd>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def lift(text: str) -> Lifted | None:
    """The text with every literal replaced by a mark of its type; None if a word of it is unusual."""
    parts: list[str] = []
    values: list[int | float | str] = []
    starts: list[int] = []
    for match in _PARTS.finditer(text):
        kind, word = match.lastgroup, match[0]
        if kind == "plain":
            parts.append(word)
            continue
        if kind == "odd":  # escapes, comments, prefixes such as X'1F', other alphabets
            return None
        value, mark = _number(word) if kind == "number" else (word[1:-1], "\x03")
        if value is None:
            return None
        parts.append(mark)
        values.append(value)
        starts.append(match.start())
    return Lifted("".join(parts), values, starts)


def _number(word: str) -> tuple[int | float | None, str]:
    if word.isdigit():
        return (int(word) if len(word) < 1000 else None), "\x01"
    value = float(word)
    return (None if math.isinf(value) else value), "\x02"


@dataclass(slots=True)
class _Skeleton:
    """The templates of one skeleton, by the literals that are not slots."""

    fixed: tuple[int, ...]
    templates: dict[tuple[object, ...], tuple[Template, list[int]]] = field(default_factory=dict)


class Parser:
    """`parse_query` for one catalog, remembering what it parsed."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.parsed = 0  # texts that were parsed as a whole
        self._seen = dict(catalog)
        self._skeletons: dict[str, _Skeleton] = {}

    def parse(self, text: str) -> Query:
        """The subscription a text says; the same as `parse_query(text, catalog)`."""
        check_text(text)
        return deeply(self._parse, text)

    def template(self, text: str) -> tuple[Template, Any, list[Any]] | None:
        """The template of a text, a key that texts of one template share, and its literals.

        The key ends with where the literals begin in the first such text; those are the template's keys.
        None if the text has to be parsed as a whole.
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
            deeply(self._parse, text)  # learns it, if it can be learnt
        return None

    def _parse(self, text: str) -> Query:
        lifted = lift(text)
        if lifted is None:
            return self._whole(text)
        if self._seen != self.catalog:
            self._seen, self._skeletons = dict(self.catalog), {}
        skeleton = self._skeletons.get(lifted.skeleton)
        if skeleton is None:
            return self._learn(text, lifted)
        found = skeleton.templates.get(_key(skeleton.fixed, lifted))
        if found is None:
            return self._learn(text, lifted)
        template, starts = found
        try:
            return template.fill(dict(zip(starts, lifted.values, strict=True)))
        except ValueError:
            return self._whole(text)  # raises, with the position

    def _whole(self, text: str) -> Query:
        self.parsed += 1
        return parse_query(text, self.catalog)

    def _learn(self, text: str, lifted: Lifted) -> Query:
        """Parses the text and keeps the template, if its slots are among the lifted literals."""
        try:
            template = Template.of(trace_query(text, self.catalog))
        except SqlError:
            return self._whole(text)
        self.parsed += 1
        if not template.keys <= set(lifted.starts):
            return self._whole(text)
        fixed = tuple(i for i, start in enumerate(lifted.starts) if start not in template.keys)
        if len(self._skeletons) >= MOST_SKELETONS:
            self._skeletons.clear()
        skeleton = self._skeletons.setdefault(lifted.skeleton, _Skeleton(fixed))
        if skeleton.fixed == fixed and len(skeleton.templates) < MOST_TEMPLATES:
            skeleton.templates[_key(fixed, lifted)] = template, lifted.starts
        return template.fill(dict(zip(lifted.starts, lifted.values, strict=True)))


def _key(fixed: tuple[int, ...], lifted: Lifted) -> tuple[object, ...]:
    """The literals that are part of the key; 1 and 1.0 are told apart by the skeleton."""
    return tuple(lifted.values[i] for i in fixed)

"""Texts that differ from texts seen before in literals alone become plain filters without a parse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin.language.template import MAX_SKELETONS, Parser, Template
from tocsin.predicate.plain import PlainFilter, PlainTemplate

__all__ = ["PlainTexts"]


class PlainTexts:
    """Plain filters of texts whose template a parser knows.

    >>> from tocsin.model.schema import Stream
    >>> parser = Parser({"hits": Stream("hits")})
    >>> texts = PlainTexts(parser)
    >>> texts.filter("SELECT * FROM hits WHERE n > 1") is None  # the parser does not know it yet
    True
    >>> _ = parser.parse("SELECT * FROM hits WHERE n > 1")
    >>> [test[2] for test in texts.filter("SELECT * FROM hits WHERE n > 7").tests]
    [7]
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._known: dict[int, tuple[Template, PlainTemplate | None]] = {}  # by identity of the template

    def filter(self, text: str) -> PlainFilter | None:
        """None if the text must be parsed, or its filter is not plain."""
        known = self._parser.known(text)
        if known is None:
            return None
        return self.of(*known)

    def of(self, template: Template, raw: Mapping[Any, Any]) -> PlainFilter | None:
        """The filter of a template with raw values; None if it is not plain."""
        found = self._known.get(id(template))
        if found is None:
            if len(self._known) >= MAX_SKELETONS:
                self._known.clear()
            found = template, PlainTemplate.of(template, self._parser.catalog)
            self._known[id(template)] = found
        return None if found[1] is None else found[1].fill(raw)

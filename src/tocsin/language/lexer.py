"""The words of a text in one pass: where strings, names, numbers and comments begin and end.

Enough to find the semicolons between statements (`statements.py`). Whatever it is not sure of it
calls `odd`; the tests compare the rest with sqlglot's tokens on random text.

>>> [(t.kind, t.text) for t in words("x5 <= 1.5 AND y='it''s'") if t.kind != "space"]
[('word', 'x5'), ('symbol', '<'), ('symbol', '='), ('number', '1.5'), ('word', 'AND'), ('word', 'y'),
('symbol', '='), ('string', "'it''s'")]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Lexeme", "words"]

_WORD = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>--[^\r\n]*|/\*)
    | (?P<raw>(?<![\w])[rR](?:'[^']*'|"[^"]*"))
    | (?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<name>`(?:[^`]|``)*`)
    | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol>[()\[\]*,;.=<>!+\-/%|&^~:?])
    | (?P<odd>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_BRACKETS = re.compile(r"/\*|\*/")


class Lexeme(NamedTuple):
    """A stretch of text and what it is."""

    kind: str
    text: str
    start: int
    end: int


def words(text: str) -> Iterator[Lexeme]:
    """The lexemes of a text, in order and without gaps; an unclosed string or comment is `odd` to the end."""
    at = 0
    while at < len(text):
        match = _WORD.match(text, at)
        assert match is not None and match.lastgroup is not None, "every character is at least odd"
        kind, end = match.lastgroup, match.end()
        if match[0] == "/*":
            end = _comment_end(text, at)
            kind = "comment" if end else "odd"
            end = end or len(text)
        elif kind == "odd" and match[0] in "'\"`":
            end = len(text)
        yield Lexeme(kind, text[at:end], at, end)
        at = end


def _comment_end(text: str, start: int) -> int:
    """Where a comment with comments inside it ends; 0 if it does not."""
    depth = 0
    for bracket in _BRACKETS.finditer(text, start):
        depth += 1 if bracket[0] == "/*" else -1
        if depth == 0:
            return bracket.end()
    return 0

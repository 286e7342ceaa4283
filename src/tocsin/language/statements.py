"""Split a file into statements at semicolons, except those inside strings, quoted names and comments.

>>> [(s.text, s.line, s.comments) for s in split_statements("-- first\\nSELECT ';';\\n\\nSELECT 2 -- last")]
[("SELECT ';'", 2, ('first',)), ('SELECT 2', 4, ('last',))]

`lexemes` is a small scanner, enough to find strings, names, numbers and comments in one pass. Text it
cannot classify has the kind `odd`; property tests compare all other kinds with sqlglot's tokens.

>>> [(t.kind, t.text) for t in lexemes("x5 <= 1.5 AND y='it''s'") if t.kind != "space"]
[('word', 'x5'), ('symbol', '<'), ('symbol', '='), ('number', '1.5'), ('word', 'AND'), ('word', 'y'),
('symbol', '='), ('string', "'it''s'")]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tocsin.errors import Position

__all__ = ["Lexeme", "Statement", "lexemes", "option_position", "split_statements"]

# -- lexemes ---------------------------------------------------------------------------------------


_LEXEME = re.compile(
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
_COMMENT_MARKS = re.compile(r"/\*|\*/")


class Lexeme(NamedTuple):
    """A piece of text and its kind."""

    kind: str
    text: str
    start: int
    end: int


def lexemes(text: str) -> Iterator[Lexeme]:
    """The lexemes of a text, without gaps; an unclosed string or comment is `odd` up to the end."""
    at = 0
    while at < len(text):
        match = _LEXEME.match(text, at)
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


def option_position(text: str, name: str) -> Position | None:
    """Where an option stands in the `WITH (...)` of a query; None if it does not.

    >>> print(option_position("SELECT a FROM s WITH (window = '1 s', memory = '9 KB')", "memory"))
      line 1, column 39: SELECT a FROM s WITH (window = '1 s', memory = '9 KB')
                                                               ^^^^^^
    """
    words = [one for one in lexemes(text) if one.kind not in ("space", "comment")]
    inside = [n for n, one in enumerate(words) if one.text.upper() == "WITH"]
    for one, after in pairwise(words):
        if inside and one.start > words[inside[-1]].start and after.text == "=" and one.text.lower() == name:
            return Position(text, one.start, one.end)
    return None


def _comment_end(text: str, start: int) -> int:
    """The end of a comment, which may contain comments; 0 if it is not closed.

    The parser's rules at the edges: `/*` right after `/*` opens nothing, and the slash of an inner `*/` may
    be the first character of the next `/*`.

    >>> [_comment_end(text, 0) for text in ("/*/**/;*/", "/* /* */* x */ */;", "/* /* */")]
    [6, 17, 0]
    """
    depth, at = 1, start + 2
    opens = at + 1  # the first place where the parser looks for the start of an inner comment
    while mark := _COMMENT_MARKS.search(text, at):
        if mark[0] == "*/":
            depth -= 1
            if depth == 0:
                return mark.end()
            at = opens = mark.start() + 1
        elif mark.start() < opens:
            at = mark.start() + 1
        else:
            depth, at, opens = depth + 1, mark.end(), mark.end() + 1
    return 0


# -- statements ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement without its semicolon, the line where it starts, and its comments."""

    text: str
    line: int
    comments: tuple[str, ...] = ()

    @property
    def expected(self) -> dict[str, str]:
        """The outcome that comments declare, by `shape`, `normal`, `warning` and `error`.

        All comments after `error:` are further lines of the message.

        >>> split_statements("-- error: bad LIMIT\\n-- hint: write LIMIT 10\\nSELECT 1 LIMIT 0")[0].expected
        {'error': 'bad LIMIT\\nhint: write LIMIT 10'}
        """
        found: dict[str, str] = {}
        for comment in self.comments:
            key, colon, rest = comment.partition(": ")
            if "error" in found:
                found["error"] += "\n" + comment
            elif colon and key in ("shape", "normal", "warning", "error"):
                found[key] = rest
        return found


def split_statements(text: str) -> list[Statement]:
    """The statements of a text; a comment belongs to the next statement, or to the last if none follows.

    A comment on the same line after a semicolon belongs to the statement before it.
    """
    found: list[Statement] = []
    pending: list[Lexeme] = []
    comments: list[str] = []
    closed_on = -1  # end of the line with the last semicolon
    for lexeme in lexemes(text):
        if lexeme.kind == "symbol" and lexeme.text == ";":
            _add(found, text, pending, comments)
            pending, comments = [], []
            closed_on = _line_end(text, lexeme.end)
        elif lexeme.kind == "comment":
            if found and not pending and lexeme.start < closed_on:
                last = found[-1]
                found[-1] = Statement(last.text, last.line, (*last.comments, _plain(lexeme.text)))
            else:
                comments.append(_plain(lexeme.text))
        elif lexeme.kind != "space":
            pending.append(lexeme)
    _add(found, text, pending, comments)
    if not pending and comments and found:
        last = found[-1]
        found[-1] = Statement(last.text, last.line, (*last.comments, *comments))
    return found


def _add(found: list[Statement], text: str, pending: list[Lexeme], comments: list[str]) -> None:
    if pending:
        start, end = pending[0].start, pending[-1].end
        found.append(Statement(text[start:end], text.count("\n", 0, start) + 1, tuple(comments)))


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _plain(comment: str) -> str:
    """The text of a comment without its marks and one leading space, so that columns line up."""
    body = comment[2:-2] if comment.startswith("/*") else comment[2:]
    return body.removeprefix(" ").rstrip()

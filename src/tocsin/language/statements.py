"""Files of statements: split at semicolons, but not at those in strings, names and comments.

>>> [(s.text, s.line, s.comments) for s in split_statements("-- first\\nSELECT ';';\\n\\nSELECT 2 -- last")]
[("SELECT ';'", 2, ('first',)), ('SELECT 2', 4, ('last',))]
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.language.lexer import Lexeme, words

__all__ = ["Statement", "split_statements"]


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement without its semicolon, the line it starts in, and the comments before and in it."""

    text: str
    line: int
    comments: tuple[str, ...] = ()

    @property
    def expected(self) -> dict[str, str]:
        """What the comments say is to come of it, by `shape`, `normal`, `warning` and `error`.

        All comments after `error:` are the lines of the message.

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

    Comments at the end of a line that has the semicolon belong to the statement before it.
    """
    found: list[Statement] = []
    pending: list[Lexeme] = []
    comments: list[str] = []
    closed_on = -1  # where the line ends that has the last semicolon
    for lexeme in words(text):
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
    """The words of a comment without its marks: one leading space goes, so that columns line up."""
    body = comment[2:-2] if comment.startswith("/*") else comment[2:]
    return body.removeprefix(" ").rstrip()

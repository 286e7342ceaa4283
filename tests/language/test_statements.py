"""Splitting files of statements."""

from __future__ import annotations

import pytest

from tocsin.language.statements import split_statements


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" ;; -- x\n;", []),
        ("a; b", ["a", "b"]),
        ("a ';' b; c", ["a ';' b", "c"]),
        ("a 'it'';s'; b", ["a 'it'';s'", "b"]),
        ("a 'it\\';s'; b", ["a 'it\\';s'", "b"]),
        ('a "x;" ; `b;``;` c', ['a "x;"', "`b;``;` c"]),
        ("a /* ; /* ; */ ; */ b; c -- ;\n d", ["a /* ; /* ; */ ; */ b", "c -- ;\n d"]),
        ("a r'\\'; b", ["a r'\\'", "b"]),
        ("a 'open; b", ["a 'open; b"]),
        ("é; ü", ["é", "ü"]),
    ],
)
def test_semicolons(text: str, expected: list[str]) -> None:
    assert [s.text for s in split_statements(text)] == expected


def test_lines_and_comments() -> None:
    text = "-- one\n\n/* two */ a\n  b; -- same line\n\n-- next\nc; d -- last"
    first, second, third = split_statements(text)
    assert (first.line, first.comments) == (3, ("one", "two", "same line"))
    assert (second.line, second.comments) == (7, ("next",))
    assert (third.line, third.comments) == (7, ("last",))

r"""Patterns of stored queries as ours: * and ?, and regexes of Lucene, over values or over words.

>>> like_of_wildcard(r"a*b?\*%"), inside_words("qu?ck*", "", False)
('a%b_*\\%', ' qu[^ \\x1f]ck[^ \\x1f]* ')
>>> rlike_of_regexp("ab.[0-9]+$", "", False, words=False)
'(?s)^(?:ab.[0-9]+\\$)$'
"""

from __future__ import annotations

import re

from tocsin.rules.atoms import escaped
from tocsin.rules.base import RefusedError

__all__ = ["inside_words", "like_of_wildcard", "rlike_of_regexp"]

_IN_WORD = r"[^ \x1f]"
_OPERATORS = frozenset('~<>&@#"')
_CLASSES = frozenset("dDwWsS")


def like_of_wildcard(pattern: str) -> str:
    """A pattern of LIKE for one with * and ?."""
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join("%" if one == "*" else "_" if one == "?" else escaped(one[-1]) for one in pieces)


def _plain(letter: str) -> str:
    """A character that a regex takes as it is."""
    return letter if letter.isalnum() or letter in "_ " or not letter.isascii() else f"\\{letter}"


def inside_words(pattern: str, place: str, folded: bool) -> str:
    """A regex that finds a word that matches a pattern with * and ?."""
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    made = (f"{_IN_WORD}*" if one == "*" else _IN_WORD if one == "?" else _plain(one[-1]) for one in pieces)
    if any(one[-1] in " \x1f" for one in pieces):
        raise RefusedError(place, pattern, "a word has no space")
    return f"{'(?i)' if folded else ''} {''.join(made)} "


def rlike_of_regexp(pattern: str, place: str, folded: bool, *, words: bool) -> str:
    """A regex of ours for one of Lucene, which matches whole values, or whole words."""
    out, at = [], 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == "\\":
            at += 1
            if at == len(pattern):
                raise RefusedError(place, pattern, "the regex ends in a backslash")
            if pattern[at] in _CLASSES:
                if words and pattern[at] in "DWSs":
                    raise RefusedError(place, f"\\{pattern[at]}", "this is not supported for words")
                out.append(f"\\{pattern[at]}")
            else:
                out.append(_plain(pattern[at]))
        elif letter in _OPERATORS:
            raise RefusedError(place, letter, "this operator of Lucene's regexes is not supported")
        elif letter == "[":
            end, text = _class(pattern, at, place, words)
            out.append(text)
            at = end
        elif letter in "^$":
            out.append(f"\\{letter}")
        elif letter == "." and words:
            out.append(_IN_WORD)
        elif letter in " \x1f" and words:
            raise RefusedError(place, pattern, "a word has no space")
        else:
            out.append(letter)
        at += 1
    text = "".join(out)
    flags = "is" if folded else "s"
    return f"(?{flags}) (?:{text}) " if words else f"(?{flags})^(?:{text})$"


def _class(pattern: str, start: int, place: str, words: bool) -> tuple[int, str]:
    """A class of characters: where it ends, and as ours."""
    at, out = start + 1, ["["]
    negated = pattern[at : at + 1] == "^"
    if negated:
        out.append("^ \\x1f" if words else "^")
        at += 1
    first = at
    while at < len(pattern) and (pattern[at] != "]" or at == first):
        letter = pattern[at]
        if letter == "\\":
            at += 1
            letter = pattern[at : at + 1]
            if letter in _CLASSES or not letter:
                raise RefusedError(place, pattern[start : at + 1], "this is not supported inside [ ]")
            out.append(_plain(letter))
        elif letter == "-" or letter.isalnum() or not letter.isascii():
            out.append(letter)
        else:
            out.append(f"\\{letter}")
        at += 1
    if at >= len(pattern):
        raise RefusedError(place, pattern[start:], "the class of characters does not end")
    return at, "".join(out) + "]"

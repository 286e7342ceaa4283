"""LIKE over a whole column: `%` any characters, `_` exactly one, a backslash makes the next plain.

A pattern with `%` only at its ends is a comparison, a prefix, a suffix or a substring, and is
asked as such; any other becomes a regular expression over the whole text.

>>> like(pa.array(["ab", "a%b", "xab"]), "%ab").to_pylist()
[True, False, True]
>>> like(pa.array(["a%b", "axb"]), "a\\\\%b").to_pylist()
[True, False]
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["like", "read_like"]


def like(texts: Any, pattern: str) -> Any:
    """Where the texts of an Arrow array match."""
    way, text = read_like(pattern)
    if way == "regex":
        return pc.match_substring_regex(texts, text)
    if way == "equal":
        return pc.equal(texts, pa.scalar(text, pa.string()))
    find = {"prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}[way]
    return find(texts, text)


@lru_cache(maxsize=4096)
def read_like(pattern: str) -> tuple[str, str]:
    """How to ask for a pattern (equal, prefix, suffix, contains or regex), and with which text."""
    parts: list[str] = []  # "%", "_" or a plain character as "=c"
    escaped = False
    for character in pattern:
        if escaped or character not in "%_\\":
            parts.append("=" + character)
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            parts.append(character)
    first = 1 if parts[:1] == ["%"] else 0
    last = len(parts) - (1 if len(parts) > first and parts[-1] == "%" else 0)
    middle = parts[first:last]
    if "%" in middle or "_" in middle:
        body = "".join({"%": ".*", "_": "."}.get(part) or _quoted(part[1:]) for part in parts)
        return "regex", rf"(?s)\A{body}\z"
    text = "".join(part[1:] for part in middle)
    ends = (first == 1, last < len(parts))
    return {(0, 0): "equal", (0, 1): "prefix", (1, 0): "suffix", (1, 1): "contains"}[ends], text


def _quoted(character: str) -> str:
    return character if character.isalnum() else rf"\x{{{ord(character):x}}}"

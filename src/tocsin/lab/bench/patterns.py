r"""Generated patterns and texts: regexes as people write them over logs, words, and lines with both.

Everything is drawn by a seed. `regex_set(n, seed)` is about the words of `word_set(n // 5, seed)`;
give these to `texts` and some of the regexes match.

>>> words = word_set(2, seed=1)
>>> words, regex_set(10, seed=1)[0]
(['oubdtm', 'ucavltal'], 'user_ucavltal\\d{3,}@host\\.example')
>>> texts(1, 40, seed=1, words=words).to_pylist()
['oubdtm oubdtm ucavltal ucavltal oubdtm: ']
"""

from __future__ import annotations

from random import Random
from string import ascii_lowercase
from typing import Any

import pyarrow as pa

__all__ = ["regex_set", "texts", "word_set"]

# A regex about the words {a} and {b}, and a line that it may match.
_ABOUT = (
    (r"{a} [0-9]+ in (disk|net)\w*", "{a} {n} in disk{d}"),
    (r"user_{a}\d{{3,}}@host\.example", "user_{a}{n}@host.example"),
    (r"^GET /api/v[12]/{a}/\d+", "GET /api/v1/{a}/{n}"),
    (r"({a}|{b}): (timeout|refused)", "{a}: refused"),
    (r"\b{a}[-_ ]?{b}\b", "{a}-{b}"),
    (r"{a}=[a-z0-9]{{4,}}(;|$)", "{a}={x};"),
    (r"(?i)\b{a} failed", "{a} Failed"),
    (r"{a}.*{b}$", "{b} {a}"),
)
_PIECES = (r"\d{%d}", r"\d{%d,}", r"[a-f]{%d,}", r"[A-Z]{%d}", r"\w{%d}", r"[aeiou]{%d}")
_BETWEEN = ("-", ":", r"\s", " ", r"\.", "[-/]", r"\W+", "=")
_SHARE_WITHOUT, _SHARE_LINES = 0.03, 0.1


def word_set(n: int, seed: int) -> list[str]:
    """Distinct words of 5 to 10 letters."""
    draw = Random(seed)
    words: dict[str, None] = {}
    while len(words) < n:
        words["".join(draw.choices(ascii_lowercase, k=draw.randint(5, 10)))] = None
    return list(words)


def regex_set(n: int, seed: int) -> list[str]:
    """Distinct regexes, nearly all with a word or two; a few percent have none."""
    draw = Random(seed)
    words = word_set(max(1, n // 5), seed)
    found: dict[str, None] = {}
    while len(found) < n:
        if draw.random() < _SHARE_WITHOUT:
            between = draw.choice(_BETWEEN)
            regex = between.join(draw.choice(_PIECES) % draw.randint(2, 6) for _ in range(draw.randint(1, 3)))
        else:
            regex = draw.choice(_ABOUT)[0].format(a=draw.choice(words), b=draw.choice(words))
        found[regex] = None
    return list(found)


def texts(n: int, length: int, seed: int, words: list[str]) -> Any:
    """Lines of exactly `length` characters: words, and now and then what a regex of `regex_set` is after."""
    draw = Random(seed)
    return pa.array([_line(draw, length, words) for _ in range(n)], pa.string())


def _line(draw: Random, length: int, words: list[str]) -> str:
    parts: list[str] = []
    size = 0
    while size < length:
        part = draw.choice(words)
        if draw.random() < _SHARE_LINES:
            number = draw.randint(0, 10**6)
            code = "".join(draw.choices(ascii_lowercase + "0123456789", k=6))
            line = draw.choice(_ABOUT)[1]
            part = line.format(a=part, b=draw.choice(words), n=number, d=number % 10, x=code)
        parts.append(part)
        size += len(part) + 1
    return " ".join(parts)[:length]

"""Texts: functions of single values, as Spark has them; positions count from 1, or from the end if negative.

>>> substring("Spark SQL", -3, 2), split_part("a,b,c", ",", -1), replaced("aab", "a", "x")
('SQ', 'c', 'xxb')
>>> regexp_extract("item 12 of 30", "([0-9]+) of ([0-9]+)", 2), regexp_extract("x", "(y)", 1)
('30', '')
>>> cidr_contains("10.0.0.0/8", "10.1.2.3"), cidr_contains("2001:db8::/32", "10.1.2.3")
(True, False)
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import re2

from tocsin.model.folding import fold

__all__ = [
    "cidr_contains",
    "find_text",
    "initial_capitals",
    "left",
    "like",
    "like_folded",
    "locate",
    "matches",
    "pad_left",
    "pad_right",
    "regexp_extract",
    "regexp_replace",
    "repeated",
    "replaced",
    "right",
    "split_part",
    "substring",
    "substring_from",
    "translated",
    "trim",
    "trim_left",
    "trim_right",
]

_MOST = 1 << 24  # characters of a text that a function makes


def substring(text: str, start: int, length: int) -> str:
    """`length` characters from a place on; a place before the text counts towards the length."""
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    end = begin + max(length, 0)
    return text[max(begin, 0) : max(end, 0)]


def substring_from(text: str, start: int) -> str:
    return substring(text, start, 2**31)


def left(text: str, length: int) -> str:
    return text[: max(length, 0)]


def right(text: str, length: int) -> str:
    return text[-length:] if length > 0 else ""


def trim(text: str, characters: str = " ") -> str:
    return text.strip(characters) if characters else text


def trim_left(text: str, characters: str = " ") -> str:
    return text.lstrip(characters) if characters else text


def trim_right(text: str, characters: str = " ") -> str:
    return text.rstrip(characters) if characters else text


def replaced(text: str, searched: str, other: str = "") -> str:
    return text.replace(searched, other) if searched else text


def repeated(text: str, times: int) -> str | None:
    """NULL if that is more than memory should hold."""
    return text * max(times, 0) if len(text) * times <= _MOST else None


def pad_left(text: str, length: int, pad: str = " ") -> str | None:
    if length > _MOST:
        return None
    missing = max(length - len(text), 0)
    return (pad * missing)[:missing] + text[: max(length, 0)]


def pad_right(text: str, length: int, pad: str = " ") -> str | None:
    if length > _MOST:
        return None
    missing = max(length - len(text), 0)
    return text[: max(length, 0)] + (pad * missing)[:missing]


def find_text(text: str, searched: str) -> int:
    """Where a text is found first; 0 if it is not."""
    return text.find(searched) + 1


def locate(searched: str, text: str, start: int) -> int:
    return text.find(searched, start - 1) + 1 if start > 0 else 0


def initial_capitals(text: str) -> str:
    """Words, which spaces separate, with a capital and then small letters."""
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def translated(text: str, given: str, other: str) -> str:
    table: dict[int, str | None] = {}
    for place, letter in enumerate(given):
        table.setdefault(ord(letter), other[place] if place < len(other) else None)
    return text.translate(table)


def split_part(text: str, between: str, number: int) -> str | None:
    """One of the parts that a text separates, from 1 on or from the end; none is an empty text."""
    if number == 0:
        return None
    parts = text.split(between) if between else [text]
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if 0 <= place < len(parts) else ""


# -- patterns ------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _pattern(pattern: str) -> object:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def matches(text: str, pattern: str) -> bool | None:
    """RLIKE; NULL of a pattern that is none."""
    try:
        return _pattern(pattern).search(text) is not None  # type: ignore[attr-defined]
    except re2.error:
        return None


def regexp_extract(text: str, pattern: str, group: int) -> str | None:
    """What a group of the first match holds, empty if nothing; 0 is the whole match."""
    try:
        compiled = _pattern(pattern)
    except re2.error:
        return None
    if not 0 <= group <= compiled.groups:  # type: ignore[attr-defined]
        return None
    found = compiled.search(text)  # type: ignore[attr-defined]
    return (found.group(group) or "") if found is not None else ""


def regexp_replace(text: str, pattern: str, other: str) -> str | None:
    """All matches replaced; $1 stands for what a group holds."""
    try:
        own = re.sub(r"\$(\d)", r"\\\1", other.replace("\\", "\\\\"))
        return str(_pattern(pattern).sub(own, text))  # type: ignore[attr-defined]
    except re2.error:
        return None


@lru_cache(maxsize=4096)
def _like_pattern(pattern: str) -> re.Pattern[str] | None:
    parts, plain = [], False
    for letter in pattern:
        if plain or letter not in "%_\\":
            parts.append(re.escape(letter))
            plain = False
        elif letter == "\\":
            plain = True
        else:
            parts.append(".*" if letter == "%" else ".")
    return None if plain else re.compile("".join(parts), re.DOTALL)


def like(text: str, pattern: str) -> bool | None:
    """Whether the whole text matches; NULL of a pattern that ends in a backslash."""
    compiled = _like_pattern(pattern)
    return None if compiled is None else compiled.fullmatch(text) is not None


def like_folded(text: str, pattern: str) -> bool | None:
    return like(fold(text), fold(pattern))


# -- addresses -----------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text.strip(), strict=False)
    except ValueError:
        return None


def cidr_contains(network: str, address: str) -> bool | None:
    """Whether a network has an address of its own version; NULL if one of both is none."""
    net = _network(network)
    try:
        own = ip_address(address.strip())
    except ValueError:
        return None
    mapped = getattr(own, "ipv4_mapped", None)
    if mapped is not None and net is not None and net.version == 4:
        own = mapped
    return None if net is None else own in net

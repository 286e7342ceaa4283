"""Compiled loops that read JSON objects from bytes: one pass, no Python object per value.

`read_objects` writes one entry per member of an object:

    {"price": 3, "color": "red"}       name 0, BIGINT, 3       name 1, TEXT, where `red` begins and ends

A text with escapes is decoded in place: it never becomes longer. What needs a library becomes a LONG number
(too many digits to be exact here), or an object that is not read at all (status UNUSUAL): malformed, a name
twice, invalid UTF-8, half of a surrogate pair, an integer beyond 64 bits, nested deeper than 63. The caller
reads those again, slowly, and finds the reason.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocsin.compiled import kernel

__all__ = [
    "BIGINT", "BLANK", "DOUBLE", "FALSE", "LONG", "NESTED", "NULL", "READ", "TEXT", "TRUE", "UNUSUAL",
    "EntryArrays", "NameTable", "read_objects",
]  # fmt: skip

NULL, BIGINT, DOUBLE, TEXT, FALSE, TRUE, LONG, NESTED = range(8)  # kinds of entries
READ, UNUSUAL, BLANK = range(3)  # what became of an object
_DEEPEST = 63  # brackets inside each other
_MOST_EXACT = np.uint64(1 << 53)  # integers up to here are doubles
_POWERS = np.array([10.0**n for n in range(23)])  # these are exact
_HEX = np.full(256, -1, np.int64)
_HEX[48:58], _HEX[65:71], _HEX[97:103] = range(10), range(10, 16), range(10, 16)
_QUOTE, _BACKSLASH, _CONTROL, _HIGH = 1, 2, 4, 8
_CLASS = np.zeros(256, np.uint8)  # what ends a text or needs care in it; 0: nothing
_CLASS[34], _CLASS[92], _CLASS[:32], _CLASS[128:] = _QUOTE, _BACKSLASH, _CONTROL, _HIGH
_ESCAPED = np.zeros(256, np.uint8)  # what a backslash and this character stand for; 0: nothing
for _character, _meaning in zip(b'"\\/bfnrt', b'"\\/\b\f\n\r\t', strict=True):
    _ESCAPED[_character] = _meaning


class NameTable(NamedTuple):
    """Names in order of arrival: bytes begin[n]..end[n]-1 of the data. All that may come have space."""

    table: Any  # open hash table of numbers, from 1
    begin: Any
    end: Any
    seen: Any  # the last object that has the name
    next: Any  # the name that came after it last, -1: none; that at 0 came first, name n is at n + 1
    count: Any  # of one element


class EntryArrays(NamedTuple):
    """Entries by object; those of object k are start[k] to start[k + 1]."""

    status: Any
    start: Any
    name: Any
    kind: Any
    value: Any  # an integer, the bits of a double, or where a text or a long number begins
    end: Any


@kernel(allocates=False)
def _after_space(data, i, end):
    while i < end and (data[i] == 32 or data[i] == 10 or data[i] == 13 or data[i] == 9):
        i += 1
    return i


@kernel(allocates=False)
def _is_utf8(data, i, end):
    """Whether bytes i..end-1 are UTF-8."""
    while i < end:
        c = data[i]
        i += 1
        if c < 0x80:
            continue
        least, greatest, more = 0x80, 0xBF, 1
        if 0xC2 <= c <= 0xDF:
            more = 1
        elif 0xE0 <= c <= 0xEF:
            more = 2
            if c == 0xE0:
                least = 0xA0
            elif c == 0xED:
                greatest = 0x9F
        elif 0xF0 <= c <= 0xF4:
            more = 3
            if c == 0xF0:
                least = 0x90
            elif c == 0xF4:
                greatest = 0x8F
        else:
            return False
        if i + more > end or not least <= data[i] <= greatest:
            return False
        for j in range(i + 1, i + more):
            if not 0x80 <= data[j] <= 0xBF:
                return False
        i += more
    return True


@kernel(allocates=False)
def _hex4(data, i):
    """The number of four hexadecimal digits, or -1."""
    value = 0
    for j in range(i, i + 4):
        digit = _HEX[data[j]]
        if digit < 0:
            return -1
        value = value << 4 | digit
    return value


@kernel(allocates=False)
def _unescape(data, i, end):
    """Decodes the text i..end-1 in place; returns its new end, or -1 if an escape is bad."""
    out = i
    while i < end:
        c = data[i]
        if c != 92:
            data[out] = c
            out, i = out + 1, i + 1
            continue
        if i + 1 >= end:
            return -1
        if data[i + 1] != 117:
            if _ESCAPED[data[i + 1]] == 0:
                return -1
            data[out] = _ESCAPED[data[i + 1]]
            out, i = out + 1, i + 2
            continue
        code = _hex4(data, i + 2) if i + 6 <= end else -1
        i += 6
        if 0xD800 <= code <= 0xDBFF and i + 6 <= end and data[i] == 92 and data[i + 1] == 117:
            low = _hex4(data, i + 2)
            if not 0xDC00 <= low <= 0xDFFF:
                return -1
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            i += 6
        if code < 0 or 0xD800 <= code <= 0xDFFF:
            return -1
        if code < 0x80:
            data[out] = code
            out += 1
        elif code < 0x800:
            data[out], data[out + 1] = 0xC0 | code >> 6, 0x80 | code & 63
            out += 2
        elif code < 0x10000:
            data[out], data[out + 1] = 0xE0 | code >> 12, 0x80 | code >> 6 & 63
            data[out + 2] = 0x80 | code & 63
            out += 3
        else:
            data[out], data[out + 1] = 0xF0 | code >> 18, 0x80 | code >> 12 & 63
            data[out + 2], data[out + 3] = 0x80 | code >> 6 & 63, 0x80 | code & 63
            out += 4
    return out


@kernel(allocates=False)
def _text(data, i, limit):
    """The text after the quote at i - 1: where it ends, decoded, and where the rest begins; or -1, -1."""
    begin, seen = i, 0
    while True:
        while _CLASS[data[i]] == 0:
            i += 1
        c = _CLASS[data[i]]
        if c == _QUOTE or c == _CONTROL or i >= limit:
            break
        seen |= c
        i += 1 if c == _HIGH else 2  # a backslash and the next character
    if i >= limit or c == _CONTROL or (seen & _HIGH and not _is_utf8(data, begin, i)):
        return -1, -1
    return (_unescape(data, begin, i) if seen & _BACKSLASH else i), i + 1


@kernel(allocates=False)
def _number(data, i, limit):
    """The number at i: where the rest begins (-1: it is none), its kind, and its value or bits."""
    negative = data[i] == 45
    i += negative
    whole, digits, scale, exponent, kind = np.uint64(0), 0, 0, 0, BIGINT
    first = i
    while i < limit and 48 <= data[i] <= 57:
        digits += digits > 0 or data[i] != 48
        if digits <= 19:
            whole = whole * np.uint64(10) + np.uint64(data[i] - 48)
        i += 1
    if i == first or (data[first] == 48 and i > first + 1):
        return -1, kind, np.int64(0)
    if i < limit and data[i] == 46:
        kind, i = DOUBLE, i + 1
        first = i
        while i < limit and 48 <= data[i] <= 57:
            digits += digits > 0 or data[i] != 48
            if digits <= 19:
                whole = whole * np.uint64(10) + np.uint64(data[i] - 48)
            i += 1
        scale = first - i
        if scale == 0:
            return -1, kind, np.int64(0)
    if i < limit and (data[i] == 101 or data[i] == 69):
        kind, i = DOUBLE, i + 1
        minus = i < limit and data[i] == 45
        i += i < limit and (data[i] == 45 or data[i] == 43)
        first = i
        while i < limit and 48 <= data[i] <= 57:
            exponent = min(exponent * 10 + np.int64(data[i]) - 48, 100_000)
            i += 1
        if i == first:
            return -1, kind, np.int64(0)
        scale += -exponent if minus else exponent
    if kind == BIGINT:
        if digits > 19 or whole > np.uint64(2**63 - 1) + np.uint64(negative):
            return -1, kind, np.int64(0)
        return i, kind, -np.int64(whole) if negative else np.int64(whole)
    if digits > 19 or whole > _MOST_EXACT or not -22 <= scale <= 22:
        return i, LONG, np.int64(0)
    value = np.float64(whole)
    value = value / _POWERS[-scale] if scale < 0 else value * _POWERS[scale]
    return i, kind, np.float64(-value + 0.0 if negative else value).view(np.int64)


@kernel(allocates=False)
def _word(data, i, limit):
    """null, true or false at i: where the rest begins (-1: it is none), and its kind."""
    if i + 4 <= limit and data[i] == 110 and data[i + 1] == 117 and data[i + 2] == 108 and data[i + 3] == 108:
        return i + 4, NULL
    if i + 4 <= limit and data[i] == 116 and data[i + 1] == 114 and data[i + 2] == 117 and data[i + 3] == 101:
        return i + 4, TRUE
    if i + 5 <= limit and data[i] == 102 and data[i + 1] == 97 and data[i + 2] == 108 and data[i + 3] == 115:
        return (i + 5 if data[i + 4] == 101 else -1), FALSE
    return -1, NULL


@kernel(allocates=False)
def _after_nested(data, i, limit):
    """Behind the object or array at i, which is checked but not read; -1 if it is malformed or too deep."""
    objects, depth = np.uint64(0), 0  # one bit for each bracket around: is it that of an object?
    value, empty = True, True  # what may come: a value or its name, else a comma; the end of an empty one
    while True:
        i = _after_space(data, i, limit)
        if i >= limit:
            return -1
        c, inside = data[i], (objects & np.uint64(1)) == 1 and depth > 0
        if depth > 0 and (c == 125) == inside and (c == 125 or c == 93) and (empty or not value):
            objects, depth, i = objects >> np.uint64(1), depth - 1, i + 1
            value, empty = False, False
            if depth == 0:
                return i
            continue
        if not value:
            if c != 44:
                return -1
            value, i = True, i + 1
            continue
        if inside:
            end, i = _text(data, i + 1, limit) if c == 34 else (-1, -1)
            if end < 0:
                return -1
            i = _after_space(data, i, limit)
            if i >= limit or data[i] != 58:
                return -1
            i = _after_space(data, i + 1, limit)
            if i >= limit:
                return -1
            c = data[i]
        if c == 123 or c == 91:
            if depth == _DEEPEST:
                return -1
            objects, depth, i = objects << np.uint64(1) | np.uint64(c == 123), depth + 1, i + 1
            value, empty = True, True
            continue
        if c == 34:
            end, i = _text(data, i + 1, limit)
            i = -1 if end < 0 else i
        elif c == 45 or 48 <= c <= 57:
            i, _, _ = _number(data, i, limit)
        else:
            i, _ = _word(data, i, limit)
        if i < 0:
            return -1
        value, empty = False, False


@kernel(allocates=False)
def _find_name(data, a, z, names):
    """The number of the name a..z-1; a new one gets the next."""
    h = np.uint64(0xCBF29CE484222325)
    for j in range(a, z):
        h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
    mask = np.uint64(len(names.table) - 1)
    at = (h ^ (h >> np.uint64(29))) & mask
    while names.table[at] > 0:
        n = names.table[at] - 1
        if names.end[n] - names.begin[n] == z - a:
            same = True
            for j in range(z - a):
                same &= data[names.begin[n] + j] == data[a + j]
            if same:
                return n
        at = (at + np.uint64(1)) & mask
    n = names.count[0]
    names.table[at], names.begin[n], names.end[n], names.seen[n], names.next[n + 1] = n + 1, a, z, -1, -1
    names.count[0] = n + 1
    return n


@kernel(allocates=False)
def _expected_name(data, i, limit, n, names):
    """Behind the name that is expected, if it is the one at i; else -1."""
    if n < 0:
        return -1
    a, size = names.begin[n], names.end[n] - names.begin[n]
    if i + size >= limit or data[i + size] != 34:
        return -1
    for j in range(size):
        if data[a + j] != data[i + j]:
            return -1
    return i + size + 1


@kernel(allocates=False)
def _read_object(data, i, limit, k, names, out):
    """The members of object k at i..limit-1, from entry out.start[k] on; where they end, -1 if unusual."""
    n, before = out.start[k], 0
    i = _after_space(data, i, limit)
    if i >= limit or data[i] != 123:
        return -1
    i = _after_space(data, i + 1, limit)
    if i < limit and data[i] == 125:
        return n if _after_space(data, i + 1, limit) == limit else -1
    while i < limit and data[i] == 34:
        name = names.next[before]
        rest = _expected_name(data, i + 1, limit, name, names)
        if rest < 0:
            z, rest = _text(data, i + 1, limit)
            if z < 0:
                return -1
            name = _find_name(data, i + 1, z, names)
            names.next[before] = name if z + 1 == rest else -1  # one with escapes might contain a quote
        if names.seen[name] == k:
            return -1
        names.seen[name], before = k, name + 1
        i = _after_space(data, rest, limit)
        if i >= limit or data[i] != 58:
            return -1
        i = _after_space(data, i + 1, limit)
        if i >= limit:
            return -1
        c = data[i]
        out.name[n] = name
        if c == 34:
            out.kind[n], out.value[n] = TEXT, i + 1
            out.end[n], i = _text(data, i + 1, limit)
            if out.end[n] < 0:
                return -1
        elif c == 45 or 48 <= c <= 57:
            begin = i
            i, out.kind[n], out.value[n] = _number(data, i, limit)
            if out.kind[n] == LONG:
                out.value[n], out.end[n] = begin, i
        elif c == 123 or c == 91:
            begin, out.kind[n] = i, NESTED
            i = _after_nested(data, i, limit)
            out.value[n], out.end[n] = begin, i
        else:
            i, out.kind[n] = _word(data, i, limit)
        if i < 0:
            return -1
        n += 1
        i = _after_space(data, i, limit)
        if i < limit and data[i] == 125:
            return n if _after_space(data, i + 1, limit) == limit else -1
        if i >= limit or data[i] != 44:
            return -1
        i = _after_space(data, i + 1, limit)
    return -1


@kernel(allocates=False)
def read_objects(data, begin, end, names, out):
    """Reads the objects at begin[k]..end[k]-1 of the data into the entries, and what became of each.

    Behind the last object there are two zeros, which end any text.
    """
    for k in range(len(begin)):
        n = -1
        if _after_space(data, begin[k], end[k]) == end[k]:
            out.status[k] = BLANK
        else:
            n = _read_object(data, begin[k], end[k], k, names, out)
            out.status[k] = READ if n >= 0 else UNUSUAL
        out.start[k + 1] = n if n >= 0 else out.start[k]

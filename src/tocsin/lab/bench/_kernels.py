"""Brute force over drawn predicates: every event against every predicate of every subscription."""

from __future__ import annotations

import numpy as np

from tocsin.compiled import kernel

__all__ = ["brute_force"]

# The numbers of operators are those of `brute_force.OPERATORS`.


@kernel
def brute_force(predicates, events, texts):
    """Matching (subscription, event) as subscription << 32 | event."""
    out = np.empty(1024, np.int64)
    count = 0
    kind = np.zeros(events.attributes, np.int8)  # 0: absent, 1: a number, 2: a text
    value = np.zeros(events.attributes)
    for e in range(len(events.start) - 1):
        for i in range(events.start[e], events.start[e + 1]):
            kind[events.attribute[i]] = 2 if events.is_text[i] else 1
            value[events.attribute[i]] = events.value[i]
        for s in range(len(predicates.start) - 1):
            good = True
            for p in range(predicates.start[s], predicates.start[s + 1]):
                a = predicates.attribute[p]
                if not _holds(predicates, p, kind[a], value[a], texts):
                    good = False
                    break
            if good:
                if count == len(out):
                    grown = np.empty(2 * count, np.int64)
                    grown[:count] = out
                    out = grown
                out[count] = (s << 32) | e
                count += 1
        for i in range(events.start[e], events.start[e + 1]):
            kind[events.attribute[i]] = 0
    return out[:count]


@kernel
def _holds(predicates, p, kind, value, texts):
    op = predicates.op[p]
    if op == 13:  # is_null
        return kind == 0
    if kind == 0:
        return False
    if op == 14:  # is_not_null
        return True
    if kind != (2 if predicates.is_text[p] else 1):
        return False
    if op < 8:
        low = _compared(value, predicates.low[p])
        if op == 0:
            return low == 0
        if op == 1:
            return low != 0
        if op == 2:
            return low < 0
        if op == 3:
            return low <= 0
        if op == 4:
            return low > 0
        if op == 5:
            return low >= 0
        inside = low >= 0 and _compared(value, predicates.high[p]) <= 0
        return inside == (op == 6)  # between, not_between
    if op < 10:  # in, not_in; a NULL among the values is -1
        found = False
        for i in range(predicates.first[p], predicates.last[p]):
            if predicates.member[i] == value:
                found = True
            elif op == 9 and predicates.member[i] < 0:
                return False
        return found == (op == 8)
    return _occurs(texts, int(value), int(predicates.low[p]), op)


@kernel
def _compared(left, right):
    """-1, 0 or 1; NaN is greater than all numbers."""
    if np.isnan(left) or np.isnan(right):
        return int(np.isnan(left)) - int(np.isnan(right))
    return int(left > right) - int(left < right)


@kernel
def _occurs(texts, text, part, op):
    """Does a text begin with (10), end with (11) or contain (12) another?"""
    data, start = texts
    length, least = start[text + 1] - start[text], start[part + 1] - start[part]
    if least > length:
        return False
    first = length - least if op == 11 else 0
    last = 0 if op == 10 else length - least
    for shift in range(first, last + 1):
        same = True
        for i in range(least):
            if data[start[text] + shift + i] != data[start[part] + i]:
                same = False
                break
        if same:
            return True
    return False

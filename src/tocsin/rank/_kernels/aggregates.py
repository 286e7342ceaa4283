"""Counts and exact sums by subscription, changed row by row; answers of combined queries, merged.

A subscription's state is one row of `cells`; each aggregated column has some of them:

    COUNT | NaNs  +infs  -infs | limb 0  limb 1  ..  limb n-1       (BIGINT: without NaNs and infinities)

A sum is the sum of its limbs, limb j in units of 2^(32 (BASE + j - 34)). What a row adds to a limb is below
2^32, so a limb takes 2^30 rows before it overflows. Answers are computed after carrying: then all limbs but
the last are digits from 0 to 2^32 - 1, and the last one, which no row adds to, holds the sign.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel

__all__ = [
    *("AVG", "BASE", "BIGINT", "COLUMN", "COUNT", "COUNTED", "COUNT_OF", "DOUBLE", "EXCHANGES", "FIRST"),
    *("FUNCTION", "GAINS"),
    *("KINDS", "KIND_BITS", "LIMBS", "LOSES", "ONE", "OVERFLOW_ITEM", "OVERFLOW_LIMBS", "OVERFLOW_SIZE"),
    *("OVERFLOW_SLOT", "RANK_BITS", "REFRESH", "SUM", "TYPE"),
    *("AggregateTotals", "AnswerBuffer", "CellLayout", "ColumnValues"),
    *("add_prefix_sums", "add_row", "compute_answers", "emit", "exceeds", "fill_in", "limb_range", "weigh"),
]

TYPE, COUNT, FIRST, LIMBS, BASE = range(5)  # of a row of `columns`: COUNT and FIRST limb are cells
COUNTED, BIGINT, DOUBLE = range(3)  # types of columns: only counted, or summed
FUNCTION, COLUMN, FACTOR = range(3)  # of a row of `items`; FACTOR: of the units of an exact AVG, or 0
COUNT_OF, SUM, AVG = range(3)  # functions of items
AFTER, PLACE, SIGN = range(3)  # rows of `stops`
ONE = 34  # the limb whose unit is 1; the smallest double is 2^14 of limb 0
LOSES, GAINS, EXCHANGES, REFRESH = range(4)  # kinds of changes to a state; REFRESH only computes its answer
KINDS = REFRESH
KIND_BITS, RANK_BITS = 2, 32
OVERFLOW_SLOT, OVERFLOW_ITEM, OVERFLOW_LIMBS, OVERFLOW_SIZE = 0, 1, 2, 5  # of `AnswerBuffer.overflow`

_DIGIT = np.int64(2**32 - 1)
_EXPONENT, _FRACTION = np.int64(0x7FF), np.int64(2**52 - 1)


class CellLayout(NamedTuple):
    """Which cells each column has; by item of the query: its function, number of its column, factor."""

    columns: NDArray[np.int64]
    items: NDArray[np.int64]


class ColumnValues(NamedTuple):
    """Values by column and row, doubles as their bits; a value that is not valid counts nothing."""

    bits: NDArray[np.int64]
    valid: NDArray[np.bool_]


class AggregateTotals(NamedTuple):
    """By subscription: its cells, its answers as last emitted (doubles as bits), its slot."""

    cells: NDArray[np.int64]
    answers: NDArray[np.int64]
    slot: NDArray[np.int64]


class AnswerBuffer(NamedTuple):
    """Output: for each changed answer the one before, then the one after; and a sum that exceeds BIGINT."""

    seq: NDArray[np.int64]
    slot: NDArray[np.int64]
    values: NDArray[np.int64]  # by item
    valid: NDArray[np.bool_]
    overflow: NDArray[np.int64]  # slot (-1: none), item and three limbs


# -- rows to cells -----------------------------------------------------------------------------------


@kernel(allocates=False)
def _parts(bits):
    """A finite double as mantissa and the position of its last bit, counted from that of limb 0."""
    exponent, fraction = (bits >> 52) & _EXPONENT, bits & _FRACTION
    return (fraction, np.int64(14)) if exponent == 0 else (fraction | (_FRACTION + 1), exponent + 13)


@kernel
def limb_range(bits, valid):
    """The lowest and the highest limb that finite doubles need; lowest > highest if they need none."""
    low, high = np.int64(1000), np.int64(-1)
    for i in range(len(bits)):
        mantissa, place = _parts(bits[i])
        if not valid[i] or mantissa == 0 or (bits[i] >> 52) & _EXPONENT == _EXPONENT:
            continue
        top = place + 52
        while (mantissa >> (top - place)) == 0:
            top -= 1
        while mantissa & 1 == 0:
            mantissa >>= 1
            place += 1
        low, high = min(low, place >> 5), max(high, top >> 5)
    return low, high


@kernel(allocates=False)
def add_row(layout, values, row, cells, p, sign):
    """Add a row to cells (sign 1), or subtract it (-1)."""
    columns = layout.columns
    for c in range(len(columns)):
        if not values.valid[c, row]:
            continue
        count, first, bits = columns[c, COUNT], columns[c, FIRST], values.bits[c, row]
        cells[p, count] += sign
        if columns[c, TYPE] == BIGINT:
            cells[p, first] += sign * (bits & _DIGIT)
            cells[p, first + 1] += sign * (bits >> 32)
        elif columns[c, TYPE] == DOUBLE:
            if (bits >> 52) & _EXPONENT == _EXPONENT:
                cells[p, count + (1 if bits & _FRACTION else 2 if bits > 0 else 3)] += sign
                continue
            mantissa, place = _parts(bits)
            sum_sign = sign if bits >= 0 else -sign
            limb, shift = first + (place >> 5) - columns[c, BASE], place & 31
            for _ in range(3):  # digits that are 0 may have no cell
                digit = (mantissa << shift) & _DIGIT
                if digit:
                    cells[p, limb] += sum_sign * digit
                mantissa >>= 32 - shift
                shift = np.int64(0)
                limb += 1


@kernel(allocates=False)
def weigh(layout, old, new, out):
    """By change: what it adds to the cells of states that lose its old row, gain its new row, or do both."""
    for i in range(len(out)):
        add_row(layout, old, i, out[i], LOSES, -1)
        add_row(layout, new, i, out[i], GAINS, 1)
        for cell in range(out.shape[2]):
            out[i, EXCHANGES, cell] = out[i, LOSES, cell] + out[i, GAINS, cell]


@kernel
def add_prefix_sums(layout, values, order, stops, cells):
    """Sum up rows in a given order; at each stop, AFTER so many rows, add the sum so far, with a SIGN, to the
    cells of a PLACE."""
    running = np.zeros((1, cells.shape[1]), np.int64)
    done = 0
    for i in range(stops.shape[1]):
        for j in range(done, stops[AFTER, i]):
            add_row(layout, values, order[j], running, 0, 1)
        done = stops[AFTER, i]
        for cell in range(cells.shape[1]):
            cells[stops[PLACE, i], cell] += stops[SIGN, i] * running[0, cell]


# -- cells to answers --------------------------------------------------------------------------------
# Inlined, since passing arrays to a call costs more than the sum itself.


@kernel(inline=True, allocates=False)
def _carry(cells, p, first, count):
    carried = np.int64(0)
    for j in range(first, first + count - 1):
        digit = cells[p, j] + carried
        cells[p, j] = digit & _DIGIT
        carried = digit >> 32
    cells[p, first + count - 1] += carried


@kernel(inline=True, allocates=False)
def _rounded(cells, p, first, count, exponent, rest):
    """The double nearest to carried limbs, ties to even; `rest`: is there a remainder below the last limb?

    The first digits, with the sign, make an integer of 55 to 63 bits, rounded down. If a remainder is left,
    the integer is made odd: then it is not half way between two doubles, and rounds as the exact sum does.
    """
    j = first + count - 1
    head = cells[p, j]
    while (head == 0 or head == -1) and j > first:  # the sign alone
        j -= 1
        head = (head << 32) + cells[p, j]
    tail, lost = np.int64(0), rest
    if j > first:
        tail = cells[p, j - 1] << 30
    if j - 1 > first:
        tail |= cells[p, j - 2] >> 2
        lost |= (cells[p, j - 2] & 3) != 0
    for k in range(first, j - 2):
        lost |= cells[p, k] != 0
    size = abs(head)
    up = 7 * (
        np.int64(size < 2**25) + np.int64(size < 2**18) + np.int64(size < 2**11) + np.int64(size < 2**4)
    )
    lost |= (tail & ((1 << (32 - up)) - 1)) != 0
    whole = ((head << (30 + up)) + (tail >> (32 - up))) | np.int64(lost)
    scale = int(exponent + 32 * (j - first) - 30 - up)
    half = max(scale, 0) >> 1  # in two steps: interpreted, `ldexp` raises where a product becomes infinite
    return math.ldexp(np.float64(whole), scale - half) * math.ldexp(1.0, half)


@kernel
def _quotient(cells, p, first, count):
    """The double nearest to an integer of three carried limbs divided by an integer below 2^31."""
    digits = np.empty((1, 6), np.int64)
    left = np.int64(0)
    for j in range(5, -1, -1):  # three more digits after the point
        left = (left << 32) + (cells[p, first + j - 3] if j >= 3 else 0)
        digits[0, j] = left // count  # rounds down: only the first may be negative
        left -= digits[0, j] * count
    return _rounded(digits, 0, 0, 6, -96, left != 0)


@kernel(allocates=False)
def _exact_quotient(cells, p, first, count, factor):
    """An integer of three carried limbs, times a factor, divided by a count; halves away from zero."""
    whole, left = np.int64(0), np.int64(0)
    for j in range(2, -1, -1):
        left = (left << 32) + cells[p, first + j]
        digit = left // count  # rounds down: only the first may be negative
        left -= digit * count
        whole = (whole << 32) + digit
    if whole >= 0:
        return whole * factor + (2 * left * factor + count) // (2 * count)
    return whole * factor - (count - 2 * left * factor) // (2 * count)


@kernel(inline=True, allocates=False)
def exceeds(cells, p, first):
    """Does a carried sum of BIGINTs exceed BIGINT?"""
    high = cells[p, first + 2] << 32 | cells[p, first + 1]
    return high != (high << 32) >> 32


@kernel(inline=True)
def compute_answers(columns, items, cells, p, out, doubles):
    """Answers by item to `out`, of which `doubles` is a view; the first item that exceeds BIGINT, or -1."""
    over = np.int64(-1)
    for i in range(len(items)):
        function, c = items[i, FUNCTION], items[i, COLUMN]
        count, first, limbs = columns[c, COUNT], columns[c, FIRST], columns[c, LIMBS]
        many = cells[p, count]
        if function == COUNT_OF or many == 0:
            out[i] = many
            continue
        _carry(cells, p, first, limbs)
        if columns[c, TYPE] == BIGINT:
            whole, beyond = cells[p, first + 1] << 32 | cells[p, first], exceeds(cells, p, first)
            if function == SUM:
                out[i] = whole
                over = i if beyond and over < 0 else over
            elif items[i, FACTOR] > 0:
                out[i] = _exact_quotient(cells, p, first, many, items[i, FACTOR])
            elif beyond or abs(whole) > 2**53:
                doubles[i] = _quotient(cells, p, first, many)
            else:
                doubles[i] = np.float64(whole) / np.float64(many)
            continue
        nans, highs, lows = cells[p, count + 1], cells[p, count + 2], cells[p, count + 3]
        if nans + highs + lows:
            doubles[i] = np.nan if nans or (highs and lows) else np.inf if highs else -np.inf
            continue
        value = _rounded(cells, p, first, limbs, 32 * (columns[c, BASE] - ONE), False)
        doubles[i] = (value / many if function == AVG else value) + 0.0  # never -0.0
    return over


@kernel(allocates=False)
def _note_overflow(overflow, slot, item, cells, p, first):
    """Report a sum that exceeds BIGINT: of the least slot, there of the first item, there the first one."""
    known = overflow[OVERFLOW_SLOT]
    if known < 0 or slot < known or (slot == known and item < overflow[OVERFLOW_ITEM]):
        overflow[OVERFLOW_SLOT], overflow[OVERFLOW_ITEM] = slot, item
        for j in range(3):
            overflow[OVERFLOW_LIMBS + j] = cells[p, first + j]


@kernel
def emit(layout, totals, by_rank, packed, changes, seqs, out):
    """Apply changes, packed (change, rank of the member, kind) and in order; return the number of deltas.

    Those of a member that follow each other and have one seq change its answer once. The kind REFRESH emits
    nothing: it computes the answer from the cells, for later comparison.
    """
    columns, items = layout
    cells, answers, slots = totals
    out_seq, out_slot, out_values, out_valid, overflow = out
    fresh, valid, n = np.empty(len(items), np.int64), np.empty(len(items), np.bool_), 0
    doubles, begins = fresh.view(np.float64), True
    for at in range(len(packed)):
        key = packed[at]
        p = by_rank[(key >> KIND_BITS) & _DIGIT]
        change, kind, slot = key >> (RANK_BITS + KIND_BITS), key & 3, slots[p]
        for i in range(len(items) if begins else 0):
            c = items[i, COLUMN]
            valid[i] = items[i, FUNCTION] == COUNT_OF or cells[p, columns[c, COUNT]] > 0
            if kind != REFRESH and valid[i] and items[i, FUNCTION] == SUM and columns[c, TYPE] == BIGINT:
                if exceeds(cells, p, columns[c, FIRST]):  # before the step already
                    _note_overflow(overflow, slot, i, cells, p, columns[c, FIRST])
        if kind != REFRESH:
            for cell in range(cells.shape[1]):
                cells[p, cell] += changes[change, kind, cell]
        begins = at + 1 == len(packed)
        if not begins:
            after = packed[at + 1]
            begins = ((key ^ after) >> KIND_BITS) & _DIGIT != 0
            begins |= seqs[change] != seqs[after >> (RANK_BITS + KIND_BITS)]
        if not begins:
            continue
        over = compute_answers(columns, items, cells, p, fresh, doubles)
        if over >= 0:
            _note_overflow(overflow, slot, over, cells, p, columns[items[over, COLUMN], FIRST])
        differs = False
        for i in range(len(items)):
            has = items[i, FUNCTION] == COUNT_OF or cells[p, columns[items[i, COLUMN], COUNT]] > 0
            differs |= (fresh[i] != answers[p, i]) | (has != valid[i])
            out_values[i, n], out_valid[i, n] = answers[p, i], valid[i]
            out_values[i, n + 1], out_valid[i, n + 1] = fresh[i], has
            answers[p, i] = fresh[i]
        out_seq[n] = out_seq[n + 1] = seqs[change]
        out_slot[n] = out_slot[n + 1] = slot
        n += 2 * (differs and kind != REFRESH)
    return n


# -- combined queries --------------------------------------------------------------------------------


@kernel(allocates=False)
def fill_in(when, changed, member, current, before, after):
    """Where the row of a component is found before and after each change, both in order.

    `when` are all changes, `changed` those of the component, ascending; `current` is by member where its row
    is found: the number of its last change. A component that does not change keeps its row.
    """
    at = 0
    for i in range(len(when)):
        p = member[i]
        before[i] = current[p]
        if at < len(changed) and changed[at] == when[i]:
            current[p] = at
            at += 1
        after[i] = current[p]

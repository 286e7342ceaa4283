"""Changes of joined tables become messages, one change after the other, and then change the tables.

    describe_x(plans, changes, work, begin) -> the first change not described: the buffers are too short

A change that does not fit leaves tables and buffers as they were, so that the caller can continue with longer
buffers. The rectangles and their corner cases are those of `model/message.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.join._kernels.orders import CAPACITY, beside, delete_row, find_run, insert_row
from tocsin.model.message import MessageKind
from tocsin.reformulate._kernels.selected import find_selected, reach
from tocsin.reformulate._kernels.skylines import skyline

__all__ = [
    *("CHANGE", "KEY", "KIND", "PARTNER", "ROW", "SIDE", "STEP", "Described", "RowChanges", "Work"),
    *("describe_joins", "describe_semijoins", "find_recipients"),
]

CHANGE, STEP, KIND, SIDE, KEY, ROW, PARTNER = range(7)  # columns of `Described.head`
MIN, MAX = np.int64(-(2**63)), np.int64(2**63 - 1)
_ROW, _GONE, _EXPOSE, _DROP, _JOINED, _PARTED = (kind.value for kind in MessageKind)


class RowChanges(NamedTuple):
    """Rows before and after; one without a key or a value is not there."""

    side: NDArray[np.int64]
    row: NDArray[np.int64]  # ids
    had: NDArray[np.bool_]
    old_key: NDArray[np.int64]
    old_value: NDArray[np.int64]
    has: NDArray[np.bool_]
    key: NDArray[np.int64]
    value: NDArray[np.int64]


class Described(NamedTuple):
    head: NDArray[np.int64]  # by message
    end: NDArray[np.int64]  # by message: where its boxes end
    boxes: NDArray[np.int64]  # box, plane, rectangle
    used: NDArray[np.int64]  # messages, boxes


class Work(NamedTuple):
    policy: int  # of skylines; of joins: whether to drop pairs that nobody selects
    sends: int  # by bit: kind + 4 * side of the messages to send
    scratch: Any
    joining: NDArray[np.int64]  # values, rows and marks of the joining rows
    out: Described


@kernel(inline=True, allocates=False)
def _quadrant(value):
    return MIN, value, value, MAX


@kernel(inline=True, allocates=False)
def _minus(value, other):
    """Ranges that hold `value`, not `other`; the two differ."""
    if other > value:
        return MIN, value, value, other - 1
    return other + 1, value, value, MAX


@kernel(allocates=False)
def _lonely(order, key, value):
    """Ranges that hold `value` and none of the order's values of the key; empty if it has that value."""
    run = find_run(order, key)
    if run.length == 0:
        return MIN, value, value, MAX
    has1, q1, has2, q2 = beside(order, run, value)
    if has2 and q2 == value:
        return MAX, MIN, MAX, MIN
    return (q1 + 1 if has1 else MIN), value, value, (q2 - 1 if has2 else MAX)


@kernel(inline=True, allocates=False)
def _without(rectangle, value, other):
    """Of ranges that hold `value`, those that do not hold `other`."""
    if other == value:
        return MAX, MIN, MAX, MIN
    a, b, c, d = _minus(value, other)
    return max(rectangle[0], a), min(rectangle[1], b), max(rectangle[2], c), min(rectangle[3], d)


@kernel(inline=True, allocates=False)
def _is_empty(rectangle):
    return rectangle[0] > rectangle[1] or rectangle[2] > rectangle[3]


@kernel(allocates=False)
def _open_message(out, head, boxes):
    """Begin a message with so many boxes; the first of them, or -1 if the buffers are full."""
    m, b = out.used[0], out.used[1]
    if m == len(out.head) or b + boxes > len(out.boxes):
        return np.int64(-1)
    for i in range(7):
        out.head[m, i] = head[i]
    out.end[m] = b + boxes
    out.used[0], out.used[1] = m + 1, b + boxes
    return b


@kernel(inline=True, allocates=False)
def _set_box(boxes, b, side, own, other):
    for i in range(4):
        boxes[b, side, i] = own[i]
        boxes[b, 1 - side, i] = other[i]


@kernel(allocates=False)
def _gather_run(order, run, joining):
    """Values and rows of a run, by value; how many."""
    n = 0
    for d in range(run.d0, run.d1 + 1):
        b = order.block[d]
        begin = run.i0 if d == run.d0 else np.int64(0)
        end = run.i1 if d == run.d1 else order.size[b]
        for i in range(b * CAPACITY + begin, b * CAPACITY + end):
            joining[0, n], joining[1, n], joining[2, n] = order.value[i], order.row[i], 0
            n += 1
    joining[2, n] = 0
    return n


@kernel(allocates=False)
def _mark_wanted(plan, rectangle, joining, count):
    """Set joining[2] for the rows that a selected subscription has in its range.

    The selected ranges of a group are one range together, since all hold the group's point.
    """
    values = joining[0, :count]
    for i in range(len(plan.group)):
        low, high = reach(plan.groups, plan.group[i], rectangle)
        if low <= high:
            joining[2, np.searchsorted(values, low)] += 1
            joining[2, np.searchsorted(values, high, side="right")] -= 1
    depth = np.int64(0)
    for i in range(count):
        depth += joining[2, i]
        joining[2, i] = depth


# -- semijoins -------------------------------------------------------------------------------------


@kernel
def _emit_to_skyline(plan, work, head, rectangle):
    """A message to those selected who have a joining row; False if the buffers are full."""
    if _is_empty(rectangle):
        return True
    run = find_run(plan.other, head[KEY])
    if run.length == 0:
        return True
    out, scratch = work.out, work.scratch
    n = skyline(work.policy, plan, run, rectangle, scratch)
    if n == 0:
        return True
    b = _open_message(out, head, n)
    if b < 0:
        return False
    side = head[SIDE] if head[KIND] != _DROP else 1 - head[SIDE]
    for i in range(n):
        _set_box(out.boxes, b + i, side, rectangle, (MIN, scratch.x[i], scratch.y[i], MAX))
    return True


@kernel
def _emit_exposed(plan, work, head, rectangle):
    """The joining rows that ranges in the rectangle had no partner for; False if the buffers are full."""
    if _is_empty(rectangle):
        return True
    run = find_run(plan.other, head[KEY])
    if run.length == 0:
        return True
    joining, out, side = work.joining, work.out, head[SIDE]
    count = _gather_run(plan.other, run, joining)
    _mark_wanted(plan, rectangle, joining, count)
    change, step, none = head[CHANGE], head[STEP], np.int64(-1)
    for i in range(count):
        if joining[2, i] > 0:
            b = _open_message(
                out, (change, step, np.int64(_EXPOSE), 1 - side, head[KEY], joining[1, i], none), 1
            )
            if b < 0:
                return False
            _set_box(out.boxes, b, side, rectangle, _quadrant(joining[0, i]))
            step += 1
    return True


@kernel
def _leave(plan, work, changes, i, first):
    """GONE, and DROP where it is wanted; deletes the old row. False if the buffers are full."""
    key, value, row = changes.old_key[i], changes.old_value[i], changes.row[i]
    same = changes.has[i] and changes.key[i] == key
    side, zero, none = changes.side[i], np.int64(0), np.int64(-1)
    rectangle = _quadrant(value)
    if same:
        rectangle = _without(rectangle, value, changes.value[i])
    fits = True
    if (work.sends >> (_GONE + 4 * side)) & 1:
        head = (np.int64(i), zero, np.int64(_GONE), side, key, row, none)
        fits = _emit_to_skyline(plan, work, head, rectangle)
    delete_row(plan.own, key, value, row)
    if fits and (work.sends >> (_DROP + 4 * (1 - side))) & 1:
        rectangle = _lonely(plan.own, key, value)
        if same:
            rectangle = _without(rectangle, value, changes.value[i])
        step = work.out.used[0] - first
        head = (np.int64(i), step, np.int64(_DROP), 1 - side, key, none, none)
        fits = _emit_to_skyline(plan, work, head, rectangle)
    return fits


@kernel
def _enter(plan, work, changes, i, first):
    """ROW and EXPOSE; False if the buffers are full."""
    key, value, row = changes.key[i], changes.value[i], changes.row[i]
    side, none = changes.side[i], np.int64(-1)
    if (work.sends >> (_ROW + 4 * side)) & 1:
        head = (np.int64(i), work.out.used[0] - first, np.int64(_ROW), side, key, row, none)
        if not _emit_to_skyline(plan, work, head, _quadrant(value)):
            return False
    if not (work.sends >> (_EXPOSE + 4 * (1 - side))) & 1:
        return True
    rectangle = _lonely(plan.own, key, value)
    if changes.had[i] and changes.old_key[i] == key:
        rectangle = _without(rectangle, value, changes.old_value[i])
    head = (np.int64(i), work.out.used[0] - first, np.int64(_EXPOSE), side, key, none, none)
    return _emit_exposed(plan, work, head, rectangle)


@kernel
def describe_semijoins(plans, changes, work, begin):
    """GONE, DROP, ROW and EXPOSE of each change."""
    used = work.out.used
    for i in range(begin, len(changes.row)):
        plan = plans[0] if changes.side[i] == 0 else plans[1]
        messages, boxes = used[0], used[1]
        fits = True
        if changes.had[i]:
            fits = _leave(plan, work, changes, i, messages)
        if fits and changes.has[i]:
            fits = _enter(plan, work, changes, i, messages)
        if not fits:
            used[0], used[1] = messages, boxes
            if changes.had[i]:
                insert_row(plan.own, changes.old_key[i], changes.old_value[i], changes.row[i])
            return i
        if changes.has[i]:
            insert_row(plan.own, changes.key[i], changes.value[i], changes.row[i])
    return len(changes.row)


# -- joined rows -----------------------------------------------------------------------------------


@kernel
def _emit_pairs(plan, work, head, value):
    """A message for each joined row of head[ROW], of those that somebody selects if `policy` says so."""
    run = find_run(plan.other, head[KEY])
    if run.length == 0:
        return True
    joining, out, side = work.joining, work.out, head[SIDE]
    count = _gather_run(plan.other, run, joining)
    rectangle = _quadrant(value)
    if work.policy:
        _mark_wanted(plan, rectangle, joining, count)
    step = head[STEP]
    for i in range(count):
        if joining[2, i] > 0 or not work.policy:
            one, two = head[ROW], joining[1, i]
            if side == 1:
                one, two = two, one
            b = _open_message(out, (head[CHANGE], step, head[KIND], side, head[KEY], one, two), 1)
            if b < 0:
                return False
            _set_box(out.boxes, b, side, rectangle, _quadrant(joining[0, i]))
            step += 1
    return True


@kernel
def describe_joins(plans, changes, work, begin):
    """PARTED of the old joined rows and JOINED of the new ones, for each change."""
    used = work.out.used
    for i in range(begin, len(changes.row)):
        side, row, none = changes.side[i], changes.row[i], np.int64(-1)
        plan = plans[0] if side == 0 else plans[1]
        messages, boxes = used[0], used[1]
        fits = True
        if changes.had[i]:
            head = (np.int64(i), np.int64(0), np.int64(_PARTED), side, changes.old_key[i], row, none)
            fits = _emit_pairs(plan, work, head, changes.old_value[i])
        if fits and changes.has[i]:
            head = (np.int64(i), used[0] - messages, np.int64(_JOINED), side, changes.key[i], row, none)
            fits = _emit_pairs(plan, work, head, changes.value[i])
        if not fits:
            used[0], used[1] = messages, boxes
            return i
        if changes.had[i]:
            delete_row(plan.own, changes.old_key[i], changes.old_value[i], row)
        if changes.has[i]:
            insert_row(plan.own, changes.key[i], changes.value[i], row)
    return len(changes.row)


# -- recipients ------------------------------------------------------------------------------------


@kernel
def find_recipients(plan, boxes, of, seen, out):
    """Subscriptions in the boxes, each once per message `of[box]`; how many (more than `out` has: too short).

    Writes messages to out[0] and slots to out[2]. Plane 0 of a box is the own plane of `plan`; `seen` has a
    place by slot, less than any message.
    """
    n, found = 0, out[2]
    for b in range(len(boxes)):
        own = boxes[b, 0, 0], boxes[b, 0, 1], boxes[b, 0, 2], boxes[b, 0, 3]
        other = boxes[b, 1, 0], boxes[b, 1, 1], boxes[b, 1, 2], boxes[b, 1, 3]
        begin = n
        for g in plan.group:
            n = find_selected(plan.groups, g, (own, other), out, n)
        if n > out.shape[1]:
            return n + len(boxes)
        kept = begin
        for i in range(begin, n):
            if seen[found[i]] < of[b]:
                seen[found[i]] = of[b]
                found[kept], out[0, kept] = found[i], of[b]
                kept += 1
        n = kept
    return n

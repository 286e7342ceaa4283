"""Queries within one region of the subscription space: any point in a rectangle, their bounds, their slots.

An event queries some sixty rectangles of one small region, most of them with no points or a few. So the
region is looked up once (`focus`), and queries start from what it found, in `near`:

    points      if they are few, l and r in rows 0 and 1, in up to 64 strips of equal width in l: strip s
                begins at region[STRIPS + s], and a query reads the strips it meets
                (in row 4 their slots, if requested)
    entries     otherwise leaves, or groups if there are too many leaves, that meet the region: their bounds
                in rows 0 to 3, and group * FAN + entry in row 4. Eight neighbours form a chunk, whose common
                bounds, from CHUNKS on, are tested first

Bounds are those at the time of `focus`: after a change of the space it must be called again.
"""

from __future__ import annotations

import numpy as np

from tocsin.rank._kernels.points import plain
from tocsin.rank._kernels.space import (
    BELOW,
    FAN,
    GREATEST,
    L_HIGH,
    L_LOW,
    LEAST,
    LIVING,
    NEAR,
    R_HIGH,
    R_LOW,
    WIDE,
    collect,
    find_in,
    push,
)

__all__ = ["ALL", "EMPTY", "REGION", "any_near", "find_runs", "focus", "snap_near"]

ENTRY = 4  # row of `near`; row 5 is scratch
ENTRIES, POINTS = 0, 1  # of `region`: how many entries; how many points, or -1; the bounds of their l;
LOWEST, HIGHEST, SHIFT, STRIPS = 2, 3, 4, 5  # l is in strip (l - LOWEST) >> SHIFT; where strips begin
_MAX_STRIPS = 64
REGION = STRIPS + _MAX_STRIPS + 2  # how long `region` is
_MAX_LEAVES = 96  # whose points are gathered
_CHUNK, CHUNKS = 8, 1024  # entries per chunk; where bounds of chunks are in `near`, behind all entries
_MIN_SHARED = 4  # rectangles of one region that justify a `focus`
EMPTY, SOME, ALL = 0, 1, 2  # of which points `snap_near` found the bounds


@plain
def _strip(space, l):  # noqa: E741
    return np.int64(np.uint64(l - space.region[LOWEST]) >> np.uint64(space.region[SHIFT]))


@plain
def _gather(space, count, l_low, l_high, r_low, r_high, named):
    """Gather the points in the rectangle, `named` with slots, from leaves at hand; False if too many."""
    found = 0
    for i in range(count):
        entry = space.near[ENTRY, i]
        leaf = ~space.box[entry // FAN, BELOW, entry % FAN]
        for at in range(space.box[entry // FAN, LIVING, entry % FAN]):
            x, y = space.ends[leaf, 0, at], space.ends[leaf, 1, at]
            space.near[2, found], space.near[3, found] = x, y
            if named:
                space.near[5, found] = space.slot[leaf, at]
            found += (l_low <= x) & (x <= l_high) & (r_low <= y) & (y <= r_high)
        if found > NEAR:
            return False
    lowest, highest = GREATEST, LEAST
    for i in range(found):
        lowest, highest = min(lowest, space.near[2, i]), max(highest, space.near[2, i])
    space.region[POINTS], space.region[LOWEST], space.region[HIGHEST], space.region[SHIFT] = (
        found,
        lowest,
        highest,
        0,
    )
    if not found:
        return True
    while _strip(space, highest) >= _MAX_STRIPS or _strip(space, highest) < 0:
        space.region[SHIFT] += 1
    for s in range(_MAX_STRIPS + 2):
        space.region[STRIPS + s] = 0
    for i in range(found):
        space.region[STRIPS + 2 + _strip(space, space.near[2, i])] += 1
    for s in range(_MAX_STRIPS):
        space.region[STRIPS + 2 + s] += space.region[STRIPS + 1 + s]
    for i in range(found):  # where strip s begins is counted up to where it ends
        s = STRIPS + 1 + _strip(space, space.near[2, i])
        at = space.region[s]
        space.near[0, at], space.near[1, at] = space.near[2, i], space.near[3, i]
        if named:
            space.near[ENTRY, at] = space.near[5, i]
        space.region[s] = at + 1
    return True


@plain
def focus(space, l_low, l_high, r_low, r_high, named):
    """Prepare queries within this rectangle; `named`: for `_find_near`, which needs slots."""
    count, groups = push(space, 0, l_low, l_high, r_low, r_high, 0), True
    for i in range(count):
        space.near[ENTRY, i] = space.stack[i]
    while groups:  # level by level, as long as the entries fit
        groups, top = False, 0
        for i in range(count):
            entry = space.near[ENTRY, i]
            below = space.box[entry // FAN, BELOW, entry % FAN]
            if below >= 0:
                top = push(space, below, l_low, l_high, r_low, r_high, top)
                groups = True
            else:
                space.stack[top] = entry
                top += 1
            if top > WIDE:
                break
        if top > WIDE:
            break
        for i in range(top):
            space.near[ENTRY, i] = space.stack[i]
        count = top
    space.region[ENTRIES], space.region[POINTS] = count, -1
    if not groups and count <= _MAX_LEAVES and _gather(space, count, l_low, l_high, r_low, r_high, named):
        return
    for i in range(count):
        entry = space.near[ENTRY, i]
        for row in range(4):
            space.near[row, i] = space.box[entry // FAN, row, entry % FAN]
    for chunk in range((count + _CHUNK - 1) // _CHUNK):
        least_l, most_l, least_r, most_r = GREATEST, LEAST, GREATEST, LEAST
        for i in range(chunk * _CHUNK, min(chunk * _CHUNK + _CHUNK, count)):
            least_l, most_l = min(least_l, space.near[L_LOW, i]), max(most_l, space.near[L_HIGH, i])
            least_r, most_r = min(least_r, space.near[R_LOW, i]), max(most_r, space.near[R_HIGH, i])
        space.near[L_LOW, CHUNKS + chunk], space.near[L_HIGH, CHUNKS + chunk] = least_l, most_l
        space.near[R_LOW, CHUNKS + chunk], space.near[R_HIGH, CHUNKS + chunk] = least_r, most_r


@plain
def _strip_range(space, l_low, l_high):
    """The points at hand in the strips that l_low..l_high meets."""
    if space.region[POINTS] == 0 or l_low > space.region[HIGHEST] or l_high < space.region[LOWEST]:
        return 0, 0
    first = _strip(space, max(l_low, space.region[LOWEST]))
    last = _strip(space, min(l_high, space.region[HIGHEST]))
    return space.region[STRIPS + first], space.region[STRIPS + last + 1]


@plain
def _meets(space, i, l_low, l_high, r_low, r_high):
    """Whether bounds at hand and the rectangle overlap."""
    meets = (space.near[L_LOW, i] <= l_high) & (space.near[L_HIGH, i] >= l_low)
    return meets & (space.near[R_LOW, i] <= r_high) & (space.near[R_HIGH, i] >= r_low)


@plain
def _push_near(space, l_low, l_high, r_low, r_high):
    """Push entries at hand that may have points in the rectangle; the top of the stack."""
    top, count = 0, space.region[ENTRIES]
    for first in range(0, count, _CHUNK):
        if not _meets(space, CHUNKS + first // _CHUNK, l_low, l_high, r_low, r_high):
            continue
        for i in range(first, min(first + _CHUNK, count)):
            space.stack[top] = space.near[ENTRY, i]
            top += _meets(space, i, l_low, l_high, r_low, r_high)
    return top


@plain
def any_near(space, l_low, l_high, r_low, r_high):
    """Whether a point is in a rectangle.

    Bounds are tight: each side of a box has a point. So a box that the rectangle covers in one direction, and
    of which it contains a side in the other, proves that there is one.
    """
    found = False
    if space.region[POINTS] >= 0:
        begin, end = _strip_range(space, l_low, l_high)
        for i in range(begin, end):
            x, y = space.near[0, i], space.near[1, i]
            found |= (l_low <= x) & (x <= l_high) & (r_low <= y) & (y <= r_high)
        return found
    top = _push_near(space, l_low, l_high, r_low, r_high)
    while top > 0:
        top -= 1
        g, c = space.stack[top] // FAN, space.stack[top] % FAN
        below, living = space.box[g, BELOW, c], space.box[g, LIVING, c]
        left, right = space.box[g, L_LOW, c], space.box[g, L_HIGH, c]
        low, high = space.box[g, R_LOW, c], space.box[g, R_HIGH, c]
        if living == 0:  # only the whole plane meets such a box
            continue
        # the box meets the rectangle, so a side that is not beyond it is inside
        if (l_low <= left) & (right <= l_high) & ((r_low <= low) | (high <= r_high)):
            return True
        if (r_low <= low) & (high <= r_high) & ((l_low <= left) | (right <= l_high)):
            return True
        if below >= 0:
            top = push(space, below, l_low, l_high, r_low, r_high, top)
            continue
        leaf = ~below
        for i in range(living):
            x, y = space.ends[leaf, 0, i], space.ends[leaf, 1, i]
            found |= (l_low <= x) & (x <= l_high) & (r_low <= y) & (y <= r_high)
        if found:
            return True
    return False


@plain
def _sides(space, l_low, l_high, r_low, r_high, some):
    """Set `some` to the bounds of points that the entries at hand are known to have in the rectangle.

    A box that is covered in r has points at those of its sides in l that are in the rectangle, and the other
    way round; bounds in l and in r may come from different points."""
    least_l, most_l, least_r, most_r = GREATEST, LEAST, GREATEST, LEAST
    count = space.region[ENTRIES]
    for first in range(0, count, _CHUNK):
        if not _meets(space, CHUNKS + first // _CHUNK, l_low, l_high, r_low, r_high):
            continue
        for i in range(first, min(first + _CHUNK, count)):
            left, right = space.near[L_LOW, i], space.near[L_HIGH, i]
            low, high = space.near[R_LOW, i], space.near[R_HIGH, i]
            a, b = (l_low <= left) & (left <= l_high), (l_low <= right) & (right <= l_high)
            c, d = (r_low <= low) & (low <= r_high), (r_low <= high) & (high <= r_high)
            across, along = c & d, a & b
            least_l = min(least_l, left if a & across else (right if b & across else GREATEST))
            most_l = max(most_l, right if b & across else (left if a & across else LEAST))
            least_r = min(least_r, low if c & along else (high if d & along else GREATEST))
            most_r = max(most_r, high if d & along else (low if c & along else LEAST))
    some[0], some[1], some[2], some[3] = least_l, most_l, least_r, most_r


@plain
def snap_near(space, l_low, l_high, r_low, r_high, bounds, early):
    """The smallest rectangle around the points in a rectangle, to `bounds`: EMPTY, ALL, or if it may end
    `early`, SOME: then `bounds` are those of some of the points, which are not all at one l or r.

    A box that the bounds found so far contain, as far as it is in the rectangle, is skipped.
    """
    bounds[0], bounds[1], bounds[2], bounds[3] = GREATEST, LEAST, GREATEST, LEAST
    if space.region[POINTS] < 0:
        _sides(space, l_low, l_high, r_low, r_high, bounds)
    least_l, most_l, least_r, most_r = bounds[0], bounds[1], bounds[2], bounds[3]
    top = 0
    if space.region[POINTS] >= 0:
        begin, end = _strip_range(space, l_low, l_high)
        for i in range(begin, end):
            x, y = space.near[0, i], space.near[1, i]
            inside = (l_low <= x) & (x <= l_high) & (r_low <= y) & (y <= r_high)
            least_l, most_l = min(least_l, x if inside else GREATEST), max(most_l, x if inside else LEAST)
            least_r, most_r = min(least_r, y if inside else GREATEST), max(most_r, y if inside else LEAST)
    elif not (early and least_l < most_l and least_r < most_r):
        top = _push_near(space, l_low, l_high, r_low, r_high)
    else:
        return SOME
    while top > 0:
        top -= 1
        g, c = space.stack[top] // FAN, space.stack[top] % FAN
        left, right = max(space.box[g, L_LOW, c], l_low), min(space.box[g, L_HIGH, c], l_high)
        low, high = max(space.box[g, R_LOW, c], r_low), min(space.box[g, R_HIGH, c], r_high)
        if (least_l <= left) & (right <= most_l) & (least_r <= low) & (high <= most_r):
            continue
        below = space.box[g, BELOW, c]
        inside = (left == space.box[g, L_LOW, c]) & (right == space.box[g, L_HIGH, c])
        inside &= (low == space.box[g, R_LOW, c]) & (high == space.box[g, R_HIGH, c])
        if inside:
            least_l, most_l = min(least_l, left), max(most_l, right)
            least_r, most_r = min(least_r, low), max(most_r, high)
        elif below >= 0:
            top = push(space, below, l_low, l_high, r_low, r_high, top)
        else:
            leaf = ~below
            for i in range(space.box[g, LIVING, c]):
                x, y = space.ends[leaf, 0, i], space.ends[leaf, 1, i]
                if (l_low <= x) & (x <= l_high) & (r_low <= y) & (y <= r_high):
                    least_l, most_l = min(least_l, x), max(most_l, x)
                    least_r, most_r = min(least_r, y), max(most_r, y)
        if early and top > 0 and least_l < most_l and least_r < most_r:
            bounds[0], bounds[1], bounds[2], bounds[3] = least_l, most_l, least_r, most_r
            return SOME
    bounds[0], bounds[1], bounds[2], bounds[3] = least_l, most_l, least_r, most_r
    return ALL if least_l <= most_l else EMPTY


# -- slots -------------------------------------------------------------------------------------------


@plain
def _find_near(space, l_low, l_high, r_low, r_high, out, at):
    """`find_in`, for a rectangle within the region of the last `focus`, which must be `named`."""
    size = len(out)
    if space.region[POINTS] >= 0:
        begin, end = _strip_range(space, l_low, l_high)
        if at + end - begin > size:
            return -1 - (at + end - begin)
        for i in range(begin, end):
            x, y = space.near[0, i], space.near[1, i]
            out[at] = space.near[ENTRY, i]
            at += (l_low <= x) & (x <= l_high) & (r_low <= y) & (y <= r_high)
        return at
    return collect(
        space, l_low, l_high, r_low, r_high, out, at, _push_near(space, l_low, l_high, r_low, r_high)
    )


@plain
def find_runs(space, rectangles, region, first, out, start):
    """Slots of the points in each rectangle from number `first` on, to `out` from `start[first]` on.

    Consecutive rectangles with the same number in `region` lie near each other. Returns -1, or the rectangle
    for which `out` was too short; the length it needs is then in the next `start`.
    """
    i = first
    while i < len(rectangles):
        end, l_low, l_high, r_low, r_high = i, GREATEST, LEAST, GREATEST, LEAST
        while end < len(rectangles) and region[end] == region[i]:
            l_low, l_high = min(l_low, rectangles[end, 0]), max(l_high, rectangles[end, 1])
            r_low, r_high = min(r_low, rectangles[end, 2]), max(r_high, rectangles[end, 3])
            end += 1
        shared = end - i >= _MIN_SHARED
        if shared:
            focus(space, l_low, l_high, r_low, r_high, True)
        while i < end:
            a, b, c, d = rectangles[i, 0], rectangles[i, 1], rectangles[i, 2], rectangles[i, 3]
            if shared:
                at = _find_near(space, a, b, c, d, out, start[i])
            else:
                at = find_in(space, a, b, c, d, out, start[i])
            start[i + 1] = at if at >= 0 else -1 - at
            if at < 0:
                return i
            i += 1
    return -1

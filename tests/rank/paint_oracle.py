"""Range top-k by brute force: objects in a dict, subscriptions in a list."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st

from tocsin.rank.points import ABSENT, Points
from tocsin.rank.space import SubscriptionSpace

NUMBERS, SIDE = 12, 9
Plane = dict[int, tuple[int, int]]
Range = tuple[int, int]
ALL: list[Range] = [(left, right) for left in range(-1, SIDE + 1) for right in range(left, SIDE + 1)]

y = st.one_of(st.just(ABSENT), *[st.integers(0, 9)] * 4)
change = st.tuples(st.integers(0, NUMBERS - 1), st.integers(0, SIDE - 1), y)
changes = st.lists(change, min_size=1, max_size=14)
planes = st.lists(change, max_size=NUMBERS + 4)
ranges = st.lists(st.sampled_from(ALL), max_size=12)


def unique(number: int, y: int) -> int:
    """The number breaks ties of y."""
    return y if y == ABSENT else y * NUMBERS + number


def plane(drawn: list[tuple[int, int, int]]) -> Plane:
    """Where objects are, by number."""
    return {i: (x, unique(i, y)) for i, x, y in drawn if y != ABSENT}


def load(objects: Plane) -> Points:
    points = Points()
    points.load(list(objects), [x for x, _ in objects.values()], [y for _, y in objects.values()])
    return points


def space(subscriptions: list[Range]) -> SubscriptionSpace:
    made = SubscriptionSpace()
    made.add(range(len(subscriptions)), [s[0] for s in subscriptions], [s[1] for s in subscriptions])
    return made


def moved(objects: Plane, i: int, x: int, y: int) -> Plane:
    """The objects after a change."""
    rest = {j: p for j, p in objects.items() if j != i}
    return rest if y == ABSENT else rest | {i: (x, y)}


def top(objects: Plane, where: Range, k: int) -> list[tuple[int, int]]:
    """The first k of a range: (y, object)."""
    return sorted((y, j) for j, (x, y) in objects.items() if where[0] <= x <= where[1])[:k]


def difference(before: Plane, after: Plane, where: Range, k: int) -> Counter[tuple[int, int]]:
    """What is taken out and in, as signed (y, object)."""
    change = Counter(top(after, where, k))
    change.subtract(top(before, where, k))
    return Counter({row: sign for row, sign in change.items() if sign})


def inside(where: Range, rectangle: tuple[int, int, int, int]) -> bool:
    l_low, l_high, r_low, r_high = rectangle
    return l_low <= where[0] <= l_high and r_low <= where[1] <= r_high

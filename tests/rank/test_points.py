"""Objects that move, against a dict of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.rank._kernels.points import MAX, MIN, rewind
from tocsin.rank.points import ABSENT, Points

NUMBERS = 60
heights = st.one_of(st.just(ABSENT), st.integers(0, 40))
moves = st.lists(st.tuples(st.integers(0, NUMBERS - 1), st.integers(0, 25), heights), max_size=120)


def unique(number: int, y: int) -> int:
    """The number breaks ties of y."""
    return y if y == ABSENT else y * NUMBERS + number


def check_answers(points: Points, there: dict[int, tuple[int, int]], x: int, y: int, k: int) -> None:
    low = sorted(x1 for x1, y1 in there.values() if y1 < y)
    assert points.first_k(x, y, k, left=True) == [x1 for x1 in low[::-1] if x1 <= x][:k]
    assert points.first_k(x, y, k, left=False) == [x1 for x1 in low if x1 > x][:k]
    for a, b in ((x, x + 9), (MIN, x), (x, MAX), (x - 1, x + 1), (x + 3, x), (MIN, MAX)):
        inside = [(y1, i) for i, (x1, y1) in there.items() if a < x1 < b and y1 > y]
        assert points.min_y(a, b, y) == min(inside, default=(0, -1))[1]


@given(moves, st.integers(0, 25), st.integers(0, 40 * NUMBERS), st.integers(1, 7), st.booleans())
def test_answers_as_a_dict_would(drawn, x: int, y: int, k: int, spread: bool) -> None:
    points, there = Points(), {}
    first = {i: (x, unique(i, y)) for i, x, y in drawn[:40]}
    points.load(list(first), [p[0] for p in first.values()], [p[1] for p in first.values()])
    there = {i: p for i, p in first.items() if p[1] != ABSENT}
    for i, to_x, to_y in drawn[40:]:
        to_x = to_x * 3 + i % 3 if spread else to_x
        points.move(i, to_x, unique(i, to_y))
        there.pop(i, None)
        if to_y != ABSENT:
            there[i] = (to_x, unique(i, to_y))
    points._check()
    assert len(points) == len(there)
    check_answers(points, there, x, y, k)


@pytest.mark.parametrize("values", [1, 20, 10**6])
def test_blocks_split_and_are_packed_again(values: int) -> None:
    """Thousands come one by one, some at the same x, and most go again."""
    rng = np.random.default_rng(values)
    points, there = Points(), {}
    for i in range(3000):
        points.move(i, x := int(rng.integers(values)), y := int(rng.integers(2**40)))
        there[i] = (x, y)
    points._check()
    for _ in range(30):
        check_answers(points, there, int(rng.integers(values)), int(rng.integers(2**40)), 5)
    before = np.array([there[i] for i in range(2900)])
    for i in range(2900):
        points.move(i, 0, ABSENT)
    points._check()
    assert len(points) == 100
    for _ in range(10):
        check_answers(points, {i: there[i] for i in range(2900, 3000)}, int(rng.integers(values)), 2**39, 5)
    points.reserve(0, 2900)
    rewind(points.arrays, np.arange(2900), before)
    points._check()
    check_answers(points, there, values // 2, 2**39, 9)


def test_an_x_at_the_end_of_int64_is_rejected() -> None:
    with pytest.raises(ValueError, match="x of object 3 is"):
        Points().move(3, MAX, 1)

"""The augmented tree against a list of points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.rank._kernels.augmented import LEVELS
from tocsin.rank.extremes import AugmentedTree

LEAST, MOST = -(2**63), 2**63 - 1
code = st.one_of(st.integers(-5, 5), st.integers(-60, 60), st.sampled_from([LEAST, MOST]))
some = st.lists(st.tuples(code, code), max_size=40)


def affected(points, low, high, y):
    if any(low <= px <= high and py <= y for px, py in points):
        return None
    begin = max([px + 1 for px, py in points if px < low and py <= y], default=LEAST)
    return begin, min([px - 1 for px, py in points if px > high and py <= y], default=MOST)


def stairs(points, low, high, y):
    inside = [py for px, py in points if low <= px <= high]
    found = [(low, min(inside))] if inside else []
    found += [p for p in set(points) if not low <= p[0] <= high and not undercut(points, p, low, high)]
    return sorted(p for p in found if p[1] > y)


def undercut(points, p, low, high):
    """Is there a point as low between p and low..high, that included, or a lower one of its x?"""
    px, py = p
    begin, end = (px, high) if px < low else (low, px)
    return any(begin <= a <= end and (b < py or (b == py and a != px)) for a, b in points)


def look(tree: AugmentedTree, points, data) -> None:
    tree._check()
    assert tree.points() == sorted(points) and len(tree) == len(points)
    for _ in range(3):
        low, y = data.draw(code), data.draw(code)
        high = min(MOST, low + data.draw(st.integers(0, 9)))
        assert tree.lowest(low, high) == min((b for a, b in points if low <= a <= high), default=None)
        assert tree.affected_range(low, high, y) == affected(points, low, high, y)
        assert tree.staircase(low, high, y) == stairs(points, low, high, y)


@given(some, some, st.sampled_from([1, 1, 7]), st.data())
def test_is_a_list_of_points(first, later, spread, data) -> None:
    first = [(x, y if i % 2 else max(LEAST, y - i)) for i in range(spread) for x, y in first]
    tree, points = AugmentedTree(*np.array(first, np.int64).reshape(-1, 2).T), list(first)
    look(tree, points, data)
    for x, y in later:
        tree.insert(x, y)
    points += later
    look(tree, points, data)
    gone = data.draw(st.permutations(points))[: data.draw(st.integers(0, len(points)))]
    for x, y in gone:
        tree.delete(x, y)
        points.remove((x, y))
    look(tree, points, data)


def test_grows_and_shrinks_to_nothing() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 3000, 6000), rng.integers(0, 40, 6000)
    tree = AugmentedTree()
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        tree.insert(a, b)
    tree._check()
    assert tree.points() == AugmentedTree(x, y).points() and tree.arrays.meta[LEVELS] == 3
    order = rng.permutation(6000)
    for count, i in enumerate(order):
        tree.delete(int(x[i]), int(y[i]))
        if count % 500 == 0:
            tree._check()
            left = order[count + 1 :]
            inside = y[left][(x[left] >= 1000) & (x[left] <= 1040)]
            assert tree.lowest(1000, 1040) == (inside.min() if len(inside) else None)
    tree._check()
    assert len(tree) == 0 and tree.arrays.meta[LEVELS] == 1 and tree.lowest(LEAST, MOST) is None
    tree.insert(1, 2)
    assert tree.affected_range(3, 3, 2) == (2, MOST) and tree.bytes > 0


def test_absent_points_and_invalid_codes() -> None:
    with pytest.raises(KeyError, match=r"no point \(1, 2\)"):
        AugmentedTree([1], [1]).delete(1, 2)
    with pytest.raises(ValueError, match="whole numbers, not float64"):
        AugmentedTree([1.5], [1])

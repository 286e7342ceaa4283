"""Painting, dense and sparse, against brute force."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rank.paint_oracle import (
    ALL,
    Plane,
    Range,
    changes,
    difference,
    inside,
    load,
    moved,
    plane,
    planes,
    ranges,
    space,
    top,
    unique,
)
from tocsin.rank.paint import Painter, Tile, TileKind
from tocsin.rank.points import ABSENT, Points

KS = [1, 2, 4, 15]
SIGN = {TileKind.OLD: -1, TileKind.NEW: 1, TileKind.KEEP: 0, TileKind.GAIN: 1, TileKind.LOSE: -1}


def painter(objects: Plane, subscriptions: list[Range] | None, eps: float = 0.0) -> Painter:
    spaces = None if subscriptions is None else [space(subscriptions)] * len(KS)
    return Painter(load(objects), KS, eps=eps, spaces=spaces)


@given(planes, changes, st.one_of(st.none(), ranges))
def test_enumerated_tiles_are_the_change_of_every_content(drawn, made, some: list[Range] | None) -> None:
    """One call for many changes; no tile says more or less than what changes, of any k."""
    objects = plane(drawn)
    paints = painter(objects, some)
    tiles = list(paints.enumerate(*zip(*((i, x, unique(i, y)) for i, x, y in made), strict=True)))
    paints.points._check()
    for at, (i, x, y) in enumerate(made):
        after = moved(objects, i, x, unique(i, y))
        own = [tile for tile in tiles if tile.update == at]
        for group, k in enumerate(KS):
            mine = [tile for tile in own if tile.group == group]
            for where in ALL if some is None else some:
                net: Counter[tuple[int, int]] = Counter()
                held = [tile for tile in mine if inside(where, tile.rectangle)]
                hits = [tile for tile in held if tile.kind != TileKind.KEEP]
                if len(held) > len(hits):
                    assert objects == after and (objects[i][1], i) in top(after, where, k)
                    assert len(held) == 1
                for tile in hits:
                    assert (
                        tile.x
                        == (objects if tile.kind in (TileKind.OLD, TileKind.LOSE) else after)[tile.object][0]
                    )
                    net[tile.y, tile.object] += SIGN[tile.kind]
                change = difference(objects, after, where, k)
                assert {row: sign for row, sign in net.items() if sign} == change
                if i not in after or i not in objects or after[i][0] == objects[i][0]:
                    assert len(hits) == len(change), "a row is emitted twice"
            if some is not None:
                assert all(any(inside(s, tile.rectangle) for s in some) for tile in mine)
        objects = after


@given(planes, changes, st.one_of(st.none(), ranges), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_described_tiles_reach_all_affected_ranges(drawn, made, some: list[Range] | None, eps: float) -> None:
    """Exact: those whose content changes and no others. With eps: no object below the first (1 + eps) k."""
    objects = plane(drawn)
    paints = painter(objects, some, eps)
    for i, x, y in made:
        after = moved(objects, i, x, unique(i, y))
        if i in objects and i in after and objects[i][0] != x:
            after = moved(objects, i, objects[i][0], unique(i, y))  # y alone: moves of x are two changes
            x = objects[i][0]
        tiles = list(paints.describe([i], [x], [unique(i, y)]))
        for group, k in enumerate(KS):
            mine = [tile for tile in tiles if tile.group == group]
            assert some is None or all(any(inside(s, tile.rectangle) for s in some) for tile in mine)
            for where in ALL if some is None else some:
                hits = [tile for tile in mine if inside(where, tile.rectangle)]
                if not eps:
                    assert bool(hits) == bool(difference(objects, after, where, k))
                    assert len(hits) == len({tile.object for tile in hits}) <= 2
                _within(hits, objects, after, where, (1 + eps) * k)
        objects = after


def _within(hits: list[Tile], objects: Plane, after: Plane, where: Range, limit: float) -> None:
    ranked = [[j for _, j in top(state, where, 99)] for state in (objects, after)]
    for tile in hits:
        assert any(tile.object in rank[: int(limit + 1e-9)] for rank in ranked)


def test_more_tiles_than_the_buffer_holds() -> None:
    """A canvas grows, and the change that did not fit is painted again, once."""
    rng = np.random.default_rng(3)
    x, y = np.arange(600), rng.permutation(600)
    number, new_y = rng.permutation(600), 600 + np.arange(600)
    one, two = Points(), Points()
    for points in (one, two):
        points.load(np.arange(600), x, y)
    small, large = Painter(one, KS), Painter(two, KS)
    large._tiles = np.empty((10**6, 10), np.int64)
    assert np.array_equal(
        small.enumerate(number, x[number], new_y).table, large.enumerate(number, x[number], new_y).table
    )
    assert small.counts == large.counts
    one._check()


def test_calls_are_as_many_as_published() -> None:
    """K12, table III: min_y calls of Paint-Dense; 10,000 uniform objects, y drawn above or below."""
    published = {1: 1.12, 2: 1.73, 5: 3.57, 10: 6.60}
    rng = np.random.default_rng(7)
    events, span = 20_000, 2**50
    x, y, number = rng.permutation(10_000), rng.integers(1, span, 10_000), rng.integers(0, 10_000, events)
    current, new = y.copy(), np.empty(events, np.int64)
    for at, i in enumerate(number.tolist()):
        low, high = (0, current[i]) if rng.random() < 0.5 else (current[i] + 1, span)
        current[i] = new[at] = rng.integers(low, high)
    for k, expected in published.items():
        points = Points()
        points.load(np.arange(10_000), x, y)
        paints = Painter(points, [k])
        paints.describe(number, x[number], new)
        assert paints.counts.min_y / events == pytest.approx(expected, rel=0.05)
        assert paints.counts.first_k == 2 * events


def test_invalid_changes_are_rejected() -> None:
    with pytest.raises(ValueError, match="k of at least 1"):
        Painter(Points(), [0])
    with pytest.raises(ValueError, match="eps is from 0 to 1"):
        Painter(Points(), [1], eps=1.5)
    with pytest.raises(ValueError, match="2 groups, but 1 spaces"):
        Painter(Points(), [1, 2], spaces=[space([])])
    assert not len(Painter(Points(), [1]).describe([4], [1], [ABSENT]))

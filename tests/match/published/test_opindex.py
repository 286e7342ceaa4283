"""OpIndex: pivots, signatures, clauses under several pivots, layers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.match.conjunctions import (
    ABSENT,
    GREATEST,
    LEAST,
    NEGATED,
    OR_NEXT,
    check,
    conjunctions,
    events,
    expected,
    matches,
    random,
    random_events,
)
from tocsin.match.coded import concatenate
from tocsin.match.published.opindex import OpIndex, OpIndexBS, OpIndexConfig

BOTH = pytest.mark.parametrize("make", [OpIndex, OpIndexBS])
A, B, C, D, E = range(5)

# Table 1 of the paper
TABLE = {
    1: [(A, 2, 2), (B, 3, 3, OR_NEXT), (B, 6, 6, OR_NEXT), (B, 9, 9)],
    2: [(A, LEAST, 8), (C, 2, GREATEST)],
    3: [(C, 6, 6), (B, LEAST, 4), (E, 3, 12)],
    4: [(A, 2, 2)],
    5: [(D, 12, GREATEST), (E, LEAST, 9)],
    6: [(B, 3, 3, OR_NEXT), (B, 6, 6), (C, LEAST, 4), (D, 10, GREATEST), (E, LEAST, 7)],
}


@BOTH
def test_the_papers_example(make: type[OpIndex]) -> None:
    index = make()
    index._insert(conjunctions(TABLE))
    batch = events(
        [
            {A: 2, B: 6},
            {B: 6, C: 3, E: 9},
            {A: 8, C: 2},
            {B: 4, C: 6, E: 12},
            {B: 3, C: 4, D: 12, E: 7},
        ],
        5,
    )
    assert matches(index._match(batch)) == [(1, 0), (2, 2), (3, 3), (4, 0), (5, 4), (6, 4)]


@BOTH
def test_pivots_follow_the_event_stream(make: type[OpIndex]) -> None:
    index = make()
    added = conjunctions(
        {1: [(A, 1, 1), (B, 1, 1)], 2: [(A, 2, 2)], 3: [(A, 1, 1), (B, 2, 2)], 4: [(A, 3, 3)]}
    )
    index._insert(added)
    assert set(index.pivots()[B]) == {1, 3}, "of subscriptions fewer name B"
    mostly = events([{B: 1}] * 60 + [{A: 1, B: 1}], 2)
    assert matches(index._match(mostly)) == [(1, 60)]
    assert set(index.pivots()) == {A}, "in the stream A is rarer"
    assert matches(index._match(mostly)) == [(1, 60)]
    index._insert(conjunctions({5: [(B, 1, 1), (A, 1, 1)]}))
    assert 5 in index.pivots()[A], "new conjunctions use the frequencies of the stream at once"


@BOTH
def test_few_events_do_not_move_pivots(make: type[OpIndex]) -> None:
    index = make()
    index._insert(conjunctions({1: [(A, 1, 1), (B, 1, 1)], 2: [(A, 2, 2)]}))
    index._match(events([{B: 1}] * 3, 2))
    assert index.pivots() == {B: [1], A: [2]}


def test_signatures_never_lose_a_match() -> None:
    rng = np.random.default_rng(5)
    for segments in (2, 3, 32, 64):
        index = OpIndex(OpIndexConfig(segments=segments))
        added = random(rng, range(300), dims=90)
        index._insert(added)
        batch = random_events(rng, 20, dims=90)
        assert matches(index._match(batch)) == expected(added, batch)
        check(index, added)


@BOTH
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_the_scan_as_conjunctions_come_and_go(make: type[OpIndex], seed: int) -> None:
    rng = np.random.default_rng(seed)
    index, kept = make(), concatenate([])
    for step in range(8):
        added = random(rng, range(100 * step, 100 * step + int(rng.integers(1, 60))), dims=6)
        index._insert(added)
        kept = concatenate([kept, added])
        removed = rng.choice(kept.slot, len(kept.slot) // 3, replace=False).astype(np.int64)
        batch = random_events(rng, 10, dims=6)
        assert matches(index._match(batch)) == expected(kept, batch)
        index._delete(removed)
        kept = kept.take(np.flatnonzero(~np.isin(kept.slot, removed)))
        assert matches(index._match(batch)) == expected(kept, batch)
        check(index, kept)


@BOTH
def test_a_clause_under_several_pivots_is_reported_once(make: type[OpIndex]) -> None:
    index = make()
    index._insert(conjunctions({7: [(A, 1, 1, OR_NEXT), (B, 1, 1), (C, 1, 9, OR_NEXT), (D, 1, 9)]}))
    assert sorted(index.pivots()) in ([A, B], [C, D])
    batch = events([{A: 1, B: 1, C: 3, D: 3}, {B: 1, C: 3}, {A: 1, D: 9}, {A: 1, B: 1}, {C: 3, D: 3}], 5)
    assert matches(index._match(batch)) == [(7, 0), (7, 1), (7, 2)]


@BOTH
def test_the_clause_with_fewest_tests_gives_the_pivots(make: type[OpIndex]) -> None:
    index = make()
    index._insert(conjunctions({1: [(A, 1, 1, OR_NEXT), (B, 1, 1), (C, 1, 1)], 2: [(C, 1, 1), (C, 2, 2)]}))
    assert index.pivots() == {C: [2, 1]}


@BOTH
def test_an_absent_attribute_is_no_pivot(make: type[OpIndex]) -> None:
    index = make()
    only_absent = [(A, LEAST, GREATEST, ABSENT)]
    either = [(A, LEAST, GREATEST, ABSENT | OR_NEXT), (B, 4, 4)]
    index._insert(conjunctions({1: only_absent, 2: either, 3: [(C, 1, 1), *only_absent]}))
    assert index.pivots() == {-1: [1, 2], C: [3]}
    batch = events([{}, {A: 1}, {A: 1, B: 4}, {C: 1}, {A: 1, C: 1}], 3)
    assert matches(index._match(batch)) == [(1, 0), (1, 3), (2, 0), (2, 2), (2, 3), (3, 3)]


@BOTH
@pytest.mark.parametrize("clauses", [62, 63, 64, 126, 127, 300])
def test_more_clauses_than_a_word_has_bits(make: type[OpIndex], clauses: int) -> None:
    many = [(A, n, n, NEGATED) for n in range(clauses - 1)]
    index = make()
    index._insert(conjunctions({1: [(B, 1, 1, OR_NEXT), (B, 2, 2), *many], 2: many}))
    batch = events([{A: -1, B: 1}, {A: clauses - 2, B: 1}, {A: clauses, B: 2}, {A: -1, B: 3}], 2)
    assert matches(index._match(batch)) == [(1, 0), (1, 2), (2, 0), (2, 2), (2, 3)]
    index._delete(np.array([1]))
    assert matches(index._match(batch)) == [(2, 0), (2, 2), (2, 3)]


def test_single_additions_make_few_layers() -> None:
    index = OpIndex()
    for slot in range(100):
        index._insert(conjunctions({slot: [(A, slot, slot)]}))
        assert matches(index._match(events([{A: slot}], 1))) == [(slot, 0)]
    assert len(index._layers) <= 7

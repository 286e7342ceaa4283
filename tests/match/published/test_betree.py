"""BE-Tree: leaves are divided by attribute and value, and stay within their capacity."""

from __future__ import annotations

import numpy as np
import pytest

from tests.match.conjunctions import (
    ABSENT,
    GREATEST,
    LEAST,
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
from tocsin.match.published.betree import BETree, BETreeConfig

A, B, C = range(3)


def test_a_leaf_splits_when_it_is_full() -> None:
    index = BETree()
    index._insert(conjunctions({n: [(A, n, n)] for n in range(5)}))
    assert index.shape() == {"nodes": 1, "attributes": 0, "fullest": 5}
    index._insert(conjunctions({5: [(A, 5, 5)]}))
    assert index.shape() == {"nodes": 4, "attributes": 1, "fullest": 3}


@pytest.mark.parametrize("most", [1, 5, 20])
def test_no_leaf_is_over_capacity_where_values_differ(most: int) -> None:
    index = BETree(BETreeConfig(most))
    index._insert(conjunctions({n: [(A, n, n), (B, n % 7, n % 7)] for n in range(500)}))
    assert index.shape()["fullest"] <= most
    batch = events([{A: n, B: n % 7} for n in range(500)] + [{A: 3}], 2)
    assert matches(index._match(batch)) == [(n, n) for n in range(500)]


def test_equal_conjunctions_share_a_leaf() -> None:
    index = BETree()
    index._insert(conjunctions({n: [(A, 1, 1)] for n in range(100)}))
    assert index.shape()["fullest"] == 100
    assert index.shape()["nodes"] < 10, "nothing tells them apart: no use in trying again and again"


def test_ends_of_all_codes_are_halved_without_overflow() -> None:
    index = BETree(BETreeConfig(1))
    near = {
        1: [(A, LEAST + 1, LEAST + 1)],
        2: [(A, GREATEST - 1, GREATEST - 1)],
        3: [(A, LEAST + 2, LEAST + 3)],
    }
    index._insert(
        conjunctions({**near, 4: [(A, LEAST, 0)], 5: [(A, -5, GREATEST)], 6: [(A, LEAST, GREATEST)]})
    )
    batch = events([{A: LEAST + 1}, {A: GREATEST - 1}, {A: LEAST + 3}, {A: -5}, {}], 1)
    assert matches(index._match(batch)) == expected(index._given, batch)
    index._insert(conjunctions({7: [(A, GREATEST, GREATEST)], 8: [(A, LEAST, LEAST)]}))
    ends = events([{A: LEAST}, {A: GREATEST}], 1)
    assert matches(index._match(ends)) == [(4, 0), (5, 1), (6, 0), (6, 1), (7, 1), (8, 0)]


def test_operands_beyond_what_was_seen_are_covered() -> None:
    index = BETree(BETreeConfig(1))
    index._insert(conjunctions({n: [(A, n, n)] for n in range(10)}))
    index._insert(conjunctions({n: [(A, n, n)] for n in (-1000, 1000)}))
    assert matches(index._match(events([{A: -1000}, {A: 1000}, {A: 999}], 1))) == [(-1000, 0), (1000, 1)]


def test_what_names_no_attribute_for_sure_stays_at_the_root() -> None:
    index = BETree(BETreeConfig(1))
    free = [(A, 1, 1, OR_NEXT), (B, 1, 1)]
    index._insert(conjunctions({1: free, 2: [(A, LEAST, GREATEST, ABSENT)], 3: [(C, 1, 1)], 4: free}))
    batch = events([{A: 1}, {B: 1, C: 1}, {A: 2}], 3)
    assert matches(index._match(batch)) == [(1, 0), (1, 1), (2, 1), (3, 1), (4, 0), (4, 1)]


@pytest.mark.parametrize("most", [1, 5])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_scan_as_conjunctions_come_and_go(most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    index, kept = BETree(BETreeConfig(most)), concatenate([])
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

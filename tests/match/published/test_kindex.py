"""k-index: sizes, cells, and what happens when ranges would need too many postings."""

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
from tocsin.engine import Engine, Rooms
from tocsin.errors import SubscriptionError
from tocsin.language.algebra import Column, Compare, IsNull
from tocsin.language.rewrite import normalise
from tocsin.match.coded import concatenate
from tocsin.match.published._kernels.kindex import expressible
from tocsin.match.published.kindex import KIndex, KIndexConfig
from tocsin.predicate.compile import flatten

A, B = range(2)


def test_two_tests_of_one_attribute_are_found_by_one() -> None:
    index = KIndex()
    index._insert(conjunctions({9: [(A, 3, GREATEST), (A, LEAST, 5)]}))
    assert matches(index._match(events([{A: n} for n in range(8)], 1))) == [(9, 3), (9, 4), (9, 5)]
    assert index._built()[0].lists.size.tolist() == [1]


def test_alternatives_and_negation_are_cells() -> None:
    index = KIndex()
    index._insert(
        conjunctions(
            {1: [(A, 3, 3, OR_NEXT), (A, 5, 5), (B, 1, 1, NEGATED)], 2: [(A, 2, 6), (A, 4, 4, NEGATED)]}
        )
    )
    batch = events([{A: 3, B: 1}, {A: 5, B: 2}, {A: 4, B: 2}, {A: 5}, {A: 2}], 2)
    assert matches(index._match(batch)) == [(1, 1), (2, 0), (2, 1), (2, 3), (2, 4)]


@pytest.mark.parametrize("postings", [1 << 20, 300, 1])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_scan_however_coarse(postings: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    index, kept = KIndex(KIndexConfig(postings)), concatenate([])
    for step in range(6):
        added = random(rng, range(100 * step, 100 * step + 40), dims=5, one_dimension=True)
        index._insert(added)
        kept = concatenate([kept, added])
        batch = random_events(rng, 12, dims=5)
        assert matches(index._match(batch)) == expected(kept, batch)
        removed = rng.choice(kept.slot, 15, replace=False).astype(np.int64)
        index._delete(removed)
        kept = kept.take(np.flatnonzero(~np.isin(kept.slot, removed)))
        assert matches(index._match(batch)) == expected(kept, batch)
        check(index, kept)
    assert any(built.coarse for built in index._built()) == (postings < 1000)


def test_the_limit_bounds_postings() -> None:
    index = KIndex(KIndexConfig(5_000))
    index._insert(conjunctions({n: [(A, n, n + 100)] for n in range(1000)}))
    assert sum(len(built.lists.posting) for built in index._built()) <= 5_000
    assert matches(index._match(events([{A: 100}], 1))) == [(n, 0) for n in range(101)]


def test_rejects_filters_without_lists() -> None:
    given = conjunctions(
        {
            1: [(A, 1, 1, OR_NEXT), (A, 2, 2), (B, 3, 3, NEGATED)],
            2: [(A, 1, 1, OR_NEXT), (B, 2, 2)],
            3: [(A, LEAST, GREATEST, ABSENT)],
        }
    )
    assert expressible(given.start, given.dim, given.flags).tolist() == [True, False, False]
    filters = flatten(map(normalise, [Compare(Column("a"), "<", 5), IsNull(Column("a"))]))
    assert KIndex().supports(filters).tolist() == [True, False]


def test_an_engine_says_what_the_index_does_not_support() -> None:
    engine = Engine(rooms=Rooms(match=KIndex))
    engine.execute("CREATE STREAM hits")
    with pytest.raises(SubscriptionError, match=r"index 'kindex' does not support .* takes no IS NULL"):
        engine.subscribe("SELECT * FROM hits WHERE a IS NULL")
    assert not engine.subscriptions()

"""Scores of kept rows: what each policy keeps, and what all have in common (found by themselves)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import UsageError
from tocsin.limits.models import Arrivals, KeptRows
from tocsin.limits.scores import JOIN_POLICIES, Heeb, score_of
from tocsin.limits.scores.base import ScoreBase


def arrivals(keys, begin=0.0):
    keys = np.asarray(keys, np.int64)
    return Arrivals(keys, keys.astype(np.float64), begin + np.arange(len(keys), dtype=np.float64))


def rows(keys, at=None, left=None):
    keys = np.asarray(keys, np.int64)
    at = np.arange(len(keys), dtype=np.float64) if at is None else np.asarray(at, np.float64)
    left = np.full(len(keys), np.inf) if left is None else np.asarray(left, np.float64)
    return KeptRows(keys, keys.astype(np.float64), at, left)


def all_scores(cls=ScoreBase):
    found = [] if cls.__name__.startswith("_") or not cls.name else [cls]
    return found + [deep for sub in cls.__subclasses__() for deep in all_scores(sub)]


@pytest.mark.parametrize("kind", all_scores(), ids=lambda kind: kind.name)
@pytest.mark.parametrize("caching", [False, True])
@given(data=st.data())
def test_every_score_is_finite_deterministic_and_drops_what_has_expired(kind, caching, data):
    keys = st.lists(st.integers(0, 40), min_size=1, max_size=60)
    sides = st.integers(0, 0 if caching else 1)
    batches = data.draw(st.lists(st.tuples(sides, keys), min_size=1, max_size=5))
    one, two = kind(caching, 7), kind(caching, 7)
    begin = 0.0
    for side, batch in batches:
        for score in (one, two):
            score.seen(side, arrivals(batch, begin))
        begin += len(batch)
    kept = data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=30))
    ends = st.sampled_from([-1.0, 0.0, 5.0, 50.0, np.inf])
    left = data.draw(st.lists(ends, min_size=len(kept), max_size=len(kept)))
    asked = rows(kept, np.linspace(0.0, begin, len(kept)), left)
    found = one(0, asked, begin, 10)
    assert np.array_equal(found, two(0, asked, begin, 10)) and len(found) == len(kept)
    expired = asked.left <= 0
    assert np.all(np.isneginf(found[expired])) and np.all(np.isfinite(found[~expired]))
    if not one.by_value:
        assert np.array_equal(found, two(0, asked._replace(values=None), begin, 10))
    if one.per_key:
        many = {}
        for key, end, value in zip(kept, asked.left, found, strict=True):
            same = many.setdefault((key, end), value)
            assert same == value or abs(same - value) < 1e-6 * max(1.0, abs(value))
    one.discard(np.array(kept, np.int64))
    one._check()
    assert one.nbytes > 0


def test_a_replay_in_other_batches_scores_alike():
    keys = np.random.default_rng(1).zipf(1.3, 3000).clip(0, 200)
    for name in JOIN_POLICIES:
        whole, parts = score_of(name, seed=3), score_of(name, seed=3)
        whole.seen(1, arrivals(keys))
        for begin in range(0, 3000, 500):
            parts.seen(1, arrivals(keys[begin : begin + 500], begin))
        asked = rows(np.arange(200))
        assert np.allclose(whole(0, asked, 3000.0, 50), parts(0, asked, 3000.0, 50), rtol=1e-12), name


def test_which_row_leaves_first():
    for name, first in {"prob": 2, "lfu": 2, "lru": 0, "fifo": 0, "heeb": 2}.items():
        score = score_of(name)
        score.seen(1, arrivals([0, 0, 1, 1, 1, 2], begin=0.0))
        asked = rows([0, 1, 2], at=[0.0, 1.0, 2.0])
        assert score(0, asked, 6.0, 3).argmin() == first, name


def test_forgotten_codes_begin_at_nothing():
    for name in ("heeb", "prob", "lfu"):
        score = score_of(name)
        score.seen(1, arrivals([3, 3, 3, 4]))
        assert score(0, rows([3, 4]), 4.0, 3).argmax() == 0
        score.discard(np.array([3]))
        assert score(0, rows([3, 4]), 4.0, 3).argmax() == 1
        score._check()


def test_a_faster_partner_makes_rows_worth_more():
    score = Heeb()
    for second in range(200):
        score.seen(0, arrivals([second % 4], second))
        score.seen(1, Arrivals(np.arange(10) % 4, None, np.full(10, float(second))))
    waits_for_fast, waits_for_slow = score(0, rows([1]), 200.0, 50), score(1, rows([1]), 200.0, 50)
    assert waits_for_fast[0] > 5 * waits_for_slow[0]


def test_bad_horizons_are_rejected():
    with pytest.raises(UsageError, match="there is no horizon 'ever'"):
        Heeb(horizon="ever")
    with pytest.raises(UsageError, match="'inf' is for caching"):
        Heeb(horizon="inf")

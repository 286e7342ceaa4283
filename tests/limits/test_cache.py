"""Caches: what all policies have in common (found by themselves); S3-FIFO, ARC, LFD against plain ones."""

from __future__ import annotations

import inspect
import random
from collections import Counter, OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import UsageError
from tocsin.lab.bench.limits.workloads import WORKLOADS, given_heeb, play, play_score
from tocsin.limits import cache
from tocsin.limits.cache import CACHE_POLICIES, Cache, Lfd, cache_policy
from tocsin.limits.flow import caching_streams, lfd_hits, opt_offline
from tocsin.limits.models import Arrivals, Steps
from tocsin.limits.models.tables import known_future
from tocsin.limits.scores import JOIN_POLICIES, score_of


def play_cache(references, slots, policy):
    cache = Cache(slots, policy)
    for step, key in enumerate(references):
        cache.refer(Arrivals(np.array([key]), np.array([float(key)]), np.array([float(step)])))
        assert len(cache) <= slots
    cache._check()
    return cache.hits


def skewed(seed, count, keys):
    draw = random.Random(seed)
    return [int(draw.paretovariate(0.9)) % keys for _ in range(count)]


def test_all_policies_are_found():
    kinds = [
        kind for _, kind in inspect.getmembers(cache, inspect.isclass) if kind.__module__ == cache.__name__
    ]
    assert {kind.__name__ for kind in kinds if hasattr(kind, "victims")} >= {"Arc", "Lfd", "S3Fifo", "Scored"}
    assert set(CACHE_POLICIES) == {*JOIN_POLICIES, "s3-fifo", "arc"} - {"life"}
    assert set(JOIN_POLICIES) == {"heeb", "prob", "life", "rand", "lru", "lfu", "fifo"}


@pytest.mark.parametrize("name", CACHE_POLICIES)
@given(data=st.data())
def test_every_policy_keeps_the_budget_and_decides_alike(name, data):
    batches = data.draw(st.lists(st.lists(st.integers(0, 25), min_size=1, max_size=12), max_size=8))
    budget = data.draw(st.integers(1, 40))
    size = np.array([1 + key % 5 for key in range(30)], np.int64)
    one, two = (Cache(budget, cache_policy(name)) for _ in range(2))
    step = 0
    for batch in batches:
        keys = np.array(batch, np.int64)
        at = step + np.arange(len(keys), dtype=np.float64)
        step += len(keys)
        gone = [cache.refer(Arrivals(keys, None, at), size[keys]).tolist() for cache in (one, two)]
        assert gone[0] == gone[1]
        one._check()
        assert one.size == size[one.keys()].sum() <= budget
        assert not set(gone[0]) & set(one.keys().tolist())
    assert (one.hits, one.misses) == (two.hits, two.misses) and one.hits + one.misses >= step - 12 * len(
        batches
    )
    if len(one):
        some = one.keys()[:1]
        one.drop(some)
        one._check()
        assert int(some[0]) not in one
    assert one.nbytes > 0


def test_the_cache_with_lfd_is_the_most_possible():
    for seed in range(20):
        references, slots = skewed(seed, 40, 9), 1 + seed % 4
        hits = play_cache(references, slots, Lfd(references))
        assert hits == lfd_hits(references, slots) == opt_offline(*caching_streams(references), slots)
        for name in CACHE_POLICIES:
            assert play_cache(references, slots, cache_policy(name)) <= hits


def simple_hits(references, slots, rank):
    """The key with the lowest rank leaves, the newcomer too."""
    cache, count, last, hits = set(), Counter(), {}, 0
    for step, key in enumerate(references):
        hits += key in cache
        cache.add(key)
        count[key] += 1
        last[key] = step
        if len(cache) > slots:
            cache.remove(min(cache, key=lambda k: rank(count[k], last[k])))
    return hits


def arc_hits(references, slots):
    once, often, ghost_once, ghost_often, border, hits = *(OrderedDict() for _ in range(4)), 0, 0

    def replace(key):
        if once and (len(once) > border or (key in ghost_often and len(once) == border)):
            ghost_once[once.popitem(last=False)[0]] = None
        else:
            ghost_often[often.popitem(last=False)[0]] = None

    for key in references:
        if key in once or key in often:
            hits += 1
            once.pop(key, None)
            often.pop(key, None)
            often[key] = None
        elif key in ghost_once:
            border = min(slots, border + max(1, len(ghost_often) // len(ghost_once)))
            replace(key)
            del ghost_once[key]
            often[key] = None
        elif key in ghost_often:
            border = max(0, border - max(1, len(ghost_once) // len(ghost_often)))
            replace(key)
            del ghost_often[key]
            often[key] = None
        else:
            if len(once) + len(ghost_once) == slots:
                if len(once) < slots:
                    ghost_once.popitem(last=False)
                    replace(key)
                else:
                    once.popitem(last=False)
            elif len(once) + len(often) + len(ghost_once) + len(ghost_often) >= slots:
                if len(once) + len(often) + len(ghost_once) + len(ghost_often) == 2 * slots:
                    ghost_often.popitem(last=False)
                replace(key)
            once[key] = None
    return hits


def test_policies_against_plain_versions():
    for seed in range(8):
        references, slots = skewed(seed, 600, 120), (5, 20)[seed % 2]
        assert play_cache(references, slots, cache_policy("lru")) == simple_hits(
            references, slots, lambda n, at: at
        )
        assert play_cache(references, slots, cache_policy("lfu")) == simple_hits(
            references, slots, lambda n, at: (n, at)
        )
        expected = arc_hits(references, slots)
        assert abs(play_cache(references, slots, cache_policy("arc")) - expected) <= 0.03 * expected


def test_what_is_scanned_once_does_not_displace_what_is_used():
    references = [key for n in range(200) for key in (1, 2, 3, 1, 2, 3, 1000 + n, 2000 + n)]
    least = len(references) * 0.7
    for name in ("s3-fifo", "arc", "lfu", "heeb"):
        assert play_cache([key % 3000 for key in references], 5, cache_policy(name)) > least, name


@pytest.mark.parametrize("name", ["lfd", "life", "mru"])
def test_policies_that_are_not_for_caches(name):
    with pytest.raises(UsageError) as error:
        cache_policy(name)
    assert "s3-fifo" in str(error.value)


@pytest.mark.parametrize("name", ["lfd", "s3-fifo", "arc"])
def test_policies_that_are_not_for_joins(name):
    with pytest.raises(UsageError, match="there is no policy") as error:
        score_of(name)
    assert "heeb, prob, life, rand, lru, lfu, fifo" in str(error.value)


def test_heeb_agrees_with_dominance():
    """Where one tuple's matches come no later at any time than another's, it has the higher H."""
    draw = np.random.default_rng(1)
    for _ in range(500):
        gains = draw.random((2, 12)) ** 3
        benefit = np.cumsum(gains, axis=1)
        if np.all(benefit[0] >= benefit[1]):
            q = draw.random()
            weights = q ** np.arange(1, 13)
            assert gains[0] @ weights >= gains[1] @ weights - 1e-12
    assert known_future([1, 4], 0.9, False) > known_future([2, 4], 0.9, False)


@pytest.mark.parametrize("name", ["TOWER", "ROOF", "FLOOR"])
def test_the_kernel_of_the_figures_decides_as_the_product(name):
    work = WORKLOADS[name]
    alpha = work.alpha(10)
    streams = work.draw(400, 5)
    found = play_score(streams, given_heeb(work, alpha), 10)
    assert play(work, 10, "HEEB", 5, steps=400).matches == found
    rows = Steps(np.arange(3), np.array([400.0, 405.0, 390.0]), np.zeros(3), np.full(3, np.inf))
    assert np.all(work.model(0, 399).score(rows, 0.9, False) >= 0.0)

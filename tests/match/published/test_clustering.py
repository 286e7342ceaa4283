"""The two-phase indexes of F01: what the contract tests are too small to reach."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from tocsin.compiled.instructions import prefetch
from tocsin.match._kernels.scan import scan
from tocsin.match.coded import CodedConjunctions, CodedEvents, concatenate
from tocsin.match.published.clustering import (
    Clustering,
    Dynamic,
    DynamicConfig,
    Propagation,
    PropagationPrefetch,
    Static,
    StaticConfig,
)
from tocsin.match.published.counting import Counting, TwoPhase
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.predicate.flat import ABSENT, NEGATED

EVERY = [Counting, Propagation, PropagationPrefetch, Static, Dynamic]


def conjunctions(slots: list[int], tests: list[list[tuple[int, int, int, int]]]) -> CodedConjunctions:
    """From lists of (dimension, low, high, flags)."""
    flat = np.array([test for each in tests for test in each], np.int64).reshape(-1, 4)
    start = np.cumsum([0] + [len(each) for each in tests]).astype(np.int64)
    dim, low, high, flags = (flat[:, k].copy() for k in range(4))
    return CodedConjunctions(
        np.array(slots, np.int32), start, dim.astype(np.int32), low, high, flags.astype(np.uint8)
    )


def equalities(rng: np.random.Generator, first_slot: int, count: int, dims: list[int]) -> CodedConjunctions:
    """Conjunctions of one equality, with a value of 0..19, in each of the dimensions."""
    tests = [
        [(dim, v, v, 0) for dim, v in zip(dims, rng.integers(0, 20, len(dims)), strict=True)]
        for _ in range(count)
    ]
    return conjunctions(list(range(first_slot, first_slot + count)), tests)


def full_events(rng: np.random.Generator, count: int, dims: int, values: int = 20) -> CodedEvents:
    """Events with all dimensions."""
    return CodedEvents(
        np.arange(count + 1, dtype=np.int64) * dims,
        np.tile(np.arange(dims, dtype=np.int32), count),
        rng.integers(0, values, count * dims),
        np.zeros(count * dims, np.bool_),
        dims,
    )


def random_conjunctions(rng: np.random.Generator, slots: list[int], dims: int) -> CodedConjunctions:
    """Of every kind of test, sometimes with a dimension twice."""
    tests = []
    for _ in slots:
        own = []
        for _ in range(rng.integers(1, 6)):
            dim, kind = int(rng.integers(0, dims)), rng.integers(0, 10)
            low, high = (int(x) for x in np.sort(rng.integers(0, 8, 2)))
            own.append(
                {
                    0: (dim, LEAST, high, 0),
                    1: (dim, low, GREATEST, 0),
                    2: (dim, low, high, 0),
                    3: (dim, low, high, NEGATED),
                    4: (dim, LEAST, GREATEST, ABSENT if rng.integers(2) else 0),
                }.get(int(kind), (dim, low, low, 0))
            )
        tests.append(own)
    return conjunctions(slots, tests)


def random_events(rng: np.random.Generator, count: int, dims: int) -> CodedEvents:
    present = rng.random((count, dims)) < 0.7
    dim = np.nonzero(present)[1].astype(np.int32)
    start = np.concatenate([[0], np.cumsum(present.sum(1))]).astype(np.int64)
    return CodedEvents(start, dim, rng.integers(0, 8, len(dim)), np.zeros(len(dim), np.bool_), dims)


def insert(index: TwoPhase, added: CodedConjunctions) -> None:
    index._insert(added)
    index._used.update(added.slot.tolist())
    index._batches = [(np.array(sorted(index._used)), None)]  # type: ignore[list-item] # for _check


def delete(index: TwoPhase, slots: list[int]) -> None:
    index._delete(np.array(slots, np.int64))
    index._used -= set(slots)
    index._batches = [(np.array(sorted(index._used)), None)]  # type: ignore[list-item]


@pytest.mark.parametrize("make", EVERY)
def test_constant_change_wears_nothing_out(make: type[TwoPhase]) -> None:
    rng, dims = np.random.default_rng(1), 6
    index = make()
    if make is Dynamic:
        index = Dynamic(DynamicConfig(0.1, 0.5, 0.2))
    elif make is Static:
        index = Static(StaticConfig(retrieve=0.1, hash=0.1))
    most_tables = 0
    known: dict[int, CodedConjunctions] = {}
    for turn in range(12):
        free = [slot for slot in range(300) if slot not in known]
        slots = rng.permutation(free)[: rng.integers(1, 200)].tolist()
        added = random_conjunctions(rng, slots, dims + turn // 3)  # new dimensions appear
        insert(index, added)
        known |= {slot: added.take(np.array([i])) for i, slot in enumerate(slots)}
        events = random_events(rng, 100, dims + 4)
        expected = np.sort(scan(concatenate(list(known.values())), events))
        assert len(expected) and np.array_equal(np.sort(index._match(events)), expected)
        index._check()
        most_tables = max(most_tables, index.stats().get("tables", 0))
        removed = rng.permutation(list(known))[: rng.integers(0, len(known))].tolist()
        delete(index, removed)
        for slot in removed:
            del known[slot]
        index._check()
    assert most_tables or make not in (Static, Dynamic)
    delete(index, list(known))
    assert len(index._match(random_events(rng, 10, dims))) == 0 == index.stats()["predicates"]


@pytest.mark.parametrize("make", EVERY)
def test_predicates_are_shared_and_counted_once(make: type[TwoPhase]) -> None:
    index = make()
    twice = [(0, 3, 3, 0), (0, 3, 3, 0), (1, 1, 5, 0)]  # x = 3 AND x = 3 AND y BETWEEN 1 AND 5
    impossible = [(0, 1, 0, 0), (1, 1, 5, 0)]
    insert(index, conjunctions([4, 5, 6], [twice, twice, impossible]))
    event = CodedEvents(
        np.array([0, 2]), np.array([0, 1], np.int32), np.array([3, 5]), np.zeros(2, np.bool_), 2
    )
    assert sorted((index._match(event) >> 32).tolist()) == [4, 5]
    assert index.stats()["predicates"] == 3, "an interval is two predicates"
    index._check()


@njit
def _touch(array):
    prefetch(array, 0)


def test_prefetching_changes_no_answer_and_is_compiled() -> None:
    rng = np.random.default_rng(2)
    slots = list(range(3000))
    added = random_conjunctions(rng, slots, 4)
    plain, ahead = Propagation(), PropagationPrefetch()
    for index in (plain, ahead):
        insert(index, added)
    events = random_events(rng, 50, 4)
    assert np.array_equal(plain._match(events), ahead._match(events))
    if hasattr(_touch, "inspect_asm"):  # not under NUMBA_DISABLE_JIT
        _touch(np.zeros(1, np.int32))
        assert "prefetch" in "".join(_touch.inspect_asm().values())


def test_an_event_reads_only_the_clusters_of_its_equalities() -> None:
    rng = np.random.default_rng(3)
    index = Propagation()
    insert(index, equalities(rng, 0, 2000, [0, 1]))
    index._match(full_events(rng, 200, 2))
    assert 80 < index.stats()["checks_per_event"] < 120  # 2000 / 20


def test_static_finds_the_good_pair() -> None:
    rng = np.random.default_rng(4)
    index = Static(StaticConfig(retrieve=1, hash=1))
    insert(index, concatenate([equalities(rng, 0, 4000, [2, 5]), equalities(rng, 4000, 5, [3, 4])]))
    events = full_events(rng, 50, 6)
    index._match(events)
    assert index.schemas == [(2, 5)], "five subscriptions are not worth a table"
    assert index.stats()["checks_per_event"] < 20
    index._check()


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8, 2.0])
def test_static_keeps_within_its_space(share: float) -> None:
    rng = np.random.default_rng(5)
    added = concatenate(
        [
            equalities(rng, 1000 * k, 1000, list(dims))
            for k, dims in enumerate([(0, 1), (1, 2), (2, 3), (0, 3)])
        ]
    )

    def clustered(space: int) -> Static:
        index = Static(StaticConfig(space=space, retrieve=1, hash=1))
        insert(index, added)
        index.cluster()
        index._check()
        return index

    least, most = clustered(0).space(), clustered(2**30).space()
    assert clustered(0).schemas == [] and len(clustered(2**30).schemas) == 4
    limit = int(least + share * (most - least))
    index = clustered(limit)
    assert index.space() <= limit
    assert 0 < len(index.schemas) < 4 or share in (0.0, 2.0)


def test_dynamic_follows_the_subscriptions() -> None:
    rng = np.random.default_rng(6)
    index = Dynamic(DynamicConfig(margin=1, power=10, least=5))
    insert(index, equalities(rng, 0, 4000, [0, 1]))
    assert index.schemas == [(0, 1)]
    events = full_events(rng, 100, 4)
    for first in range(0, 4000, 500):  # subscribers turn to other attributes, little by little
        delete(index, list(range(first, first + 500)))
        insert(index, equalities(rng, 4000 + first, 500, [2, 3]))
        index._match(events)
        index._check()
    assert index.schemas == [(2, 3)]
    assert (index.stats()["tables_created"], index.stats()["tables_deleted"]) == (2, 1)


def test_dynamic_follows_the_events() -> None:
    rng = np.random.default_rng(7)
    added = equalities(rng, 0, 4000, [0, 1, 2])
    index = Dynamic(DynamicConfig(margin=1, power=10, least=5, widest=2))
    insert(index, added)
    calm, skewed = full_events(rng, 2000, 3), full_events(rng, 2000, 3)
    skewed.code[skewed.dim < 2] = 7  # everybody talks of one value of two attributes
    index._match(calm)
    before = index._checked / index._events
    for _ in range(20):
        index._match(skewed)
    index._events = index._checked = 0
    index._match(skewed)
    assert index._checked / index._events < 4 * before, "subscriptions have moved away from the value"
    index._check()


def test_dynamic_thresholds_must_not_fight() -> None:
    with pytest.raises(ValueError, match="deleted at once"):
        DynamicConfig(power=1, least=2)


def test_alternatives_are_refused() -> None:
    from tocsin.language.algebra import Column, Compare, In
    from tocsin.language.rewrite import normalise
    from tocsin.predicate.compile import flatten

    plain, either = Compare(Column("x"), "=", 1), In(Column("x"), (1, 2))
    filters = flatten([normalise(plain), normalise(either)])
    assert [make().supports(filters).tolist() for make in EVERY] == [[True, False]] * len(EVERY)
    assert issubclass(Static, Clustering)

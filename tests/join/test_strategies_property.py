"""Every join strategy against brute force: the same queries, each once, while rows and queries change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.join.cases import Model, as_ranges, many_queries, queries, rows, spread
from tocsin.errors import TocsinError
from tocsin.join.strategies.band import BandHotspot, BandSsi, DOuter, MergeJoin, QOuter
from tocsin.join.strategies.base import JoinKind, JoinStorage, JoinStrategy, Ranges
from tocsin.join.strategies.equality import Naive
from tocsin.lab.discover import implementations

STRATEGIES = implementations(JoinStrategy, "tocsin.join")


def test_there_are_strategies_to_test() -> None:
    names = {(make.kind.value, make.name) for make in STRATEGIES}
    equality = {"naive", "joinfirst-e", "joinfirst-s", "selectfirst", "ssi", "hotspot", "dynamic"}
    band = {"qouter", "douter", "mj", "ssi", "hotspot"}
    assert names >= {("equality", name) for name in equality} | {("band", name) for name in band}


@pytest.mark.parametrize("make", STRATEGIES)
def test_finds_what_brute_force_finds(make: type[JoinStrategy]) -> None:
    some_rows = st.lists(rows if make.kind is JoinKind.EQUALITY else spread, max_size=12)

    @settings(max_examples=max(20, settings().max_examples))
    @given(many_queries(), some_rows, some_rows, st.data())
    def check(drawn, left, right, data) -> None:
        model, storage = Model(make.kind), JoinStorage()
        for side, table in enumerate((left, right)):
            model.tables[side].update(enumerate(table))
            keys, values = np.array(table, np.int64).reshape(-1, 2).T
            storage.load(side, keys, values)
        strategy = make(storage)
        model.queries = {3 * n + 1: query for n, query in enumerate(drawn)}
        half = list(model.queries)[: len(drawn) // 2]
        rest = list(model.queries)[len(drawn) // 2 :]
        for part in (half, rest):  # the second is added to structures that the first has built
            strategy.add(np.array(part, np.int64), as_ranges([model.queries[slot] for slot in part]))
        for _ in range(data.draw(st.integers(1, 5))):
            _change_something(data, model, storage, strategy, some_rows)
            side = data.draw(st.sampled_from([0, 1]))
            key, value = data.draw(rows)
            found = strategy.affected(side, key, value)
            assert sorted(found.tolist()) == model.affected(side, key, value)
            slots, joined = storage.rows(make.kind, side, key, found)
            matches = sorted(zip(slots.tolist(), joined.tolist(), strict=True))
            assert matches == model.results(side, key, value)
            counts = strategy.each(side, np.array([key, key]), np.array([value, value]))
            assert counts.tolist() == [len(found)] * 2
            strategy._check()
            assert len(strategy) == len(model.queries) == strategy.stats()["queries"]

    check()


def _change_something(data, model, storage, strategy, some_rows) -> None:
    what = data.draw(st.sampled_from(["insert", "delete", "query", "leave"]))
    side = data.draw(st.sampled_from([0, 1]))
    table = model.tables[side]
    if what == "insert":
        for key, value in data.draw(some_rows):
            row = max(table, default=-1) + 1
            storage.tables[side].insert(key, value, row)
            table[row] = key, value
    elif what == "delete" and table:
        for row in data.draw(st.sets(st.sampled_from(sorted(table)))):
            assert storage.tables[side].delete(*table.pop(row), row)
    elif what == "query":
        slot = data.draw(st.integers(0, 500).filter(lambda slot: slot not in model.queries))
        model.queries[slot] = data.draw(queries())
        strategy.add(np.array([slot]), as_ranges([model.queries[slot]]))
    elif what == "leave" and model.queries:
        gone = sorted(data.draw(st.sets(st.sampled_from(sorted(model.queries)))))
        for slot in gone:
            del model.queries[slot]
        strategy.remove(np.array(gone, np.int64))


@pytest.mark.parametrize("make", STRATEGIES)
@pytest.mark.parametrize("side", [0, 1])
def test_large_groups_find_the_same(make: type[JoinStrategy], side: int) -> None:
    """Enough queries for packed groups, slabs, blocks and boxes, then many additions and removals."""
    rng = np.random.default_rng(7 + side)
    storage, model = JoinStorage(), Model(make.kind)
    keys = 12 if make.kind is JoinKind.EQUALITY else 5000
    for which in (0, 1):
        count = 400 if make.kind is JoinKind.EQUALITY else 100
        k, v = rng.integers(0, keys, count), rng.integers(0, 1000, count)
        storage.load(which, k, v)
        model.tables[which].update(enumerate(zip(k.tolist(), v.tolist(), strict=True)))
    strategy = make(storage)

    def more(slots) -> None:
        middle = rng.choice([100, 400, 410, 800, 950], len(slots))
        ends = [middle - rng.integers(0, 60, len(slots)), middle + rng.integers(0, 60, len(slots))]
        own = rng.integers(0, 1000, len(slots))
        ends += [own, own + rng.integers(0, 300, len(slots))]
        added = list(zip(*(part.tolist() for part in ends), strict=True))
        model.queries.update(zip(slots.tolist(), added, strict=True))
        strategy.add(slots, as_ranges(added))

    more(np.arange(1500))
    for step in range(6):
        for key, value in zip(rng.integers(0, keys, 4), rng.integers(0, 1300, 4), strict=True):
            found = sorted(strategy.affected(side, int(key), int(value)).tolist())
            assert found == model.affected(side, int(key), int(value))
        gone = rng.choice(sorted(model.queries), [1, 300, 20, 700, 1, 5][step], replace=False)
        strategy.remove(gone)
        for slot in gone.tolist():
            del model.queries[slot]
        for n in range([1, 40, 200, 1, 600, 3][step]):
            more(np.array([2000 + 1000 * step + n]))
        strategy._check()


@pytest.mark.parametrize("make", STRATEGIES)
def test_codes_may_be_the_least_and_the_greatest(make: type[JoinStrategy]) -> None:
    if make.kind is JoinKind.BAND:
        pytest.skip("differences of such keys are no codes")
    least, most = -(2**63), 2**63 - 1
    for value in (least, most):
        storage = JoinStorage()
        storage.load(1, [5], [value])
        strategy = make(storage)
        strategy.add(np.arange(3), as_ranges([(least, most, 0, 9), (0, 3, 0, 9), (value, value, 0, 9)]))
        assert sorted(strategy.affected(0, 5, 4).tolist()) == [0, 2]
        assert strategy.affected(0, 6, 4).tolist() == []


def test_an_empty_strategy_finds_nothing() -> None:
    assert Naive(JoinStorage()).affected(0, 1, 1).tolist() == []


@pytest.mark.parametrize("made", [QOuter, DOuter, MergeJoin, BandSsi, BandHotspot])
def test_bands_reject_keys_whose_sums_overflow(made) -> None:
    storage = JoinStorage()
    storage.load(1, keys=[2**62], values=[0])
    open_ends = np.array([[-(2**63)], [2**63 - 1]])
    strategy = made(storage)
    strategy.add(np.arange(1), Ranges(*np.array([[-9], [2**63 - 1]]), *open_ends))
    with pytest.raises(TocsinError, match="2\\^62 or more"):
        strategy.affected(0, 4, 0)
    with pytest.raises(TocsinError, match="2\\^62 or more"):
        strategy.each(0, np.array([4]), np.array([0]))
    with pytest.raises(TocsinError, match="a slot is in use"):
        strategy.add(np.arange(1), Ranges(*np.array([[0], [1]]), *open_ends))
    with pytest.raises(TocsinError, match="a range is empty"):
        strategy.add(np.array([1]), Ranges(*np.array([[2], [1]]), *open_ends))
    assert len(strategy) == 1
    with pytest.raises(TocsinError, match="2\\^62 or more"):
        strategy.add(np.array([1]), Ranges(*np.array([[-(2**62)], [0]]), *open_ends))

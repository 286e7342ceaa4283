"""The mutable segment: what is added to it, what is not, and what happens when something goes wrong."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tocsin.engine import Engine
from tocsin.match.base import unpack
from tocsin.match.build.cost import CostModel
from tocsin.match.index import Auto, MergePolicy
from tocsin.match.segments.lifecycle import Segments
from tocsin.match.segments.mutable import MutableSegment
from tocsin.model.columns import SparseRows
from tocsin.model.schema import Stream
from tocsin.predicate.columnar import flat_predicates

OPEN = Stream("s", ())


def filters(rows: list[list[tuple[str, str, float]]]) -> Any:
    given = [[{"attribute": a, "op": op, "number": n} for a, op, n in row] for row in rows]
    return flat_predicates(OPEN, pa.table({"predicates": given}))[0]


def index(policy: MergePolicy | None = None) -> Auto:
    out = Auto(policy)
    out.add(np.arange(100), filters([[("a", ">=", float(i)), ("b", "<", 5.0)] for i in range(100)]))
    out.match(SparseRows.from_dicts([{"a": 3, "b": 1}]))
    return out


def matches(out: Auto, *events: dict[str, Any]) -> list[tuple[int, int]]:
    slot, row = unpack(out.match(SparseRows.from_dicts(events)))
    return sorted(zip(slot.tolist(), row.tolist(), strict=True))


def test_small_batches_go_to_the_mutable_segment_large_ones_do_not() -> None:
    out = index(MergePolicy(cost_factor=1e9))
    out.add(np.array([100]), filters([[("a", "=", 500.0)]]))
    assert (100, 0) in matches(out, {"a": 500.0})
    assert out.stats()["paths"]["mutable"] == 1
    out.add(np.arange(200, 300), filters([[("c", "=", float(i))] for i in range(100)]))
    assert matches(out, {"c": 7.0}) == [(207, 0)]
    assert out.stats()["paths"]["mutable"] <= 1
    out._check()


def test_a_long_list_and_many_events() -> None:
    out = index(MergePolicy(batch_share=100.0, mutable_share=1e9, cost_factor=1e9))
    out.add(np.arange(1000, 4000), filters([[("z", "<=", float(i))] for i in range(3000)]))
    events = [{"z": 2990.0} for _ in range(600)]
    assert len(matches(out, *events)) == 600 * 10
    assert out.stats()["paths"]["mutable"] == 3000


def test_an_attribute_that_no_filter_had_named() -> None:
    out = index()
    for _ in range(3):
        out.match(SparseRows.from_dicts([{"a": 1, "b": 2, "z": 5}] * 50))
    out.add(np.arange(1000, 1020), filters([[("z", ">=", 1.0)] for _ in range(20)]))
    assert len(matches(out, {"z": 5})) == 20
    cost = 0.9 * 20 * CostModel().compare
    assert all(s.segment.expected_cost >= cost for s in out._segments.mutable), "it is known to be frequent"


def test_waiting_filters_survive_a_failed_build(monkeypatch: pytest.MonkeyPatch) -> None:
    out = index()
    out.add(np.array([500]), filters([[("a", "=", 3.0)]]))

    def fails(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Segments, "_add_to_mutable", fails)
        with pytest.raises(MemoryError):
            matches(out, {"a": 3.0})
    assert (500, 0) in matches(out, {"a": 3.0})
    out._check()


def test_a_merge_that_fails_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    out = index(MergePolicy(background_size=0, mutable_share=0.015))
    real = Segments.build
    failed: list[int] = []

    def fails(self: Segments, *given: Any) -> Any:
        failed.append(1)
        raise MemoryError("no memory")

    def add_and_match() -> None:
        for slot in (500, 501):
            out.add(np.array([slot]), filters([[("a", "=", 3.0)]]))
            matches(out, {"b": 3.0})
        for _ in range(50):
            sleep(0.001)
            assert {(500, 0), (501, 0)} <= set(matches(out, {"a": 3.0}))

    monkeypatch.setattr(Segments, "build", fails)
    with pytest.warns(RuntimeWarning, match="put off"):
        add_and_match()
    monkeypatch.setattr(Segments, "build", real)
    assert len(failed) == 1
    assert (500, 0) in matches(out, {"a": 3.0})


def test_a_filter_that_can_never_match_is_not_counted_as_removed() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    plain = [[{"attribute": "a", "op": ">", "number": float(i)}] for i in range(20)]
    never = [{"attribute": "a", "op": op, "number": n} for op, n in (("<", 1.0), (">", 3.0))]
    engine.subscribe_predicates("s", pa.table({"id": range(21), "predicates": [*plain, never]}))
    assert len(engine.publish("s", {"a": 2.0})) == 2
    engine.unsubscribe(20)
    assert engine.stats()["match"]["s"]["removed"] == 0
    engine._check()


def test_a_dimension_that_two_batches_of_rows_have() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s")

    def part(op: str, text: str) -> dict[str, str]:
        return {"attribute": "t", "op": op, "text": text}

    rows = [[part("rlike", "fix$")], [part("prefix", ""), part("rlike", "fix$")]]
    engine.subscribe_predicates("s", pa.table({"id": [1, 2], "predicates": rows}))
    assert engine.publish("s", {"t": "suffix"}).subscription.tolist() == [1, 2]
    engine._check()


@pytest.mark.parametrize("kind", ["attributes", "texts"])
def test_unused_names_are_dropped(kind: str) -> None:
    out = Auto(MergePolicy(background_size=1 << 20))
    for turn in range(60):
        number = np.arange(100) + 100 * (turn % 2)
        name = [f"n{100 * turn + i}" if kind == "attributes" else "n" for i in range(100)]
        rows = [[{"attribute": n, "op": "=", "text": f"t{100 * turn + i}"}] for i, n in enumerate(name)]
        out.add(number, flat_predicates(OPEN, pa.table({"predicates": rows}))[0])
        out.match(SparseRows.from_dicts([{name[0]: f"t{100 * turn}"}]))
        if turn:
            out.remove(np.arange(100) + 100 * ((turn + 1) % 2))
    out.match(SparseRows.from_dicts([{"n": "x"}] * 4))
    frames = [state.segment.dimensions for state in out._segments.all]
    assert sum(len(frame.texts) for frame in frames) < 2000
    assert sum(len(frame.key) for frame in frames) < 2000
    out._check()


def test_a_mutable_segment_grows_and_slots_are_used_again() -> None:
    out = index(MergePolicy(batch_share=100.0, mutable_share=1e9, cost_factor=1e9))
    for turn in range(6):
        some = [[("a", "=", float(turn)), ("b", "=", float(i))] for i in range(4)]
        out.add(np.arange(200, 204), filters(some))
        assert matches(out, {"a": float(turn), "b": 2.0})[-1] == (202, 0)
        assert matches(out, {"a": turn - 1.0, "b": 7.0}) == [], "what the slot had before is gone"
        out._check()
        out.remove(np.arange(200, 204))
    (state,) = out._segments.mutable
    assert len(state) == state.removed == 0 and state.segment.spare == 4, "their space is used again"
    out.add(np.arange(200, 203), filters([[("a", ">", 50.0)], [("b", "!=", 1.0)], [("a", "<", 0.0)]]))
    assert [slot for slot, _ in matches(out, {"a": 60.0, "b": 2.0}) if slot >= 200] == [200, 201]
    out._check()


def test_a_mutable_segment_uses_pairs_when_they_pay() -> None:
    out = index(
        MergePolicy(
            batch_share=100.0, mutable_share=1e9, cost_factor=1e9, costs=CostModel(probe=0.0, hit=0.0)
        )
    )
    some = [[(f"n{i % 7}", "=", float(i)), (f"m{i % 5}", "<", float(i))] for i in range(70)]
    for part in (slice(0, 30), slice(30, 70)):
        out.add(np.arange(200, 270)[part], filters(some[part]))
        out.match(SparseRows.from_dicts([{"n1": 1.0}]))
    (state,) = out._segments.mutable
    assert state.segment.pairs == 35
    for i in (0, 29, 30, 69):
        event = {f"n{i % 7}": float(i), f"m{i % 5}": i - 1.0}
        assert matches(out, event, {f"n{i % 7}": float(i)}) == [(200 + i, 0)]
    out._check()


@pytest.mark.parametrize("paired", [False, True])
def test_much_comes_and_goes(paired: bool) -> None:
    rng = np.random.default_rng(paired)
    costs = CostModel(compare=1e3, follow=1e3, probe=0.0) if paired else CostModel(probe=1e9)
    out = index(MergePolicy(batch_share=1e9, mutable_share=1e9, cost_factor=1e9, costs=costs))
    there: dict[int, list[tuple[str, str, float]]] = {}
    for turn in range(120):
        names = 3 + turn // 4  # there are new attributes all the time
        coming = [s for s in rng.choice(400, 40, replace=False).tolist() if 1000 + s not in there]
        new = {1000 + s: some_tests(rng, names) for s in coming}
        out.add(np.array(list(new)), filters(list(new.values())))
        there |= new
        event = {f"n{k}": float(rng.integers(4)) for k in range(names) if rng.random() < 0.5}
        right = [(s, 0) for s, tests in sorted(there.items()) if all(passes(event, *t) for t in tests)]
        assert [found for found in matches(out, event) if found[0] >= 1000] == right
        going = [s for s in there if rng.random() < (0.7 if turn % 10 == 9 else 0.1)]
        out.remove(np.array(going, np.int64))
        there = {s: tests for s, tests in there.items() if s not in going}
        if turn % 10 == 9:
            out._check()
    (state,) = out._segments.mutable
    assert state.segment.size == len(there) and (state.segment.pairs > 0) == paired
    assert state.segment.spare < 4 * 400, "space is used again"


def some_tests(rng: np.random.Generator, names: int) -> list[tuple[str, str, float]]:
    chosen = rng.choice(names, rng.integers(1, 4), replace=False)
    return [(f"n{k}", str(rng.choice(["=", "<=", "!="])), float(rng.integers(4))) for k in chosen]


def passes(event: dict[str, float], name: str, op: str, number: float) -> bool:
    if name not in event:
        return False
    ways = {"=": event[name] == number, "<=": event[name] <= number, "!=": event[name] != number}
    return ways[op]


def test_a_segment_migrates_into_the_mutable_one() -> None:
    costs = CostModel(migrate=0.0, encode=1e6, build=1e15, build_start=1e15)
    out = index(MergePolicy(batch_share=1e9, mutable_share=1e9, migrate_size=7, costs=costs))
    out.add(np.arange(100, 200), filters([[("a", "=", float(i)), ("b", "!=", 9.0)] for i in range(100)]))
    right = [(i, 0) for i in range(4)] + [(103, 0)]
    sizes = []
    for turn in range(30):
        gone = [slot for slot in (2 * turn + 6, 100 + 2 * turn + 6) if slot < 200]
        out.remove(np.array(gone, np.int64))
        assert matches(out, {"a": 3, "b": 1}) == right
        out._check()
        sizes.append([state.alive for state in out._segments.immutable])
    assert len(sizes[2]) == 1 and sizes[-1] == [], "it migrates in batches, until nothing is left"
    assert out.stats()["paths"]["mutable"] == 200 - 60
    out.add(np.arange(300, 310), filters([[("a", "=", 3.0)]] * 10))
    assert len(matches(out, {"a": 3, "b": 1})) == 15


@pytest.mark.parametrize("place", ["_enlarged", "add"])
def test_a_migration_that_fails_loses_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = CostModel(migrate=0.0, encode=1e6, build=1e15, build_start=1e15)
    out = index(MergePolicy(batch_share=1e9, mutable_share=1e9, migrate_size=7, costs=costs))
    out.add(np.arange(100, 200), filters([[("a", "=", float(i)), ("z", "=", 1.0)] for i in range(100)]))
    right = [(i, 0) for i in range(51)]
    for _ in range(3):
        assert matches(out, {"a": 50, "b": 1}) == right
    assert out._segments.migration is not None

    def fails(*_: Any) -> None:
        raise MemoryError

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(MutableSegment, place, fails)
            with pytest.raises(MemoryError):
                matches(out, {"a": 50, "b": 1})
        assert matches(out, {"a": 50, "b": 1}) == right
    for _ in range(30):
        assert matches(out, {"a": 50, "b": 1}) == right
    out._check()


def test_lists_that_were_long_give_their_space_back() -> None:
    out = index(MergePolicy(batch_share=1e9, mutable_share=1e9, cost_factor=1e9))
    used = []
    for turn in range(40):
        out.add(np.arange(200, 1200), filters([[(f"n{turn}", "=", float(i))] for i in range(1000)]))
        assert matches(out, {f"n{turn}": 7.0}) == [(207, 0)]
        out.remove(np.arange(200, 1190))
        out._check()
        out.remove(np.arange(1190, 1200))
        used.append(out.stats()["bytes"])
    assert max(used[20:]) < 1.2 * max(used[:20])


def test_numbers_begin_again() -> None:
    out = index(MergePolicy(background_size=0))
    out.add(np.arange(100, 150), filters([[("a", "=", float(i))] for i in range(50)]))
    assert (103, 0) in matches(out, {"a": 3.0})
    out._segments.next_number = 2**31 - 3
    for slot in range(200, 206):
        out.add(np.array([slot]), filters([[("a", "=", 3.0)]]))
        assert {(103, 0), (slot, 0)} <= set(matches(out, {"a": 3.0}))
        out._check()
    assert out._segments.next_number < 100


def test_saved_while_a_segment_migrates(tmp_path: Path) -> None:
    costs = CostModel(migrate=0.0, encode=1e6, build=1e15, build_start=1e15)
    out = index(MergePolicy(batch_share=1e9, mutable_share=1e9, migrate_size=7, costs=costs))
    out.add(np.arange(100, 200), filters([[("a", "=", float(i))] for i in range(100)]))
    right = [(i, 0) for i in range(4)] + [(103, 0)]
    assert matches(out, {"a": 3, "b": 1}) == matches(out, {"a": 3, "b": 1}) == right
    assert out._segments.migration is not None
    out.save(tmp_path)
    for index_now in (out, Auto.open(tmp_path)):
        for _ in range(3):
            assert matches(index_now, {"a": 3, "b": 1}) == right
        index_now._check()


def test_a_segment_that_would_cost_much_in_the_mutable_one_does_not_migrate() -> None:
    costs = CostModel(migrate=0.0, encode=1.0, build=1e15, build_start=1e15)
    out = index(MergePolicy(batch_share=1e9, mutable_share=1e9, costs=costs))
    out.add(np.arange(100, 200), filters([[("a", "=", float(i))] for i in range(100)]))
    for _ in range(3):
        assert (3, 0) in matches(out, {"a": 3, "b": 1})
    (state,) = out._segments.immutable
    assert state.keeps_apart and state.alive == 100


def test_removal_while_a_mutable_segment_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    out = index(MergePolicy(background_size=0, batch_share=100.0, cost_factor=0.0, early_events=0))
    out.wait()
    begun, may_end = Event(), Event()

    def slow(self: Segments, *given: Any) -> Any:
        begun.set()
        may_end.wait()
        raise MemoryError("no memory")

    real = Segments.build
    monkeypatch.setattr(Segments, "build", slow)
    out.add(np.arange(200, 210), filters([[("a", "=", 3.0)]] * 10))
    before = matches(out, {"a": 3.0})
    begun.wait()
    out.remove(np.arange(200, 205))
    out.add(
        np.arange(200, 202), filters([[("a", "=", 4.0)]] * 2)
    )  # slots of the segment that is being merged
    assert matches(out, {"a": 3.0}) == [found for found in before if not 200 <= found[0] < 205]
    assert {(200, 0), (201, 0)} <= set(matches(out, {"a": 4.0}))
    may_end.set()
    with pytest.warns(RuntimeWarning, match="put off"):
        out.wait()
    monkeypatch.setattr(Segments, "build", real)
    out._check()
    assert matches(out, {"a": 3.0}) == [found for found in before if not 200 <= found[0] < 205]
    out.remove(np.arange(200, 202))
    out.remove(np.arange(205, 210))
    assert matches(out, {"a": 3.0}) == [found for found in before if found[0] < 200]
    out._check()


@pytest.mark.parametrize("path", ["lists", "pairs", "bits"])
def test_a_segment_is_compacted(path: str) -> None:
    costs = {"lists": CostModel(hit=1e9, bit=1e9), "pairs": CostModel(check=1e6, bit=1e6, hit=0, probe=0)}
    chosen = costs.get(path, CostModel(check=1e6, hit=1e6, bit=0, bit_entry=0, bit_row=0))
    out = Auto(MergePolicy(costs=chosen, removed_share=0.1))
    rows = [[("a", "=", float(i % 9)), ("b", "<", float(i))] for i in range(90)]
    rows += [[("a", "<", float(i))] for i in range(9)] + [[("b", "!=", 3.0)]]
    rows += [[("a", ">=", float(i)), ("a", "<=", i + 2.0), ("b", "=", 5.0)] for i in range(9)]
    out.add(np.arange(len(rows)), filters(rows))
    events = [{"a": float(i % 9), "b": float(i % 11)} for i in range(40)] + [{"b": 3.0}, {"a": 2.0}]
    before = matches(out, *events)
    first = out._segments.immutable[0].segment
    gone = np.arange(0, len(rows), 4)
    out.remove(gone)
    assert matches(out, *events) == [(s, e) for s, e in before if s % 4]
    (now,) = out._segments.immutable
    assert not out._segments.mutable
    assert now.segment is not first and now.segment.key is first.key, "it was not rebuilt"
    assert now.removed == 0 and now.segment.size == len(rows) - len(gone)
    out._check()
    out.remove(np.setdiff1d(np.arange(len(rows)), gone)[5:])
    assert matches(out, *events) == [(s, e) for s, e in before if s in (1, 2, 3, 5, 6)]
    out._check()

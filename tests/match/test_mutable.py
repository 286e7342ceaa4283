"""The front: what comes to it, what does not, and what happens when something goes wrong."""

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
from tocsin.match.build.cost import Costs
from tocsin.match.index import Auto, Policy
from tocsin.match.segments.immutable import Segment
from tocsin.match.segments.mutable import Front
from tocsin.model.columns import SparseRows
from tocsin.model.schema import Stream
from tocsin.predicate.columnar import flat_predicates

OPEN = Stream("s", ())


def filters(rows: list[list[tuple[str, str, float]]]) -> Any:
    given = [[{"attribute": a, "op": op, "number": n} for a, op, n in row] for row in rows]
    return flat_predicates(OPEN, pa.table({"predicates": given}))[0]


def index(policy: Policy | None = None) -> Auto:
    out = Auto(policy)
    out.add(np.arange(100), filters([[("a", ">=", float(i)), ("b", "<", 5.0)] for i in range(100)]))
    out.match(SparseRows.from_dicts([{"a": 3, "b": 1}]))
    return out


def told(out: Auto, *events: dict[str, Any]) -> list[tuple[int, int]]:
    slot, row = unpack(out.match(SparseRows.from_dicts(events)))
    return sorted(zip(slot.tolist(), row.tolist(), strict=True))


def test_little_goes_to_the_front_much_does_not() -> None:
    out = index(Policy(felt=1e9))
    out.add(np.array([100]), filters([[("a", "=", 500.0)]]))
    assert (100, 0) in told(out, {"a": 500.0})
    assert out.stats()["paths"]["front"] == 1
    out.add(np.arange(200, 300), filters([[("c", "=", float(i))] for i in range(100)]))
    assert told(out, {"c": 7.0}) == [(207, 0)]
    assert out.stats()["paths"]["front"] <= 1
    out._check()


def test_a_long_list_and_many_events() -> None:
    out = index(Policy(gust=100.0, front=1e9, felt=1e9))
    out.add(np.arange(1000, 4000), filters([[("z", "<=", float(i))] for i in range(3000)]))
    events = [{"z": 2990.0} for _ in range(600)]
    assert len(told(out, *events)) == 600 * 10
    assert out.stats()["paths"]["front"] == 3000


def test_an_attribute_that_no_filter_had_named() -> None:
    out = index()
    for _ in range(3):
        out.match(SparseRows.from_dicts([{"a": 1, "b": 2, "z": 5}] * 50))
    out.add(np.arange(1000, 1020), filters([[("z", ">=", 1.0)] for _ in range(20)]))
    assert len(told(out, {"z": 5})) == 20
    fronts = [held.segment for held in out._held if held.is_front]
    assert all(front.cost >= 0.9 * 20 * Costs().compare for front in fronts), "it is known to be frequent"


def test_what_waits_is_not_lost_when_building_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    out = index()
    out.add(np.array([500]), filters([[("a", "=", 3.0)]]))

    def fails(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(Auto, "_to_front", fails)
        with pytest.raises(MemoryError):
            told(out, {"a": 3.0})
    assert (500, 0) in told(out, {"a": 3.0})
    out._check()


def test_a_merge_that_fails_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    out = index(Policy(background=0, front=0.015))
    real = Auto._build
    failed: list[int] = []

    def fails(self: Auto, *given: Any) -> Any:
        failed.append(1)
        raise MemoryError("no room")

    def come_and_ask() -> None:
        for slot in (500, 501):
            out.add(np.array([slot]), filters([[("a", "=", 3.0)]]))
            told(out, {"b": 3.0})
        for _ in range(50):
            sleep(0.001)
            assert {(500, 0), (501, 0)} <= set(told(out, {"a": 3.0}))

    monkeypatch.setattr(Auto, "_build", fails)
    with pytest.warns(RuntimeWarning, match="put off"):
        come_and_ask()
    monkeypatch.setattr(Auto, "_build", real)
    assert len(failed) == 1
    assert (500, 0) in told(out, {"a": 3.0})


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
def test_what_is_used_no_more_is_left_out(kind: str) -> None:
    out = Auto(Policy(background=1 << 20))
    for turn in range(60):
        number = np.arange(100) + 100 * (turn % 2)
        name = [f"n{100 * turn + i}" if kind == "attributes" else "n" for i in range(100)]
        rows = [[{"attribute": n, "op": "=", "text": f"t{100 * turn + i}"}] for i, n in enumerate(name)]
        out.add(number, flat_predicates(OPEN, pa.table({"predicates": rows}))[0])
        out.match(SparseRows.from_dicts([{name[0]: f"t{100 * turn}"}]))
        if turn:
            out.remove(np.arange(100) + 100 * ((turn + 1) % 2))
    out.match(SparseRows.from_dicts([{"n": "x"}] * 4))
    frames = [h.segment.frame if h.is_front else h.segment for h in out._held]  # type: ignore[union-attr]
    assert sum(len(frame.texts) for frame in frames) < 2000
    assert sum(len(frame.key) for frame in frames) < 2000
    out._check()


def test_a_front_takes_more_in_and_slots_are_used_again() -> None:
    out = index(Policy(gust=100.0, front=1e9, felt=1e9))
    for turn in range(6):
        some = [[("a", "=", float(turn)), ("b", "=", float(i))] for i in range(4)]
        out.add(np.arange(200, 204), filters(some))
        assert told(out, {"a": float(turn), "b": 2.0})[-1] == (202, 0)
        assert told(out, {"a": turn - 1.0, "b": 7.0}) == [], "what the slot had before is gone"
        out._check()
        out.remove(np.arange(200, 204))
    (front,) = [held for held in out._held if held.is_front]
    assert len(front) == front.dead == 0 and front.segment.spare == 4, "their room is used again"
    out.add(np.arange(200, 203), filters([[("a", ">", 50.0)], [("b", "!=", 1.0)], [("a", "<", 0.0)]]))
    assert [slot for slot, _ in told(out, {"a": 60.0, "b": 2.0}) if slot >= 200] == [200, 201]
    out._check()


def test_a_front_hangs_on_pairs_when_they_pay() -> None:
    out = index(Policy(gust=100.0, front=1e9, felt=1e9, costs=Costs(probe=0.0, hit=0.0)))
    some = [[(f"n{i % 7}", "=", float(i)), (f"m{i % 5}", "<", float(i))] for i in range(70)]
    for part in (slice(0, 30), slice(30, 70)):
        out.add(np.arange(200, 270)[part], filters(some[part]))
        out.match(SparseRows.from_dicts([{"n1": 1.0}]))
    (front,) = [held.segment for held in out._held if held.is_front]
    assert isinstance(front, Front) and front.pairs == 35
    for i in (0, 29, 30, 69):
        event = {f"n{i % 7}": float(i), f"m{i % 5}": i - 1.0}
        assert told(out, event, {f"n{i % 7}": float(i)}) == [(200 + i, 0)]
    out._check()


@pytest.mark.parametrize("paired", [False, True])
def test_much_comes_and_goes(paired: bool) -> None:
    rng = np.random.default_rng(paired)
    costs = Costs(compare=1e3, follow=1e3, probe=0.0) if paired else Costs(probe=1e9)
    out = index(Policy(gust=1e9, front=1e9, felt=1e9, costs=costs))
    there: dict[int, list[tuple[str, str, float]]] = {}
    for turn in range(120):
        names = 3 + turn // 4  # there are new attributes all the time
        coming = [s for s in rng.choice(400, 40, replace=False).tolist() if 1000 + s not in there]
        new = {1000 + s: some_tests(rng, names) for s in coming}
        out.add(np.array(list(new)), filters(list(new.values())))
        there |= new
        event = {f"n{k}": float(rng.integers(4)) for k in range(names) if rng.random() < 0.5}
        right = [(s, 0) for s, tests in sorted(there.items()) if all(passes(event, *t) for t in tests)]
        assert [found for found in told(out, event) if found[0] >= 1000] == right
        going = [s for s in there if rng.random() < (0.7 if turn % 10 == 9 else 0.1)]
        out.remove(np.array(going, np.int64))
        there = {s: tests for s, tests in there.items() if s not in going}
        if turn % 10 == 9:
            out._check()
    (front,) = [held.segment for held in out._held if held.is_front]
    assert isinstance(front, Front) and front.size == len(there) and (front.pairs > 0) == paired
    assert front.spare < 4 * 400, "room is used again"


def some_tests(rng: np.random.Generator, names: int) -> list[tuple[str, str, float]]:
    chosen = rng.choice(names, rng.integers(1, 4), replace=False)
    return [(f"n{k}", str(rng.choice(["=", "<=", "!="])), float(rng.integers(4))) for k in chosen]


def passes(event: dict[str, float], name: str, op: str, number: float) -> bool:
    if name not in event:
        return False
    ways = {"=": event[name] == number, "<=": event[name] <= number, "!=": event[name] != number}
    return ways[op]


def test_a_segment_melts_into_the_front() -> None:
    costs = Costs(move=0.0, coded=1e6, build=1e15, begin=1e15)
    out = index(Policy(gust=1e9, front=1e9, moved=7, costs=costs))
    out.add(np.arange(100, 200), filters([[("a", "=", float(i)), ("b", "!=", 9.0)] for i in range(100)]))
    right = [(i, 0) for i in range(4)] + [(103, 0)]
    sizes = []
    for turn in range(30):
        gone = [slot for slot in (2 * turn + 6, 100 + 2 * turn + 6) if slot < 200]
        out.remove(np.array(gone, np.int64))
        assert told(out, {"a": 3, "b": 1}) == right
        out._check()
        sizes.append([held.alive for held in out._held if not held.is_front])
    assert len(sizes[2]) == 1 and sizes[-1] == [], "it melts in portions, until nothing is left"
    assert out.stats()["paths"]["front"] == 200 - 60
    out.add(np.arange(300, 310), filters([[("a", "=", 3.0)]] * 10))
    assert len(told(out, {"a": 3, "b": 1})) == 15


@pytest.mark.parametrize("place", ["_roomier", "take"])
def test_melting_that_fails_loses_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(move=0.0, coded=1e6, build=1e15, begin=1e15)
    out = index(Policy(gust=1e9, front=1e9, moved=7, costs=costs))
    out.add(np.arange(100, 200), filters([[("a", "=", float(i)), ("z", "=", 1.0)] for i in range(100)]))
    right = [(i, 0) for i in range(51)]
    for _ in range(3):
        assert told(out, {"a": 50, "b": 1}) == right
    assert out._melt is not None

    def fails(*_: Any) -> None:
        raise MemoryError

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(Front, place, fails)
            with pytest.raises(MemoryError):
                told(out, {"a": 50, "b": 1})
        assert told(out, {"a": 50, "b": 1}) == right
    for _ in range(30):
        assert told(out, {"a": 50, "b": 1}) == right
    out._check()


def test_lists_that_were_long_give_their_room_back() -> None:
    out = index(Policy(gust=1e9, front=1e9, felt=1e9))
    used = []
    for turn in range(40):
        out.add(np.arange(200, 1200), filters([[(f"n{turn}", "=", float(i))] for i in range(1000)]))
        assert told(out, {f"n{turn}": 7.0}) == [(207, 0)]
        out.remove(np.arange(200, 1190))
        out._check()
        out.remove(np.arange(1190, 1200))
        used.append(out.stats()["bytes"])
    assert max(used[20:]) < 1.2 * max(used[:20])


def test_numbers_begin_again() -> None:
    out = index(Policy(background=0))
    out.add(np.arange(100, 150), filters([[("a", "=", float(i))] for i in range(50)]))
    assert (103, 0) in told(out, {"a": 3.0})
    out._next = 2**31 - 3
    for slot in range(200, 206):
        out.add(np.array([slot]), filters([[("a", "=", 3.0)]]))
        assert {(103, 0), (slot, 0)} <= set(told(out, {"a": 3.0}))
        out._check()
    assert out._next < 100


def test_saved_while_a_segment_melts(tmp_path: Path) -> None:
    costs = Costs(move=0.0, coded=1e6, build=1e15, begin=1e15)
    out = index(Policy(gust=1e9, front=1e9, moved=7, costs=costs))
    out.add(np.arange(100, 200), filters([[("a", "=", float(i))] for i in range(100)]))
    right = [(i, 0) for i in range(4)] + [(103, 0)]
    assert told(out, {"a": 3, "b": 1}) == told(out, {"a": 3, "b": 1}) == right
    assert out._melt is not None
    out.save(tmp_path)
    for index_now in (out, Auto.open(tmp_path)):
        for _ in range(3):
            assert told(index_now, {"a": 3, "b": 1}) == right
        index_now._check()


def test_what_would_cost_much_in_the_front_does_not_melt() -> None:
    costs = Costs(move=0.0, coded=1.0, build=1e15, begin=1e15)
    out = index(Policy(gust=1e9, front=1e9, costs=costs))
    out.add(np.arange(100, 200), filters([[("a", "=", float(i))] for i in range(100)]))
    for _ in range(3):
        assert (3, 0) in told(out, {"a": 3, "b": 1})
    (segment,) = [held for held in out._held if not held.is_front]
    assert segment.is_firm and segment.alive == 100


def test_what_goes_while_a_front_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    out = index(Policy(background=0, gust=100.0, felt=0.0, soon=0))
    out.wait()
    begun, may_end = Event(), Event()

    def slow(self: Auto, *given: Any) -> Any:
        begun.set()
        may_end.wait()
        raise MemoryError("no room")

    real = Auto._build
    monkeypatch.setattr(Auto, "_build", slow)
    out.add(np.arange(200, 210), filters([[("a", "=", 3.0)]] * 10))
    before = told(out, {"a": 3.0})
    begun.wait()
    out.remove(np.arange(200, 205))
    out.add(np.arange(200, 202), filters([[("a", "=", 4.0)]] * 2))  # slots that the taken front had
    assert told(out, {"a": 3.0}) == [found for found in before if not 200 <= found[0] < 205]
    assert {(200, 0), (201, 0)} <= set(told(out, {"a": 4.0}))
    may_end.set()
    with pytest.warns(RuntimeWarning, match="put off"):
        out.wait()
    monkeypatch.setattr(Auto, "_build", real)
    out._check()
    assert told(out, {"a": 3.0}) == [found for found in before if not 200 <= found[0] < 205]
    out.remove(np.arange(200, 202))
    out.remove(np.arange(205, 210))
    assert told(out, {"a": 3.0}) == [found for found in before if found[0] < 200]
    out._check()


@pytest.mark.parametrize("path", ["lists", "pairs", "bits"])
def test_a_segment_is_sifted(path: str) -> None:
    costs = {"lists": Costs(hit=1e9, bit=1e9), "pairs": Costs(check=1e6, bit=1e6, hit=0, probe=0)}
    chosen = costs.get(path, Costs(check=1e6, hit=1e6, bit=0, spread=0, row=0))
    out = Auto(Policy(costs=chosen, dead=0.1))
    rows = [[("a", "=", float(i % 9)), ("b", "<", float(i))] for i in range(90)]
    rows += [[("a", "<", float(i))] for i in range(9)] + [[("b", "!=", 3.0)]]
    rows += [[("a", ">=", float(i)), ("a", "<=", i + 2.0), ("b", "=", 5.0)] for i in range(9)]
    out.add(np.arange(len(rows)), filters(rows))
    events = [{"a": float(i % 9), "b": float(i % 11)} for i in range(40)] + [{"b": 3.0}, {"a": 2.0}]
    before = told(out, *events)
    first = out._held[0].segment
    gone = np.arange(0, len(rows), 4)
    out.remove(gone)
    assert told(out, *events) == [(s, e) for s, e in before if s % 4]
    (now,) = out._held
    assert isinstance(first, Segment) and isinstance(now.segment, Segment)
    assert now.segment is not first and now.segment.key is first.key, "it was not built anew"
    assert now.dead == 0 and now.segment.size == len(rows) - len(gone)
    out._check()
    out.remove(np.setdiff1d(np.arange(len(rows)), gone)[5:])
    assert told(out, *events) == [(s, e) for s, e in before if s in (1, 2, 3, 5, 6)]
    out._check()

"""Several ranges and equalities in any order: boxes, the answers of the scan and of the reference."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.engine import Engine, Rooms
from tocsin.errors import TocsinError
from tocsin.rank import boxes, forest
from tocsin.rank._kernels.boxes import LEAF
from tocsin.rank.forest import PointForest
from tocsin.rank.room import RankRoom
from tocsin.rank.scan import RankScan
from tocsin.reference import as_bag, evaluate

SELECTS = (
    "SELECT MIN(d) AS m FROM t WHERE {w}",
    "SELECT MAX(s) AS m FROM t WHERE {w}",
    "SELECT COUNT(*), SUM(a), AVG(d) FROM t WHERE {w}",
    "SELECT SUM(d) AS total FROM t WHERE {w}",
    "SELECT MIN(b), COUNT(d), MAX(d) FROM t WHERE {w}",
    "SELECT DISTINCT s FROM t WHERE {w}",
    "SELECT DISTINCT s, flag FROM t WHERE {w}",
    "SELECT k, d FROM t WHERE {w} ORDER BY d LIMIT 1",
    "SELECT * FROM t WHERE {w} ORDER BY d DESC, s LIMIT 3",
    "SELECT s FROM t WHERE {w} ORDER BY s LIMIT 2",
)
CONDITIONS = (
    "a >= {p}",
    "b BETWEEN {p} AND {q}",
    "d < {r}",
    "s = '{s}'",
    "flag = TRUE",
    "(s != 'b' OR a > 5)",
    "s LIKE '%a%'",
    "k = {k}",
    "b != 4",
    "d = {r}",
    "a > {p} AND a <= {q}",
)
TABLE = """CREATE TABLE t (k BIGINT, a BIGINT, b BIGINT, d DOUBLE, s STRING, flag BOOLEAN, PRIMARY KEY (k))"""
ROW = {
    "a": st.none() | st.integers(0, 9) | st.sampled_from([2**63 - 1, -(2**63)]),
    "b": st.none() | st.integers(0, 9),
    "d": st.none() | st.integers(0, 9).map(float) | st.sampled_from([float("nan"), float("inf"), 0.5]),
    "s": st.none() | st.sampled_from(["a", "b", "ab"]),
    "flag": st.none() | st.booleans(),
}
OP = st.sampled_from(["upsert", "upsert", "upsert", "update", "delete"])
CHANGES = st.lists(
    st.tuples(OP, st.integers(0, 11), st.fixed_dictionaries({}, optional=ROW)), min_size=1, max_size=12
)


class Both:
    """The same subscriptions and changes in an engine with families and one that scans."""

    def __init__(self) -> None:
        self.engines = [Engine(rooms=Rooms(rank=room)) for room in (RankRoom, RankScan)]
        for engine in self.engines:
            engine.execute(TABLE)

    def run(self, script: list[Any], draw: random.Random, where: Callable[[random.Random], str]) -> None:
        """A list changes rows; a number unsubscribes some, or subscribes with conditions of `where`."""
        for part in script:
            if isinstance(part, list):
                self.apply(part)
            elif part % 4 == 3 and len(self.engines[0].subscriptions()) > 5:
                ids = [s.id for s in self.engines[0].subscriptions()]
                self.each("unsubscribe_many", draw.sample(ids, len(ids) // 3))
            else:
                for _ in range(6):
                    self.each("subscribe", draw.choice(SELECTS).format(w=where(draw)))
        self.compare_contents()

    def apply(self, changes: list[tuple[str, int, dict[str, Any]]]) -> None:
        outcomes = []
        for engine in self.engines:
            deltas: Counter[str] = Counter()
            for op, k, row in changes:  # one batch of changes that apply, whatever else is in it
                try:
                    table = {"_op": [op], "k": [k], **{name: [value] for name, value in row.items()}}
                    deltas.update(map(repr, engine.apply("t", pa.table(table))))
                except TocsinError as error:
                    deltas[type(error).__name__] += 1
            outcomes.append(deltas)
        assert outcomes[0] == outcomes[1]
        self.engines[0]._check()

    def apply_batch(self, rows: list[dict[str, Any]]) -> None:
        table = pa.Table.from_pylist([{"_op": "upsert", **row} for row in rows])
        mine, plain = (Counter(map(repr, engine.apply("t", table))) for engine in self.engines)
        assert mine == plain
        self.engines[0]._check()

    def compare_contents(self) -> None:
        mine, plain = (Counter(map(repr, engine.contents())) for engine in self.engines)
        assert mine == plain
        engine = self.engines[0]
        database = {"t": engine.rows("t").to_pylist()}
        for subscription in engine.subscriptions()[::5]:
            wanted = evaluate(engine.query(subscription.id), database, {"t": ("k",)})
            assert as_bag(engine.content(subscription.id)) == as_bag(wanted)

    def each(self, what: str, *args: Any) -> None:
        for engine in self.engines:
            getattr(engine, what)(*args)

    def stats(self) -> dict[str, Any]:
        return self.engines[0].stats()["rank"]


def _where(draw: random.Random) -> str:
    chosen = draw.sample(CONDITIONS, draw.randint(2, 4))
    p, q = sorted(draw.randint(0, 9) for _ in range(2))
    values = {"p": p, "q": q, "r": draw.randint(0, 9), "k": draw.randint(0, 11), "s": draw.choice(["a", "b"])}
    return " AND ".join(chosen).format(**values)


def _row(draw: random.Random, keys: int = 40) -> dict[str, Any]:
    return {
        "k": draw.randrange(keys),
        "a": draw.choice([None, *range(10)]),
        "b": draw.choice([None, *range(10)]),
        "d": draw.choice([None, 0.5, float("nan"), *map(float, range(10))]),
        "s": draw.choice([None, "a", "b", "ab"]),
        "flag": draw.choice([None, True, False]),
    }


@settings(max_examples=15, deadline=None)
@given(st.lists(CHANGES | st.integers(0, 10**6), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_deltas_equal_those_of_the_scan(script: list[Any], draw: random.Random) -> None:
    Both().run([7, *script], draw, _where)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("way", ["template", "texts"])
def test_templates_and_texts(seed: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "_UNPACKED", 20)  # more trees
    monkeypatch.setattr(boxes, "_CHUNK", 7)
    monkeypatch.setattr(boxes, "_BUFFER", 9)
    both, draw = Both(), random.Random(seed)
    both.apply_batch([_row(draw) for _ in range(60)])
    count = 40
    columns = {
        "p": [draw.randint(0, 5) for _ in range(count)],
        "q": [draw.randint(3, 9) for _ in range(count)],
        "r": [draw.randint(2, 9) for _ in range(count)],
        "s": [draw.choice(["a", "b", "ab"]) for _ in range(count)],
    }
    orders = list(permutations(["a >= :p", "b BETWEEN :p AND :q", "d < :r", "s = :s"], 3))
    orders += [("(s != 'b' OR flag = TRUE)", "a >= :p", "d < :r"), ("a >= 3", "b > :p", "flag = TRUE")]
    for at, select in enumerate(SELECTS):
        where = " AND ".join(draw.choice(orders))
        used = {name: column for name, column in columns.items() if f":{name}" in where}
        if way == "template":
            table = pa.table({"id": range(count * at, count * (at + 1)), **used})
            both.each("subscribe_many", select.format(w=where), table)
        else:
            texts = [_fill(select.format(w=where), {n: c[i] for n, c in used.items()}) for i in range(count)]
            both.each("subscribe_texts", texts)
    for _ in range(4):
        both.apply_batch([_row(draw) for _ in range(30)])
    ids = [s.id for s in both.engines[0].subscriptions()]
    both.each("unsubscribe_many", ids[::3])
    both.apply_batch([_row(draw) for _ in range(30)])
    both.compare_contents()
    assert both.stats()["scanned"] == 0


def _fill(text: str, values: dict[str, Any]) -> str:
    for name, value in values.items():
        text = text.replace(f":{name}", f"'{value}'" if isinstance(value, str) else str(value))
    return text


@pytest.mark.parametrize("where", list(permutations(["a >= 3", "b > :p", "s = 'a'"])), ids=" ".join)
def test_what_varies_is_searched_by_in_any_order(where: tuple[str, ...]) -> None:
    both = Both()
    params = pa.table({"id": range(100), "p": [n % 10 for n in range(100)]})
    both.each("subscribe_many", f"SELECT MIN(d) FROM t WHERE {' AND '.join(where)}", params)
    both.each("subscribe", "SELECT MIN(d) FROM t WHERE s = 'a' AND a >= 3 AND b > 77")
    both.apply_batch([_row(random.Random(1)) for _ in range(9)])
    (family,) = both.stats()["families"]
    assert (family["family"], family["attribute"], family["subscriptions"]) == ("extremes", "b", 101)
    assert both.stats()["scanned"] == 0


@pytest.mark.parametrize("where", list(permutations(["a >= :p", "b < :q", "s = 'a'"])), ids=" ".join)
def test_two_ranges_that_vary_are_a_box_in_any_order(where: tuple[str, ...]) -> None:
    both = Both()
    columns = {"p": [n % 10 for n in range(60)], "q": [n // 6 for n in range(60)]}
    for number, select in enumerate(SELECTS):
        rows = pa.table({**columns, "id": range(60 * number, 60 * number + 60)})
        both.each("subscribe_many", select.format(w=" AND ".join(where)), rows)
    draw = random.Random(2)
    both.apply_batch([_row(draw) for _ in range(20)])
    both.apply_batch([_row(draw) for _ in range(20)])
    stats = both.stats()
    assert {family["attribute"] for family in stats["families"]} == {"a, b"}
    assert (len(stats["families"]), stats["scanned"]) == (len(SELECTS), 0)


def test_single_subscriptions_share_one_family_in_any_order() -> None:
    both = Both()
    for n in range(120):
        where = [f"a >= {n % 7}", f"b < {n % 9}", f"d BETWEEN {n % 3} AND {n % 5 + 3}"]
        random.Random(n).shuffle(where)
        both.each("subscribe", f"SELECT COUNT(*) FROM t WHERE {' AND '.join(where)}")
    both.apply_batch([_row(random.Random(3)) for _ in range(20)])
    assert (len(both.stats()["families"]), both.stats()["scanned"]) == (1, 0)


def test_a_filter_that_holds_for_no_row_costs_nothing() -> None:
    both = Both()
    ids = pa.table({"id": range(30), "p": range(30)})
    both.each("subscribe_many", "SELECT COUNT(*) FROM t WHERE a > :p AND a < 0 AND b > :p", ids)
    both.each("subscribe", "SELECT MAX(d) FROM t WHERE a > 3 AND a < 2 AND b > 3")
    both.apply_batch([_row(random.Random(4)) for _ in range(20)])
    both.compare_contents()
    assert (both.stats()["families"], both.stats()["scanned"]) == ([], 0)
    both.each("unsubscribe_many", [s.id for s in both.engines[0].subscriptions()])


@pytest.mark.parametrize("shape", ["MIN(d)", "COUNT(*)", "DISTINCT s", "top"])
def test_work_per_change_is_bounded(shape: str) -> None:
    """Members tested per change: those whose answers change, and a small share of the others."""
    engine, draw = Engine(), random.Random(5)
    engine.execute(TABLE)
    numbers = range(2000)
    rows = [{**_row(draw), "k": k, "a": draw.choice(numbers), "b": draw.choice(numbers)} for k in range(800)]
    engine.apply("t", pa.Table.from_pylist(rows))
    count = 3000
    low, high = ([draw.choice(numbers) for _ in range(count)] for _ in range(2))
    select = "SELECT k FROM t" if shape == "top" else f"SELECT {shape} FROM t"
    text = f"{select} WHERE b < :q AND a BETWEEN :p AND :z"
    text += " ORDER BY d LIMIT 2" if shape == "top" else ""
    engine.subscribe_many(
        text, pa.table({"id": range(count), "p": low, "z": [p + 40 for p in low], "q": high})
    )
    changes = [
        {**_row(draw), "k": k, "a": draw.choice(numbers), "b": draw.choice(numbers)} for k in range(200)
    ]
    deltas = engine.apply("t", pa.Table.from_pylist([{"_op": "upsert", **row} for row in changes]))
    (family,) = engine.stats()["rank"]["families"]
    affected = len({(d.seq, d.subscription) for d in deltas})
    assert 190 < family["changes"] <= 200
    assert family["candidates"] < 8 * affected + family["changes"] * count // 10


@pytest.mark.parametrize("rows", [20, 300], ids=["few near", "more near than kept"])
def test_distinct_with_rows_on_a_diagonal(rows: int) -> None:
    """Seen from the corner, no row hides another; more boxes contain the corner than are tested together."""
    both, draw, count = Both(), random.Random(6), 1200
    both.apply_batch([{"k": n, "a": n, "b": rows - n, "s": "a"} for n in range(1, rows)])
    ends = [draw.sample(range(rows), 2) for _ in range(count)]
    columns = {"p": [-(n % 3) for n in range(count)], "q": [q for q, _ in ends], "r": [r for _, r in ends]}
    text = "SELECT DISTINCT s FROM t WHERE a BETWEEN :p AND :q AND b BETWEEN :p AND :r"
    both.each("subscribe_many", text, pa.table({"id": range(count), **columns}))
    for change in ("upsert", 0, 0), ("upsert", 0, -1), ("upsert", rows // 2, rows // 3), ("delete", 0, 0):
        both.apply(
            [(change[0], 0, {"a": change[1], "b": change[2], "s": "a"} if change[0] == "upsert" else {})]
        )
    both.compare_contents()
    assert both.stats()["families"][0]["family"] == "box distinct"


# -- the forest --------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(-40, 60), min_size=1, max_size=15), st.integers(1, 3), st.randoms())
def test_a_forest_keeps_its_points(script: list[int], width: int, draw: random.Random) -> None:
    tree, known, following = PointForest(width), {}, 0
    for n in script:
        if n > 0:
            ids = np.arange(following, following + n * (1 + 8 * (n > 50)))
            following = int(ids[-1]) + 1
            points = np.array([[draw.randint(0, 9) for _ in range(width)] for _ in ids])
            tree.add(ids, points, pack=n % 5 > 0)
            known.update(zip(ids.tolist(), points.tolist(), strict=True))
        elif known:
            gone = draw.sample(sorted(known), min(len(known), -n))
            tree.remove(np.array(gone, np.int64))
            for one in gone:
                del known[one]
        tree._check()
        ids = np.sort(tree.ids())
        assert ids.tolist() == sorted(known) and tree.points(ids).tolist() == [known[i] for i in ids.tolist()]
    assert LEAF > 1

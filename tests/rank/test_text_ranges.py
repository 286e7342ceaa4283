"""Ranges of texts: in families like other ranges, and the answers of the scan and of the reference."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rank.test_boxes import OP, ROW, SELECTS, TABLE, Both
from tocsin.engine import Engine
from tocsin.model.buffers import to_arrow
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.rank import partitioned
from tocsin.rank.text_axis import TextAxis

TEXTS = [
    "",
    "\x00",
    "a",
    "a\x00",
    "aa",
    "ab",
    "abc",
    "b",
    "\x7f",
    "é",
    "éa",
    "ÿ",
    "\ud7ff",
    "\ue000",
    "\uffff",
]
TEXTS += ["😀", "a\U0010ffff", "\U0010ffff", "\U0010ffffb"]  # UTF-16 would order some of them otherwise
CONDITIONS = (
    *("s > '{p}'", "s >= '{p}'", "s < '{q}'", "s <= '{q}'", "s BETWEEN '{p}' AND '{q}'", "s LIKE '{p}%'"),
    *("s > '{p}' AND s < '{q}'", "s >= '{p}' AND s LIKE '{q}%'", "'{q}' > s", "s BETWEEN '{q}' AND '{p}'"),
)
BESIDE = ("a >= {a}", "a = {a}", "b BETWEEN {a} AND 8", "flag = TRUE", "s != '{q}'", "s IS NOT NULL", "d < 5")
CHANGES = st.lists(
    st.tuples(
        OP,
        st.integers(0, 11),
        st.fixed_dictionaries({}, optional={**ROW, "s": st.none() | st.sampled_from(TEXTS) | st.text()}),
    ),
    min_size=1,
    max_size=10,
)


def _where(draw: random.Random) -> str:
    chosen = [draw.choice(CONDITIONS), *draw.sample(BESIDE, draw.choice([0, 0, 1, 2]))]
    draw.shuffle(chosen)
    p, q = (draw.choice(TEXTS) for _ in range(2))
    return " AND ".join(chosen).format(p=p, q=q, a=draw.randint(0, 9))


def _row(draw: random.Random, keys: int = 40) -> dict[str, Any]:
    return {
        "k": draw.randrange(keys),
        "a": draw.choice([None, *range(10)]),
        "b": draw.choice([None, *range(10)]),
        "d": draw.choice([None, 0.5, float("nan"), *map(float, range(10))]),
        "s": draw.choice([None, *TEXTS]) if draw.random() < 0.7 else f"a{draw.randrange(1000)}",
        "flag": draw.choice([None, True, False]),
    }


@pytest.fixture(params=[2, 1 << 40])
def gap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(partitioned, "_WIDE_GAP", request.param)  # 2: no label between two
    monkeypatch.setattr(partitioned, "_GAP", min(request.param, 1 << 20))
    return int(request.param)


@pytest.mark.parametrize("wide", [False, True])
def test_deltas_equal_those_of_the_scan(wide: bool) -> None:
    @settings(max_examples=15, deadline=None)
    @given(
        st.lists(CHANGES | st.integers(0, 10**6), min_size=2, max_size=8), st.randoms(use_true_random=False)
    )
    def check(script: list[Any], draw: random.Random) -> None:
        Both().run([4, *script], draw, _where)

    with pytest.MonkeyPatch.context() as patch:
        if not wide:
            patch.setattr(partitioned, "_WIDE_GAP", 2)
            patch.setattr(partitioned, "_GAP", 2)
        check()


@pytest.mark.parametrize("way", ["template", "texts"])
def test_templates_and_texts(way: str, gap: int) -> None:
    both, draw = Both(), random.Random(gap)
    both.apply_batch([_row(draw) for _ in range(60)])
    count = 40
    columns: dict[str, list[Any]] = {
        "p": [draw.choice(TEXTS) for _ in range(count)],
        "q": [draw.choice(TEXTS) for _ in range(count)],
        "r": [draw.randint(0, 5) for _ in range(count)],
    }
    ranges = ["s > :p", "s BETWEEN :p AND :q", "s <= :q", "s >= :p AND s < :q", "s = :p"]
    beside = [[], ["a >= :r"], ["a = :r"], ["d < 5", "b >= :r"], ["a = 3", "b < 7"], ["s != 'ab'"]]
    for at, select in enumerate(SELECTS):
        where = [draw.choice(ranges), *draw.choice(beside)]
        draw.shuffle(where)
        text = select.format(w=" AND ".join(where))
        used = {name: column for name, column in columns.items() if f":{name}" in text}
        if way == "template":
            both.each("subscribe_many", text, pa.table({"id": range(count * at, count * (at + 1)), **used}))
        else:
            both.each("subscribe_texts", [_fill(text, used, i) for i in range(count)])
    for n in range(4):
        both.apply_batch([_row(draw) for _ in range(30)])
        if n == 2:
            both.each("unsubscribe_many", [s.id for s in both.engines[0].subscriptions()][::3])
    both.compare_contents()
    assert both.stats()["scanned"] == 0


def _fill(text: str, columns: dict[str, list[Any]], at: int) -> str:
    for name, column in columns.items():
        value = column[at]
        text = text.replace(f":{name}", f"'{value}'" if isinstance(value, str) else str(value))
    return text


# -- families ------------------------------------------------------------------------------------------

SHAPES = ("MIN(d)", "COUNT(*)", "MIN(b), SUM(d)", "DISTINCT flag", "top")
WHERE = {
    ("s > :p",): "s",
    ("s BETWEEN :p AND :q",): "s",
    ("s LIKE 'n%'", "s >= :p"): "s",
    ("s <= :q", "b >= 3"): "s",
    ("s >= :p", "a = :r"): "s",
    ("s < :q", "b >= :r"): "b, s",
    ("b < 7", "a = :r", "s BETWEEN :p AND :q"): "s",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("where", WHERE, ids=" ".join)
def test_a_thousand_ranges_of_texts_are_one_family(where: tuple[str, ...], shape: str) -> None:
    engine, draw = Engine(), random.Random(len(where))
    engine.execute(TABLE)
    select = "SELECT k FROM t" if shape == "top" else f"SELECT {shape} FROM t"
    tail = " ORDER BY d LIMIT 2" if shape == "top" else ""
    names = sorted(f"n{draw.randrange(10**6)}é" for _ in range(2000))
    columns = {"p": names[::2], "q": names[1::2], "r": [n % 7 for n in range(1000)]}
    orders = list(permutations(where))
    ids = iter(range(10**6))
    for at, order in enumerate(orders):
        text = f"{select} WHERE {' AND '.join(order)}{tail}"
        part = {name: column[at :: len(orders)] for name, column in columns.items() if f":{name}" in text}
        size = len(columns["p"][at :: len(orders)])
        table = pa.table({"id": [next(ids) for _ in range(size)], **part})
        engine.subscribe_many(text, table)
    rows = [{**_row(draw), "k": k, "s": f"n{draw.randrange(10**6)}"} for k in range(30)]
    engine.apply("t", pa.Table.from_pylist(rows))
    stats = engine.stats()["rank"]
    assert stats["scanned"] == 0 and sum(f["subscriptions"] for f in stats["families"]) == 1000
    assert [family["attribute"] for family in stats["families"]] == [WHERE[where]]


def test_single_subscriptions_share_one_family() -> None:
    both = Both()
    for n in range(150):
        both.each("subscribe", f"SELECT MIN(d) FROM t WHERE s > 'name {n}'")
        both.each("subscribe", f"SELECT COUNT(*) FROM t WHERE s LIKE 'n{n}%' AND a < {n}")
    draw = random.Random(1)
    both.apply_batch([{**_row(draw), "s": f"n{n}"} for n in range(20)])
    both.each("subscribe", "SELECT MIN(d) FROM t WHERE s <= 'late'")
    both.apply_batch([{**_row(draw), "s": f"n{n}"} for n in range(20)])
    stats = both.stats()
    assert (len(stats["families"]), stats["scanned"]) == (2, 0)
    both.compare_contents()


def test_an_empty_range_costs_nothing() -> None:
    both = Both()
    both.each("subscribe", "SELECT COUNT(*) FROM t WHERE s > 'b' AND s < 'b'")
    ids = pa.table({"id": range(100, 130), "p": ["b"] * 30, "q": ["a"] * 30})
    both.each("subscribe_many", "SELECT MIN(d) FROM t WHERE s BETWEEN :p AND :q", ids)
    both.apply_batch([_row(random.Random(4)) for _ in range(20)])
    both.compare_contents()
    assert (both.stats()["families"], both.stats()["scanned"]) == ([], 0)


def test_saved_and_loaded(tmp_path: Path) -> None:
    both, draw = Both(), random.Random(5)
    for select in SELECTS:
        for _ in range(4):
            both.each("subscribe", select.format(w=_where(draw)))
    both.apply_batch([_row(draw) for _ in range(30)])
    both.engines[0].save(tmp_path / "saved")
    both.engines[0] = Engine.load(tmp_path / "saved")
    both.apply_batch([_row(draw) for _ in range(30)])
    both.compare_contents()


def test_texts_that_come_and_go_leave_nothing() -> None:
    engine = Engine()
    engine.execute(TABLE)
    last = None
    for n in range(40):
        id = engine.subscribe(f"SELECT COUNT(*) FROM t WHERE s > 'm{n}' AND a >= {n % 3}")
        texts = [f"{n:03}-{k:03}" for k in range(400)]
        rows = pa.table({"_op": ["upsert"] * 400, "k": range(400), "a": [n] * 400, "s": texts})
        engine.apply("t", rows)
        if last is not None:
            engine.unsubscribe(last)
        last = id
    (source,) = engine._roster.rooms["rank"]._sources.values()
    (axis,) = source._axes.values()
    assert 400 < len(axis) <= 4 * 1000 + 4096  # of 16,040 texts
    assert sum(end is not None for end in axis._ends.ravel()) <= 40


# -- the axis ------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.binary(max_size=3), max_size=50), min_size=1, max_size=8),
    st.sampled_from([2, 16, 1 << 20]),
)
def test_positions_are_in_the_order_of_texts_and_stay(drawn: list[list[bytes]], gap: int) -> None:
    axis = TextAxis(gap, 1 << 37)
    known: dict[bytes, int] = {}
    for texts in drawn:
        found = axis.find(texts)
        if found is None:
            axis.reload([*known, *texts], np.empty(0, np.int64))
            known, found = {}, axis.find(texts)
        assert found is not None
        for text, position in zip(texts, found.tolist(), strict=True):
            assert known.setdefault(text, position) == position
        axis._check()
    assert sorted(known, key=lambda text: known[text]) == sorted(known)


@pytest.mark.parametrize("falling", [False, True])
def test_texts_in_sequence_seldom_exhaust_a_gap(falling: bool) -> None:
    axis, numbers = TextAxis(), range(2000)
    axis.reload([b"a", b"z"], np.empty(0, np.int64))
    for n in reversed(numbers) if falling else numbers:
        assert axis.find([b"order-%06d" % n, b"user-%06d" % n]) is not None
    axis._check()


def test_ends_of_ranges_follow_their_texts() -> None:
    axis = TextAxis(2, 1 << 37)
    low, high = np.array([1, LEAST, 4]), np.array([3, 4, GREATEST])
    axis.register(np.array([70, 3, 5]), low, high, to_arrow([b"a", b"b"]))
    assert axis.ranges(np.array([70])) is None
    slots = np.array([3, 5, 70])
    axis.reload([b"a", b"aa", b"b"], slots)
    for _ in range(2):
        found = axis.ranges(slots)
        positions = axis.find([b"a", b"aa", b"b"])
        assert found is not None and positions is not None
        inside = [[a <= p <= z for p in positions.tolist()] for a, z in zip(*found, strict=True)]
        assert inside == [[True, True, True], [False, False, True], [False, True, False]]
        axis.reload([b"", b"a", b"aa", b"ab", b"b"], slots)
    axis.reload([], np.array([3]))
    assert len(axis) == 1

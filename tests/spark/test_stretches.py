"""Subscriptions placed by stretches of a column: the same deltas as an engine, and where rows go."""

import json
import random
from collections import Counter
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.simulated import Simulated, clear_live_shards
from tests.spark.workload import DDL, Embedded, World, contents
from tocsin.model.schema import Type
from tocsin.predicate.codes import GREATEST, LEAST
from tocsin.spark.versions import store as storing
from tocsin.spark.versions.batch import Layout, load_placement
from tocsin.spark.versions.blocks import template_block
from tocsin.spark.versions.store import Versions
from tocsin.spark.versions.stretches import PARTS, RangeColumn, cuts_of, hull, place_ranges

LAYOUT = Layout(tables=2, joins=1, subscriptions=4)
OBJECTS = "CREATE TABLE o (id BIGINT, x DOUBLE, y DOUBLE, PRIMARY KEY (id))"
TOPK = "SELECT id, y FROM o WHERE x BETWEEN :l AND :h ORDER BY y LIMIT 3"


def drawn(draw: random.Random, number: int) -> tuple[int, str, str]:
    """A subscription over one table, by a range of numbers, integers or times, by a text, or by none."""
    low = draw.choice([-1, 0, 1, 2, 3.5, 4, 6])
    risk = f"risk BETWEEN {low} AND {low + draw.choice([0, 1, 2, 9])}"
    texts = [
        f"SELECT symbol, per FROM stocks WHERE {risk} ORDER BY per LIMIT {draw.choice([1, 3])}",
        f"SELECT MIN(per) AS least FROM stocks WHERE {risk}",
        f"SELECT COUNT(*) AS n, SUM(per) AS total FROM stocks WHERE {risk} AND per > 20",
        f"SELECT DISTINCT sector FROM stocks WHERE {risk} OR risk BETWEEN 8 AND 9",
        f"SELECT sector, COUNT(*) AS n FROM stocks WHERE {risk} GROUP BY sector",
        f"SELECT MAX(rating) AS best FROM reviews WHERE symbol = '{draw.choice('ABCX')}'",
        f"SELECT COUNT(*) AS n FROM stocks WHERE sector = {draw.choice([1, 2, 3])}",
        f"SELECT COUNT(*) AS n FROM targets WHERE seen >= '201{draw.choice('234')}-01-01T00:00:00Z'",
        "SELECT COUNT(*) AS n FROM stocks",
        f"SELECT * FROM stocks WHERE {risk}",
    ]
    return number, draw.choice(texts), f"who-{number % 3}"


@pytest.mark.parametrize("seed", range(12))
def test_any_history_like_the_embedded_engine(tmp_path, seed):
    draw, world = random.Random(seed), World(seed)
    present = {n: drawn(draw, n) for n in range(draw.choice([0, 40]))}
    with patch.object(storing, "ENOUGH", draw.choice([1, 4])):
        run = Simulated(tmp_path, DDL, list(present.values()), LAYOUT)
        embedded, versions = Embedded(present.values()), Versions(run.paths.versions)
        run.batch([])
        for step in range(8):
            last = world.seq
            if draw.random() < 0.6:
                gone = draw.sample(sorted(present), min(3, len(present)))
                fresh = [drawn(draw, 1000 * (step + 1) + n) for n in range(draw.choice([1, 6]))]
                if draw.random() < 0.5 and gone:  # removed and added again, as it was: nothing happens
                    versions.change(remove=[gone[0]])
                    versions.change(add=[present[gone[0]]])
                    gone = gone[1:]
                embedded.engine.unsubscribe_many(gone)
                present = {n: one for n, one in present.items() if n not in gone}
                for one in fresh:
                    embedded.subscribe(*one, seq=last)
                    present[one[0]] = one
                versions.change(remove=gone, add=fresh)
                if draw.random() < 0.3:
                    versions.compact()
            changes = world.changes(draw.choice([0, 5, 30]))
            embedded.apply(changes)
            run.batch(changes, crash=draw.random() < 0.3)
            if draw.random() < 0.4:
                clear_live_shards()
    for number in sorted({key[1] for key in run.emitted | embedded.emitted}):
        mine, theirs = (
            Counter({k: n for k, n in bag.items() if k[1] == number})
            for bag in (run.emitted, embedded.emitted)
        )
        assert mine == theirs, f"subscription {number}: {mine - theirs} for {theirs - mine}"
    for number, rows in contents(run.emitted).items():
        if number in present:
            assert rows == embedded.answer(number), (present[number], rows, embedded.answer(number))


def block(count: int, first: int = 0, width: float = 0.01):
    low = np.random.default_rng(first).random(count)
    return template_block(TOPK, pa.table({"id": np.arange(first, first + count), "l": low, "h": low + width}))


def test_narrow_ranges_are_in_stretches_and_wide_ones_by_subscription(tmp_path):
    versions = Versions(tmp_path / "subscriptions")
    versions.publish(OBJECTS, [block(2000), block(50, 5000, 0.5)])
    placement = load_placement(versions.store.address, 1, LAYOUT)
    stretched = {g.shards[0]: g for g in placement.groups if g.stretch is not None}
    assert sorted(stretched) == [f"stretch|o.x|{n}" for n in range(4)]
    wide = {i for g in placement.groups if g.stretch is None for i in g.subscriptions.ids.tolist()}
    assert set(range(5000, 5050)) - wide == {
        i for g in stretched.values() for i in g.subscriptions.ids.tolist() if i >= 5000
    }
    sizes = [len(g.subscriptions) for g in stretched.values()]
    assert sum(sizes) > 1900 and max(sizes) < 1.3 * min(sizes)


def test_new_subscriptions_and_compaction_move_none(tmp_path):
    def places(number):
        placement = load_placement(versions.store.address, number, LAYOUT)
        return {i: g.shards[0] for g in placement.groups for i in g.subscriptions.ids.tolist()}

    versions = Versions(tmp_path / "subscriptions")
    few = versions.publish(OBJECTS, [block(50)])
    assert {place.split("|")[0] for place in places(few).values()} == {"subscriptions"}
    many = versions.change(add=[block(2000, 100)])
    again = versions.change(replace=[block(50)], add=[block(60, 9000)])
    last = versions.compact()
    for earlier, later in ((few, many), (many, again), (again, last)):
        assert places(earlier).items() <= places(later).items()
    assert places(last)[9000].startswith("stretch|o.x|")


def test_a_change_goes_to_the_stretches_that_its_rows_are_in(tmp_path):
    clear_live_shards()
    run = Simulated(tmp_path, OBJECTS, [], LAYOUT)
    Versions(run.paths.versions).publish(OBJECTS, [block(2000)])
    rows = [{"id": n, "x": (n + 0.5) / 400, "y": n} for n in range(400)]
    run.batch([{"table": "o", "op": "insert", "row": json.dumps(r), "seq": n} for n, r in enumerate(rows, 1)])
    kept = [
        shard.engine.rows("o").num_rows
        for (_, name), (_, shard, _) in live().items()
        if name.startswith("stretch")
    ]
    assert len(kept) == 4 and 400 < sum(kept) < 1.25 * 400 and max(kept) < 140


def live():
    from tocsin.spark.stages import processors

    return processors._live_shards()._cache


def test_a_table_whose_column_has_another_type_is_not_read_by_old_ranges(tmp_path):
    versions = Versions(tmp_path / "subscriptions")
    versions.publish(OBJECTS, [block(2000)])
    versions.change(ddl=OBJECTS.replace("x DOUBLE", "x BIGINT"))
    placement = load_placement(versions.store.address, 2, LAYOUT)
    assert all(group.stretch is None for group in placement.groups)


def test_hulls_hold_what_is_placed_in_them():
    draw = np.random.default_rng(3)
    for count in (1, 2, 3, 7, 16, 64, PARTS):
        low = np.sort(draw.integers(-1000, 1000, 3000))
        high = low + draw.integers(0, 60, 3000)
        cuts = cuts_of(low, high)
        shard = place_ranges(cuts, count, low, high)
        for number in range(count):
            start, end = hull(cuts, count, number)
            mine = shard == number
            assert (low[mine] >= start).all() and ((high[mine] < end) | (end == GREATEST)).all()
        assert hull(cuts, count, 0)[0] == LEAST and hull(cuts, count, count - 1)[1] == GREATEST


def test_range_columns_as_json():
    column = RangeColumn("o", "x", Type.DOUBLE)
    assert RangeColumn.from_json(json.loads(json.dumps(column))) == column

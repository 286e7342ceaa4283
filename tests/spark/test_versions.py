"""Versions and pins on disk: whole or not there, and one answer for everyone."""

import json
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tocsin.errors import SubscriptionError, TocsinError
from tocsin.spark.versions.batch import Layout, Pin, Pins, load_placement
from tocsin.spark.versions.blocks import SubscriptionRow, as_table
from tocsin.spark.versions.store import Versions

DDL = "CREATE STREAM s (a BIGINT)"
NOW = datetime(2013, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def sub(number: int, low: int = 0) -> tuple[int, str, str]:
    return number, f"SELECT * FROM s WHERE a > {low}", f"user{number}"


def test_a_version_reads_back_in_order_of_id(tmp_path):
    versions = Versions(tmp_path)
    assert versions.latest() is None
    assert versions.publish(DDL, as_table([sub(9), sub(2)])) == 1
    version = versions.load(1)
    assert version.ddl == DDL
    assert version.rows() == [SubscriptionRow(2, sub(2)[1], "user2"), SubscriptionRow(9, sub(9)[1], "user9")]


def test_publishing_the_same_set_again_makes_no_version(tmp_path):
    versions = Versions(tmp_path)
    assert versions.publish(DDL, as_table([sub(1), sub(2)])) == 1
    assert versions.publish(DDL, as_table([sub(2), sub(1)])) == 1
    assert versions.publish(DDL, as_table([sub(2)])) == 2
    assert versions.numbers() == [1, 2]
    assert [json.loads(versions.log.get(entry.key)) for entry in versions.log.list()] == [
        {"version": 1},
        {"version": 2},
    ]


def test_an_id_keeps_its_meaning(tmp_path):
    versions = Versions(tmp_path)
    versions.publish(DDL, as_table([sub(1), sub(2)]))
    with pytest.raises(
        SubscriptionError, match=r"subscription 2 has another sql .*\nhint: give the new one a new id"
    ):
        versions.publish(DDL, as_table([sub(1), sub(2, low=5)]))
    with pytest.raises(SubscriptionError, match="subscription 2 has another valid_to"):
        versions.publish(DDL, as_table([sub(1), (*sub(2), None, NOW)]))
    versions.publish(DDL, as_table([sub(1), (*sub(2)[:2], "someone else")]))


def test_duplicate_ids_and_other_things_are_refused(tmp_path):
    with pytest.raises(SubscriptionError, match="subscription 1 is there 2 times"):
        Versions(tmp_path).publish(DDL, as_table([sub(1), sub(1)]))
    with pytest.raises(SubscriptionError, match="not a subscription"):
        as_table([("x", "SELECT 1")])
    with pytest.raises(SubscriptionError, match="cannot be made of int"):
        as_table(3)
    with pytest.raises(TocsinError, match="there is no version 4"):
        Versions(tmp_path).load(4)


@pytest.mark.parametrize(
    ("row", "fact"),
    [
        ((1,), r"not a subscription: \(1,\)"),
        (1, "not a subscription: 1"),
        ((1, "SELECT 1", None, None, None, 6), "not a subscription"),
        ((1, "SELECT 1", 5), "subscriber is 5\nhint: subscriber is text"),
        ((1, "SELECT 1", None, "today"), "valid_from is 'today'\nhint: valid_from is a datetime"),
        ((True, "SELECT 1"), "id is True"),
        ((2**70, "SELECT 1"), "subscription id 1180591620717411303424 is no BIGINT"),
        ({"id": 1, "sql": "SELECT 1", "valid_form": NOW}, "a subscription has no 'valid_form'"),
        ({"id": 1, "sq": "SELECT 1"}, "a subscription has no 'sq'"),
    ],
)
def test_a_row_that_is_no_subscription_is_rejected(row, fact):
    with pytest.raises(SubscriptionError, match=fact):
        as_table([row])


def test_arrow_tables_that_are_no_subscriptions_are_refused():
    with pytest.raises(SubscriptionError, match="have no column sql"):
        as_table(pa.table({"id": [1]}))
    with pytest.raises(SubscriptionError, match="have a NULL in column sql"):
        as_table(pa.table({"id": [1], "sql": pa.array([None], pa.string())}))
    with pytest.raises(SubscriptionError, match="column id of the subscriptions is no int64"):
        as_table(pa.table({"id": ["x"], "sql": ["SELECT 1"]}))


def test_a_directory_recreated_is_read_again(tmp_path):
    versions = Versions(tmp_path / "v")
    versions.publish(DDL, as_table([sub(1)]))
    assert [row.id for row in versions.load(1).rows()] == [1]
    before = versions.load(1).uuid
    shutil.rmtree(tmp_path / "v")
    versions.publish(DDL, as_table([sub(2)]))
    assert [row.id for row in versions.load(1).rows()] == [2]
    assert load_placement(str(tmp_path / "v"), 1, Layout()).filters.ids.tolist() == [2]
    assert versions.load(1).uuid != before


def test_old_pins_are_removed(tmp_path):
    versions, pins = Versions(tmp_path / "subscriptions"), Pins(tmp_path / "pins", "q")
    versions.publish(DDL, as_table([sub(1)]))
    for batch in range(0, 900, 100):
        pins.pin(batch, versions, NOW)
    assert sorted(os.listdir(pins.store.path)) == ["600.json", "700.json", "800.json"]


def test_an_arrow_table_needs_only_id_and_sql():
    table = as_table(pa.table({"sql": ["SELECT * FROM s"], "id": pa.array([3], pa.int32())}))
    assert table.to_pylist() == [
        {"id": 3, "subscriber": None, "sql": "SELECT * FROM s", "valid_from": None, "valid_to": None}
    ]


def test_a_half_written_version_is_not_seen(tmp_path):
    versions = Versions(tmp_path)
    versions.publish(DDL, as_table([sub(1)]))
    (tmp_path / ".v000002-dead").mkdir()
    assert versions.latest() == 1
    assert versions.publish(DDL, as_table([sub(1), sub(2)])) == 2


def test_a_pin_is_found_again_and_does_not_move(tmp_path):
    versions, pins = Versions(tmp_path / "subscriptions"), Pins(tmp_path / "pins", "q")
    versions.publish(DDL, as_table([sub(1)]))
    first = pins.pin(0, versions, NOW)
    assert first == Pin(1, -1, first.micros)
    assert first.start_seq == 0
    assert first.time == NOW
    pins.set_applied(0, 41)
    versions.publish(DDL, as_table([sub(1), sub(2)]))
    later = NOW + timedelta(seconds=5)
    assert pins.pin(0, versions, later) == first
    assert pins.pin(1, versions, later) == Pin(2, 41, first.micros + 5_000_000)
    assert Pins(tmp_path / "pins", "other").get(1) is None


def test_the_last_seq_of_the_nearest_finished_batch_counts(tmp_path):
    pins = Pins(tmp_path, "q")
    assert pins.applied(-1) == -1  # so that 0 may be the first
    pins.set_applied(0, 10)
    pins.set_applied(1, 20)
    assert (pins.applied(0), pins.applied(1), pins.applied(7)) == (10, 20, 20)
    pins.remove_before(1)
    assert (pins.applied(0), pins.applied(1)) == (-1, 20)


def test_no_version_no_pin(tmp_path):
    with pytest.raises(TocsinError, match="no version of the subscriptions to run on"):
        Pins(tmp_path, "q").pin(0, Versions(tmp_path / "none"), NOW)


def _publish_and_pin(path: str, who: int) -> list[Pin]:
    versions = Versions(f"{path}/subscriptions")
    pins = Pins(f"{path}/pins", "q")
    answers = []
    for batch in range(40):
        versions.publish(DDL, as_table([sub(1), sub(1000 + 50 * who + batch)]))
        answers.append(pins.pin(batch, versions, NOW + timedelta(seconds=who)))
    return answers


def test_racing_processes_agree_on_every_pin_and_lose_no_version(tmp_path):
    with ProcessPoolExecutor(2) as pool:
        one, two = pool.map(_publish_and_pin, [str(tmp_path)] * 2, [0, 1])
    assert one == two
    versions = Versions(tmp_path / "subscriptions")
    numbers = versions.numbers()
    assert numbers == list(range(1, len(numbers) + 1))
    texts = {row.id for number in numbers for row in versions.load(number).rows()}
    assert texts == {1, *range(1000, 1040), *range(1050, 1090)}
    assert not [name for name in os.listdir(tmp_path / "subscriptions") if name.startswith(".")]

"""A value belongs to one shard, however it is written and in whatever process."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pyarrow as pa
import pytest

from tocsin.spark.sharding import shards_of

MIDNIGHT = datetime(2013, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([7, -3, 2**53]), pa.array([7.0, -3.0, 2.0**53])),
        (pa.array([0.0, float("nan")]), pa.array([-0.0, -float("nan")])),
        (pa.array([date(2013, 1, 31)]), pa.array([MIDNIGHT], pa.timestamp("us", "UTC"))),
        (pa.array(["a", "b"]), pa.chunked_array([["a"], ["b"]])),
    ],
)
def test_equal_values_share_a_shard(one, other) -> None:
    assert shards_of([one], 1000).tolist() == shards_of([other], 1000).tolist()


def test_a_row_with_a_null_has_none() -> None:
    columns = [pa.array([1, None, 3]), pa.array(["a", "b", None])]
    assert (shards_of(columns, 5) >= 0).tolist() == [True, False, False]
    assert shards_of([pa.array([None, None], pa.int64())], 5).tolist() == [-1, -1]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.arange(8000)),
        pa.array(np.arange(8000) * 2**20),
        pa.array(np.arange(8000) / 7),
        pa.array([f"key-{n}" for n in range(8000)]),
    ],
)
def test_values_are_spread_evenly(column) -> None:
    for count in (2, 3, 8):
        sizes = np.bincount(shards_of([column], count), minlength=count)
        assert sizes.min() > 0.9 * 8000 / count


def test_what_is_computed_never_changes() -> None:
    """State is kept by shard."""
    when = pa.array([MIDNIGHT], pa.timestamp("us", "UTC"))
    columns = [pa.array([1]), pa.array([0.5]), pa.array(["x"]), pa.array([True]), when]
    assert [int(shards_of([column], 2**20)[0]) for column in columns] == [
        989137,
        730355,
        247774,
        45084,
        795527,
    ]
    assert shards_of(columns, 2**20).tolist() == [386433]

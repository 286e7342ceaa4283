"""Which of some shards a value belongs to: a hash that is the same in every process, on whole columns.

It agrees wherever SQL says that two values are equal: 1 and 1.0, 0.0 and -0.0, a date and its midnight. State
is kept by shard, so what is computed here must never change, or `SPREAD` with it: a state says which it has.

>>> buckets([pa.array([1, 2, None])], 4).tolist(), buckets([pa.array([1.0, 2.0, 2.5])], 4).tolist()
([1, 3, -1], [1, 3, 3])
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

__all__ = ["SPREAD", "buckets"]

SPREAD = 2  # which hash

Hashes = NDArray[np.uint64]

_NUMBER, _TRUTH, _TEXT, _TIME = (np.uint64(tag) for tag in (1, 2, 3, 4))
_STEP = np.uint64(0x9E3779B97F4A7C15)
_DAY = 86_400_000_000  # microseconds


def buckets(columns: Sequence[Any], count: int) -> NDArray[np.int64]:
    """The bucket of each row of some Arrow columns; -1 where a value is NULL: it joins nothing."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    absent = np.zeros(len(mixed), np.bool_)
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            absent |= ~valid
            mixed[valid] = _mix(mixed[valid] * _STEP + _hashes(array.drop_null()))
        else:
            mixed = _mix(mixed * _STEP + _hashes(array))
    found = ((mixed >> np.uint64(32)) % np.uint64(count)).astype(np.int64)
    return np.where(absent, -1, found)


def _hashes(array: Any) -> Hashes:
    """A number per value, the same for equal ones."""
    kind = array.type
    if pt.is_integer(kind):
        return _mix(array.to_numpy().astype(np.int64).view(np.uint64)) + _NUMBER
    if pt.is_floating(kind):
        return _doubles(array.to_numpy().astype(np.float64)) + _NUMBER
    if pt.is_boolean(kind):
        return _mix(array.to_numpy(zero_copy_only=False).astype(np.uint64)) + _TRUTH
    if pt.is_date(kind):
        return (
            _mix((array.cast(pa.date32()).view(pa.int32()).to_numpy() * np.int64(_DAY)).view(np.uint64))
            + _TIME
        )
    if pt.is_timestamp(kind):
        micros = array.cast(pa.timestamp("us", kind.tz)).view(pa.int64()).to_numpy()
        return _mix(micros.view(np.uint64)) + _TIME
    crcs = (zlib.crc32(text.encode()) for text in array.to_pylist())
    return _mix(np.fromiter(crcs, np.uint64, len(array))) + _TEXT


def _doubles(values: NDArray[np.float64]) -> Hashes:
    """Whole ones as the integers they are; all NaN are one."""
    whole = (np.trunc(values) == values) & (values >= -(2.0**63)) & (values < 2.0**63)
    bits = np.where(np.isnan(values), np.nan, values).view(np.uint64)
    return _mix(np.where(whole, np.where(whole, values, 0).astype(np.int64).view(np.uint64), bits))


def _mix(numbers: Hashes) -> Hashes:
    """Every bit of the outcome depends on every bit of the number (the last step of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))

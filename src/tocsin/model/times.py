"""Dates and timestamps from columns of text: the same rules as `schema.read_time`, a column at a time.

Usual forms are matched by a pattern and cast by Arrow; other texts are read one by one, each distinct one
once.

>>> values, are_times = read_times(Type.TIMESTAMP, pa.array(["1970-01-02", "1970-1-1T01:00Z", "soon", None]))
>>> values.tolist(), are_times.tolist()
([86400000000, 3600000000, 0, 0], [True, True, False, False])
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.model.columns import Index, Mask
from tocsin.model.schema import Type, read_time

__all__ = ["FIRST_DAY", "LAST_DAY", "read_times", "time_code"]

FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400_000_000  # microseconds
_DATE = r"^\d{4}-\d\d-\d\d"
_CLOCK = r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_FORMS: dict[Type, tuple[tuple[str, Any], ...]] = {
    Type.DATE: ((f"{_DATE}$", pa.date32()),),
    Type.TIMESTAMP: (
        (f"{_DATE}({_CLOCK})?$", pa.timestamp("us")),
        (rf"{_DATE}{_CLOCK}(Z|[+-](0\d|1[0-7]):[0-5]\d)$", pa.timestamp("us", "UTC")),
    ),
}
_LIKELY = r"\d{4}-\d"  # other texts are no times


def read_times(type: Type, texts: Any) -> tuple[Index, Mask]:
    """Days or microseconds since 1970 of each text of an Arrow array, and which texts are times at all."""
    values, are_times = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    left = _matching(texts, _LIKELY)
    unit = 1 if type is Type.DATE else _DAY
    for form, way in _FORMS[type]:
        if not left.any():
            break
        usual = left & _matching(texts, form)
        try:
            cast = pc.cast(texts.filter(pa.array(usual)), way)
        except pa.ArrowInvalid:  # a month 13
            continue
        storage = cast.cast(pa.int32()).cast(pa.int64()) if type is Type.DATE else cast.cast(pa.int64())
        values[usual] = storage.to_numpy(zero_copy_only=False)
        are_times[usual] = (values[usual] >= FIRST_DAY * unit) & (values[usual] < (LAST_DAY + 1) * unit)
        left &= ~usual
    if left.any():
        values[left], are_times[left] = _one_by_one(type, texts.filter(pa.array(left)))
    values[~are_times] = 0
    return values, are_times


def _matching(texts: Any, pattern: str) -> Mask:
    found = pc.match_substring_regex(texts, pattern).fill_null(False)
    return np.array(found.to_numpy(zero_copy_only=False), np.bool_)


def _one_by_one(type: Type, texts: Any) -> tuple[Index, Mask]:
    coded = texts.dictionary_encode()
    values, are_times = np.zeros(len(coded.dictionary), np.int64), np.zeros(len(coded.dictionary), np.bool_)
    for i, text in enumerate(coded.dictionary.to_pylist()):
        try:
            values[i], are_times[i] = time_code(type, read_time(type, text)), True
        except ValueError:
            continue
    which = coded.indices.to_numpy(zero_copy_only=False)
    return values[which], are_times[which]


def time_code(type: Type, value: date) -> int:
    """Days since 1970 of a date, microseconds of a timestamp."""
    if type is Type.DATE:
        return value.toordinal() - _EPOCH.toordinal()
    assert isinstance(value, datetime)
    return (value - _EPOCH) // timedelta(microseconds=1)

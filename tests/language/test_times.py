"""Times in text mean the same in rows, in literals and in columns of predicates."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

import pytest

from tocsin.language.literals import read_text
from tocsin.model.schema import Type, read

DAY, FIVE = datetime(2020, 1, 2, tzinfo=UTC), datetime(2020, 1, 2, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2020-01-02", DAY),
        ("2020-1-2", DAY),
        ("2020-01-02 5:00", FIVE),
        ("2020-01-02T05:00", FIVE),
        ("2020-01-02 05:00:00", FIVE),
        ("2020-01-02 05:00:00.1234567899", FIVE.replace(microsecond=123456)),
        ("2020-01-02 05:00:00Z", FIVE),
        ("2020-01-02 05:00 UTC", FIVE),
        ("2020-01-02T06:30:00+01:30", FIVE),
        ("2020-01-02T00:00:00-05", FIVE),
        ("2020-01-02 23:00+18:00", FIVE),
        ("2020-01-01 11:00-18", FIVE),
    ],
)
def test_timestamps(text: str, value: datetime) -> None:
    assert read(Type.TIMESTAMP, text) == read_text(text, Type.TIMESTAMP) == value
    assert read(Type.TIMESTAMP, text).tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "20200102", "2020-W01-1", "2020-01", "2020-13-01", "2020-02-30", "2020-01-02 05", "2020-01-02 5:0",
        "2020-01-02 24:00", "2020-01-02 05:60", "2020-01-02  05:00", "2020-01-02t05:00", "2020-01-02 05:00z",
        "2020-01-02 05:00 GMT", "2020-01-02 05:00UTC", "2020-01-02 05:00 Europe/Berlin", "2020-01-02 UTC",
        "2020-01-02 05:00+1", "2020-01-02 05:00+0100", "2020-01-02 05:00+18:01", "2020-01-02 05:00+99:99",
        "2020-01-02 05:00+01:60", "2020-01-02 05:00:00,5", "0001-01-01 00:00+01", "9999-12-31 23:00-02",
        "0000-01-01", "10000-01-01", "\u0662020-01-01", "now", "",
    ],
)  # fmt: skip
def test_what_is_no_timestamp(text: str) -> None:
    for type in (Type.TIMESTAMP, Type.DATE):
        reason = f"^{re.escape(repr(text))} is not a {type}$"
        with pytest.raises(ValueError, match=reason):
            read(type, text)
        with pytest.raises(ValueError, match=reason):
            read_text(text, type)


def test_a_date_has_no_time_of_day() -> None:
    assert read(Type.DATE, "2020-1-02") == read_text("2020-1-02", Type.DATE) == date(2020, 1, 2)
    for text in ("2020-01-02 00:00", "2020-01-02T05:00Z"):
        with pytest.raises(ValueError, match="is not a DATE"):
            read(Type.DATE, text)
        with pytest.raises(ValueError, match="is not a DATE"):
            read_text(text, Type.DATE)

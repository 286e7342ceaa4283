"""RETAIN in definitions of streams: durations that are read, printed, and rejected."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tocsin.engine import Engine
from tocsin.errors import SqlError
from tocsin.language.ddl import parse_definitions
from tocsin.model.schema import Field, Stream, Type

FIELDS = (Field("retain", Type.STRING), Field("n", Type.BIGINT))
spans = st.timedeltas(timedelta(microseconds=1)) | st.builds(
    lambda unit, n: n * unit,
    st.sampled_from([timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)]),
    st.integers(1, 1000),
)


def retained(duration: str) -> timedelta | None:
    (stream,) = parse_definitions(f"CREATE STREAM s RETAIN '{duration}'")
    assert isinstance(stream, Stream)
    return stream.retain


def rejection(text: str) -> tuple[str, str, str]:
    """The fact, the piece of text it points at, and the hint."""
    with pytest.raises(SqlError) as error:
        parse_definitions(text)
    position = error.value.position
    assert position is not None
    return error.value.fact, text[position.start : position.end], error.value.hint or ""


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("10 minutes", timedelta(minutes=10)),
        ("1 second", timedelta(seconds=1)),
        ("1 seconds", timedelta(seconds=1)),
        ("90 minute", timedelta(hours=1.5)),
        ("2 HOURS", timedelta(hours=2)),
        ("1 day", timedelta(days=1)),
        ("2 weeks", timedelta(days=14)),
        ("250 ms", timedelta(milliseconds=250)),
        ("250ms", timedelta(milliseconds=250)),
        ("3 milliseconds 7 microseconds", timedelta(microseconds=3007)),
        ("1 hour 30 minutes", timedelta(minutes=90)),
        ("  30 minutes\n 1 hour\t", timedelta(minutes=90)),
        ("0 days 5 seconds", timedelta(seconds=5)),
        ("1.5 hours", timedelta(minutes=90)),
        (".5 days", timedelta(hours=12)),
        ("0.1 seconds 0.2 seconds", timedelta(milliseconds=300)),
        ("0.1 weeks", timedelta(seconds=60480)),
        ("0.0000019 seconds", timedelta(microseconds=1)),
        ("0.5 microseconds 0.5 microseconds", timedelta(microseconds=1)),
        ("999999999 days 86399.999999 seconds", timedelta.max),
    ],
)
def test_durations(duration: str, expected: timedelta) -> None:
    assert retained(duration) == expected


@pytest.mark.parametrize(
    ("duration", "fact", "hint"),
    [
        ("", "this is not a duration", "write positive numbers"),
        (" ", "this is not a duration", "write positive numbers"),
        ("10", "this is not a duration", "'10 minutes'"),
        ("minutes", "this is not a duration", "'10 minutes'"),
        ("-5 minutes", "this is not a duration", "positive"),
        ("+5 minutes", "this is not a duration", "positive"),
        ("1 hour, 2 minutes", "this is not a duration", "'1 hour 30 minutes'"),
        ("1 hour2 minutes", "this is not a duration", "'1 hour 30 minutes'"),
        ("1 hour and", "this is not a duration", "'1 hour 30 minutes'"),
        ("1e3 seconds", "this is not a duration", "write positive numbers"),
        ("1. seconds", "this is not a duration", "write positive numbers"),
        ("٣ days", "this is not a duration", "write positive numbers"),
        ("5 minuts", "'minuts' is not a unit of time", "did you mean 'minutes'?"),
        ("1 day 1 month", "'month' is not a unit of time", "units are microseconds, "),
        ("0 minutes", "the duration is below a microsecond", "leave RETAIN out"),
        ("0.0000001 seconds", "the duration is below a microsecond", "leave RETAIN out"),
        ("1000000000 days", "the duration is too long", "at most 999999999 days"),
        ("9" * 5000 + " days", "the duration has too many digits", "write positive numbers"),
    ],
)
def test_what_is_no_duration(duration: str, fact: str, hint: str) -> None:
    found = rejection(f"CREATE STREAM s\n  RETAIN '{duration}'")
    assert found[:2] == (fact, f"'{duration}'")
    assert hint in found[2]


@pytest.mark.parametrize(
    ("text", "fact", "place"),
    [
        ("CREATE STREAM s RETAIN", "expecting a duration after RETAIN", "RETAIN"),
        ("CREATE STREAM s RETAIN; DROP STREAM s", "expecting a duration after RETAIN", "RETAIN"),
        ("CREATE STREAM s RETAIN 10 minutes", "expecting a duration after RETAIN", "10"),
        ("CREATE STREAM s RETAIN INTERVAL '1 day'", "expecting a duration after RETAIN", "INTERVAL"),
        ("CREATE STREAM s RETAIN `1 day`", "expecting a duration after RETAIN", "`1 day`"),
        ("CREATE STREAM s RETAIN '1 day' (a BIGINT)", "columns come before RETAIN", "("),
        ("CREATE STREAM s RETAIN '1 day' retain '1 day'", "RETAIN occurs twice", "retain"),
        ("CREATE STREAM s RETAIN '1 day' 'x'", "syntax error at \"'x'\"", "'x'"),
        ("CREATE STREAM s `RETAIN` '1 day'", "syntax error at '`RETAIN`'", "`RETAIN`"),
        ("CREATE TABLE t (a BIGINT PRIMARY KEY) RETAIN '1 day'", "RETAIN is for streams", "RETAIN '1 day'"),
        ("CREATE TABLE t RETAIN 'x'", "RETAIN is for streams", "RETAIN 'x'"),
    ],
)
def test_what_is_no_definition(text: str, fact: str, place: str) -> None:
    assert rejection(text)[:2] == (fact, place)


def test_a_table_keeps_its_rows_anyway() -> None:
    hint = rejection("CREATE TABLE t (a BIGINT PRIMARY KEY) RETAIN '1 day'")[2]
    assert hint == "leave it out: a table keeps its rows until they are deleted"


def test_retain_is_no_reserved_word() -> None:
    text = "CREATE STREAM retain (retain STRING, n BIGINT) RETAIN '1 day'"
    assert parse_definitions(text.lower()) == [Stream("retain", FIELDS, timedelta(days=1))]
    assert str(*parse_definitions(text)) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(minutes=10), "10 minutes"),
        (timedelta(days=1, hours=1, minutes=1, seconds=1), "1 day 1 hour 1 minute 1 second"),
        (timedelta(days=8, seconds=7200), "8 days 2 hours"),
        (timedelta(microseconds=1), "0.000001 seconds"),
        (timedelta(seconds=1, milliseconds=20), "1.02 seconds"),
        (timedelta(seconds=10), "10 seconds"),
    ],
)
def test_how_it_prints(span: timedelta, text: str) -> None:
    assert str(Stream("s", retain=span)) == f"CREATE STREAM s RETAIN '{text}'"


@given(spans, st.sampled_from([(), FIELDS]))
@example(timedelta.max, ())
@example(timedelta.resolution, FIELDS)
def test_property_it_prints_and_parses_back(span: timedelta, fields: tuple[Field, ...]) -> None:
    stream = Stream("it's", fields, span)
    (back,) = parse_definitions(str(stream))
    assert (back, hash(back)) == (stream, hash(stream))
    assert back != Stream("it's", fields)


def test_a_saved_engine_retains_as_before(tmp_path) -> None:
    engine = Engine()
    engine.execute("CREATE STREAM s RETAIN '1 hour 0.25 seconds'; CREATE STREAM t (a BIGINT)")
    engine.save(tmp_path / "saved")
    assert Engine.load(tmp_path / "saved").schemas() == engine.schemas()
